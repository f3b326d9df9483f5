"""Experiments: compare, sweep, reproduce and suspects, with their statistics."""
