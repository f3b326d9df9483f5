"""Readers: one file a format, each ends in examples or in an error that names the line."""
