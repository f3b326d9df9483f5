"""Fused Triton twins of the losses: no one-hot, no temporary of rows × classes.

`softf1.losses` calls them on CUDA; its PyTorch form stays the reference that they are tested by.
`linear_loss` is a linear layer and a loss in one, for label sets whose logits do not fit; it needs
no Triton. Kernels are not imported before a loss asks for them: Triton is not everywhere.

`encoder.py` is parts of encoder layers, for captured training steps; its kernels are in
`_encoder.py`, and `row_sums.py` makes the gradients of biases.

Where the kernel of a loss is, `_forward`, `_backward` and the like left out of its name:

    loss and level                              softmax                    sigmoid
    ce, wce, la, focal, wfocal,                 softmax_example            sigmoid_example
    dice, tversky, dsc at example level         (over 8,192 classes:
                                                softmax_example_long)
    dice, tversky, dsc at batch level           softmax_batch              sigmoid_batch
                                                (over 8,192 classes:
                                                softmax_batch_long)

`softmax_*` kernels are in the file of that name with an underscore before it, `sigmoid_*` in
`_sigmoid.py`; `_formulas.py` has the losses' formulas, which they share, `_read.py` how tiles are
read and written. A call goes from `fused.py` (arguments) through `autograd.py` (derivatives; under
torch.compile `operators.py`) to `example_level.py` or `batch_level.py` (which kernels, in which
order) and `_launch.py` (layouts, starting). A module that has been called with such tensors before
starts at `autograd.py`: `softf1.losses._dispatch.Shortcuts`.
"""

from softf1.kernels.linear import linear_loss

__all__ = ["linear_loss"]
