"""Scores of the field, counts first and ratio last; numpy only."""
