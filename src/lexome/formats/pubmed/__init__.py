"""PubMed XML."""
