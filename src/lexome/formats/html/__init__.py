"""A page with highlighted mentions; written only."""
