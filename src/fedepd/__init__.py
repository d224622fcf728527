"""Federated learning on graphs whose classes are long-tailed."""
