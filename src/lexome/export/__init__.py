"""Checkpoints to ONNX folders that run without torch: graph, int8, calibration and the checks before release."""
