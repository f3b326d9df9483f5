"""softf1 where people already work: transformers' Trainer, Lightning, scikit-learn.

Each needs its own library, imported only with the module of its name.
"""
