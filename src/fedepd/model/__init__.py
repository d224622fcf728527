"""A run folder comes in; a model folder comes out, and from that predictions for a new graph."""
