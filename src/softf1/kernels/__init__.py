"""Fused Triton twins of the losses: no one-hot, no temporary of rows × classes.

`softf1.losses` calls them on CUDA; its PyTorch form stays the reference that they are tested by.
`linear_loss` is a linear layer and a loss in one, for label sets whose logits do not fit; it needs
no Triton. Kernels are not imported before a loss asks for them: Triton is not everywhere.
"""

from softf1.kernels.linear import linear_loss

__all__ = ["linear_loss"]
