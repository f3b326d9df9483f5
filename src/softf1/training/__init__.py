"""Training: recipes, the one loop, checkpoints, evaluation."""
