"""Credit: from rewards to advantages. Lists in, lists out, no tensors."""
