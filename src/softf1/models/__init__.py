"""softf1.models."""
