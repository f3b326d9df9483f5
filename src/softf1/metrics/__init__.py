"""softf1.metrics."""
