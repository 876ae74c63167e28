"""Texts with mentions and relations: BioC, PubTator, brat, CoNLL, spaCy; both ways."""
