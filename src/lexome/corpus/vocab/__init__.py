"""Tokenizer vocabularies: trained on text, adapted, loaded from any source, compared."""
