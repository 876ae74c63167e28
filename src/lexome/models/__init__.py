"""The encoder, its heads, and checkpoints in Hugging Face's format. Needs torch: pip install 'lexome[train]'."""
