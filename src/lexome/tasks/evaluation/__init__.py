"""Evaluation of predicted annotations on gold ones: every applicable metric, and the differences behind them."""
