"""Whole documents as lines or rows: plain text, JSON lines, Parquet, clinical notes."""
