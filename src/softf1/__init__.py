"""Losses, training and honest comparison for text models that are judged by F1."""

__version__ = "0.2.0"
