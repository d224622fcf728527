"""Measured numbers and the paper's claims come in; a verdict on each claim comes out."""
