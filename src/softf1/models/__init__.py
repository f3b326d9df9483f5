"""Encoders and vocabularies: any of transformers, and those trained from scratch."""
