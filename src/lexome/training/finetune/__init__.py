"""Fine-tuning: a checkpoint learns a task, once or over a grid of settings, seeds and folds."""
