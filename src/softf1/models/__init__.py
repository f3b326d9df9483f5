"""Encoders and tokenizers: any model of transformers, and models from scratch."""
