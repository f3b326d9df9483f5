"""Experiments: what is run to find out whether a loss helps."""
