"""Inference with exported models: onnxruntime and numpy, never torch."""
