"""Target files come in; the runs that a table or figure needs, and what they measured, come out."""
