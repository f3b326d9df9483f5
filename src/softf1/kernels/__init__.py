"""Fused Triton twins of the losses: no one-hot, no temporary of rows × classes.

`softf1.losses` calls them on CUDA; its PyTorch form stays the reference that they are tested by.
Nothing here is imported before a loss asks for it: Triton is not everywhere.
"""
