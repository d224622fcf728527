"""Measured numbers and the paper's claims in, verdicts out."""
