"""BioC, as XML and JSON."""
