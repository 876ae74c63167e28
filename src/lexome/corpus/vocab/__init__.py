"""Vocabularies: learnt from text, loaded from anywhere, compared."""
