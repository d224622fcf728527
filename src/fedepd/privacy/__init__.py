"""Vectors of numbers -> their sum, and no single vector: what a server may learn of its sites."""
