"""Problems without torch: what a model is to say of a text, what its numbers mean, and how good that is."""
