"""Features and adjacency come in, logits and gradients go out: kernels, products, backbones, optimiser."""
