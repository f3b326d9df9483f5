"""softf1.tasks."""
