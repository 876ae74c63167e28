"""Two files of annotations, predicted and gold, side by side: every measure that fits, and what explains them."""
