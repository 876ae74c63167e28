"""Tables of README and docs, one module per family; TABLES maps the names used in pages to functions."""
