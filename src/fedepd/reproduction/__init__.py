"""The paper's tables and figures, from cells (runs of one row on one graph with one seed) to a page with verdicts."""
