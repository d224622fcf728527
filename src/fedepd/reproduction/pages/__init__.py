"""Results and verdicts come in; tables, figures and a page come out."""
