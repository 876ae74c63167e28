"""The forms in which benchmark sets are published: questions, labelled tables, single corpora."""
