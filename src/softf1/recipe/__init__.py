"""Recipes: what a user writes, read with line numbers and checked before anything runs."""
