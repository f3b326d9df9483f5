"""Training: recipes, batches, the one loop, checkpoints, evaluation and model folders."""
