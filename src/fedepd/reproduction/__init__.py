"""Targets (which tables and figures of the paper to make) come in; run folders, tables, figures and
verdicts come out."""
