"""Fused Triton twins of the losses: no one-hot, no temporary of rows × classes.

`softf1.losses` calls them on CUDA; its PyTorch form stays the reference that they are tested
against. `linear_loss` is a linear layer and a loss in one, for label sets whose logits do not fit
into memory; it needs no Triton. Kernels are imported only when a loss needs them, because Triton
may not be installed.

For training steps in CUDA graphs there are parts of encoder layers (`encoder.py`), their attention
(`attention.py`) and the gradient of embeddings (`embedding.py`); `row_sums.py` computes the
gradients of biases. The kernels are in the files with an underscore before the name.

The kernels of each loss (their names go on with `_forward`, `_backward` and the like):

    loss and level                              softmax                    sigmoid
    ce, wce, la, focal, wfocal,                 softmax_example            sigmoid_example
    dice, tversky, dsc at example level         (over 8,192 classes:
                                                softmax_example_long)
    zlpr                                        zlpr                       zlpr
    dice, tversky, dsc at batch level           softmax_batch              sigmoid_batch
                                                (over 8,192 classes:
                                                softmax_batch_long)

`softmax_*` and `zlpr_*` kernels are in the file of that name with an underscore before it,
`sigmoid_*` in `_sigmoid.py`. They share the losses' formulas (`_formulas.py`) and the code that
reads and writes tiles (`_read.py`). A call goes from `fused.py` (arguments) through `autograd.py`
(derivatives; under torch.compile `operators.py`) to `example_level.py` or `batch_level.py` (which
kernels, in which order) and `_launch.py` (layouts, launching). A loss module that has seen tensors
of the same shape and dtype before goes straight to `autograd.py`:
`softf1.losses._dispatch.Shortcuts`.
"""

from softf1.kernels.linear import linear_loss

__all__ = ["linear_loss"]
