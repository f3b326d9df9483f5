"""softf1 where people already work: transformers' Trainer, Lightning, scikit-learn.

Each needs its own library, which only the module of that name imports.
"""
