"""Graphs and methods come in; CPU seconds and memory per round come out, beside those of a plain
implementation."""
