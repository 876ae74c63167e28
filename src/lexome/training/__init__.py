"""Training: the only optimizers and loops of the package."""
