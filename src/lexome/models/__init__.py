"""The encoder, its heads, and checkpoints in Hugging Face's own form. Needs torch: pip install 'lexome[train]'."""
