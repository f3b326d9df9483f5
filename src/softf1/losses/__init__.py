"""softf1.losses."""
