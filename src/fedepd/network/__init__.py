"""Tensors and adjacency in, logits and gradients out: kernels, sparse products, backbones, the optimiser."""
