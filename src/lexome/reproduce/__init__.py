"""Studies: a paper's experiments run again with its own protocol, and set beside what it and others report."""
