"""Exported models at work: onnxruntime and numpy, never torch."""
