"""Which runs a table or figure is made from, and what they measured."""
