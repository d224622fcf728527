"""Helpers that serve one method each."""
