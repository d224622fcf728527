"""Results and verdicts in, tables, figures and pages out."""
