"""Training: batches, one loop for every task, checkpoints, evaluation and model folders."""
