"""JATS full text, as PMC publishes it."""
