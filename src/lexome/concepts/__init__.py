"""Concepts: dictionaries of names and ids, and the index that finds them."""
