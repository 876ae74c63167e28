"""Articles and citations: PubMed, PMC, MEDLINE, Europe PMC; read only."""
