"""A run folder in, a model folder and predictions out."""
