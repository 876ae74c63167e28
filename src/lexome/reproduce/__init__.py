"""Studies: a paper's experiments rerun with its own protocol, and compared with what it and others report."""
