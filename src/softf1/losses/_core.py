"""Prepare → formula → reduce: what every loss does before and after its formula.

`prepare` turns any accepted shape into rows of classes and says which (row, class) terms count;
a loss computes one value per row (or class) from them; `reduce_rows` reduces these values. The file
ends with the base of hand-written derivatives: what they do not have (second derivatives, forward
mode, vmap) raises an error that says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter, functional

if TYPE_CHECKING:
    from collections.abc import Sequence

# sums: statistics that add up over batches, (2, K); for ranking losses, which need all rows, the
# scores and labels, which are concatenated, (2, N, C)
Reduction = Literal["mean", "sum", "none", "sums"]
Over = Literal["example", "batch"]
Average = Literal["macro", "micro"]
Decay = Literal["detached", "paper"]
Scheme = Literal["balanced", "inverse", "log", "effective"]
Schedule = Literal["linear", "cosine"]
Backend = Literal["torch", "triton"]
Statistics = Literal["exact", "running"]

INTEGERS = (
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32
)  # fmt: skip

CHOICES: dict[str, tuple[str | None, ...]] = {
    "reduction": get_args(Reduction),
    "over": get_args(Over),
    "average": get_args(Average),
    "decay": get_args(Decay),
    "scheme": get_args(Scheme),
    "schedule": get_args(Schedule),
    "backend": (None, *get_args(Backend)),
    "statistics": get_args(Statistics),
}

ONLY_FIRST = (
    "the dice family, the ranking losses and the fused kernels have hand-written first derivatives "
    "only; "
)
SECOND_DERIVATIVE = (
    f"{ONLY_FIRST}a second derivative (a gradient penalty, a Hessian) is not available"
)
FORWARD_MODE = (
    f"{ONLY_FIRST}forward mode (jvp, jacfwd) is not available: use torch.func.grad or vjp"
)
BATCHED = (
    f"{ONLY_FIRST}vmap over them is not available: leading axes of logits are rows already, and "
    'reduction="none" at example level gives a value for each'
)


@dataclass(frozen=True, slots=True)
class Rows:
    """Logits as N rows of C classes, and what of them counts.

    Attributes:
        logits: (N, C), float32 (float64 for float64 input).
        gold: Softmax only: (N, 1) index of the gold class, 0 where there is none.
        y: Softmax: (N, 1), 1 where the gold class counts, else 0. Sigmoid: (N, C) targets, 0 where
            the term does not count.
        wanted: Bool, what is neither ignored nor masked: (N, 1) rows for softmax; (N, C) terms for
            sigmoid, where logits of −inf are left out already.
        shape: The leading shape (...) of the logits, which values per row are returned in.
        complete: True if every term of softmax rows is known to count: nothing is ignored or
            masked, every logit is finite. Found out on the CPU only, where it takes no sync.
    """

    logits: Tensor
    gold: Tensor | None
    y: Tensor
    wanted: Tensor
    shape: torch.Size
    complete: bool = False

    @property
    def softmax(self) -> bool:
        """True if the classes of a row exclude each other."""
        return self.gold is not None

    def kept(self) -> Tensor:
        """Returns (N,) bool: the rows that count, those with a term left."""
        return self.terms().any(-1)

    def positives(self) -> Tensor:
        """Returns (N, C) bool: where y >= 0.5."""
        if self.gold is None:
            return self.y >= 0.5
        return torch.zeros_like(self.logits, dtype=torch.bool).scatter(1, self.gold, self.y >= 0.5)

    def terms(self) -> Tensor:
        """Returns (N, C) bool: the terms that count."""
        return self.wanted & ~self.logits.isneginf() if self.softmax else self.wanted


def prepare(
    logits: Tensor,
    target: Tensor,
    *,
    mask: Tensor | None,
    ignore_index: int,
    check_labels: bool | None,
) -> Rows:
    """Checks shapes and labels and brings logits and targets into one form.

    Softmax if `target` is `(...)` integers and C > 1, else sigmoid. A logit of −inf takes its class
    out of its row.
    """
    softmax = check_shapes(logits, target, mask)
    classes = logits.shape[-1]
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    # A view would cost autograd a node.
    x = (logits if logits.dim() == 2 else logits.reshape(-1, classes)).to(dtype)
    labels = plain_integers(target.reshape(-1, 1 if softmax else classes))
    if softmax and mask is None and _is_complete(x, labels, ignore_index):
        y = torch.ones((), dtype=dtype).expand(len(x), 1)
        every = torch.ones((), dtype=torch.bool).expand(len(x), 1)
        return Rows(x, labels.to(torch.int64), y, every, logits.shape[:-1], complete=True)
    wanted = counted(labels, ignore_index)
    if mask is not None:
        wanted = wanted & mask.reshape(-1, 1).to(torch.bool)
    if softmax:
        gold = labels.masked_fill(~wanted, 0).to(torch.int64)
        check_range(gold, classes - 1, check=check_labels)
        y = (wanted & (x.gather(1, gold) != -torch.inf)).to(dtype)
        return Rows(x, gold, y, wanted, logits.shape[:-1])
    wanted = wanted & (x != -torch.inf)
    y = labels.masked_fill(~wanted, 0).to(dtype)
    check_range(y, 1, check=check_labels)
    return Rows(x, None, y, wanted, logits.shape[:-1])


def _is_complete(x: Tensor, labels: Tensor, ignore_index: int) -> bool:
    """True if values can be read, and every row has a label in range and finite logits."""
    if not (can_read(x) and can_read(labels)) or labels.numel() == 0:
        return False
    lowest, highest = (bound.item() for bound in labels.aminmax())
    if lowest < 0 or highest >= x.shape[1] or lowest <= ignore_index <= highest:
        return False
    # A sum is finite only if all its terms are, and takes a fifth of the time of their bounds. If
    # large terms overflow, the rows are taken for incomplete, which is slower but as right.
    return math.isfinite(x.detach().sum().item())


def check_tensor(name: str, value: object) -> None:
    """Raises unless the value is a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"wanted {name} as a tensor, got {type(value).__name__}")


def check_logits(logits: Tensor) -> None:
    """Raises unless logits are a tensor of real floating-point numbers."""
    check_tensor("logits", logits)
    if not logits.is_floating_point():
        raise TypeError(f"wanted floating-point logits, got {logits.dtype}")


def check_shapes(logits: Tensor, target: Tensor, mask: Tensor | None) -> bool:
    """Returns True for softmax, False for sigmoid; raises if the shapes fit neither."""
    check_logits(logits)
    check_tensor("target", target)
    if logits.dim() == 0 or (logits.dim() == 1 and target.shape == logits.shape != (1,)):
        raise ValueError(
            f"wanted logits (..., C) with the classes last, {_sizes(logits, target)}; "
            "for one logit per example, use logits.unsqueeze(-1)"
        )
    shape, classes = logits.shape[:-1], logits.shape[-1]
    if classes == 0:
        raise ValueError(f"wanted at least one class, the last axis, {_sizes(logits, target)}")
    if mask is not None and mask.shape != shape:
        raise ValueError(f"wanted a mask of shape {tuple(shape)}, got {tuple(mask.shape)}")
    if target.shape == logits.shape or (classes == 1 and target.shape == shape):
        known = target.dtype in INTEGERS or target.dtype == torch.bool
        if not (known or target.is_floating_point()):
            raise TypeError(f"wanted integers, floats or bools in target, got {target.dtype}")
        return False
    if target.shape != shape:
        raise ValueError(
            f"wanted target {tuple(shape)} with class indices or {tuple(logits.shape)} with "
            f"0/1 per class, {_sizes(logits, target)}"
        )
    if target.dtype not in INTEGERS:
        raise TypeError(f"wanted integer class indices in target, got {target.dtype}")
    return True


def _sizes(logits: Tensor, target: Tensor) -> str:
    return f"got logits {tuple(logits.shape)} and target {tuple(target.shape)}"


def plain_integers(labels: Tensor) -> Tensor:
    """Returns labels of a dtype that torch and Triton can compare: uint16 and uint32 as int64."""
    return labels.to(torch.int64) if labels.dtype in (torch.uint16, torch.uint32) else labels


def counted(labels: Tensor, ignore_index: int) -> Tensor:
    """Returns bool: which labels are not `ignore_index`.

    Torch compares in the dtype of the labels, in which −100 may be another number (156 in uint8).
    """
    if labels.dtype in INTEGERS:
        range_ = torch.iinfo(labels.dtype)
        if not range_.min <= ignore_index <= range_.max:
            return torch.ones_like(labels, dtype=torch.bool)
    return labels != ignore_index


def can_read(tensor: Tensor) -> bool:
    """True if Python may read values: no wait for a device, no break in a traced graph."""
    return (
        tensor.device.type == "cpu"
        and type(tensor) in (Tensor, Parameter)
        and not torch.compiler.is_compiling()
        and not under_transform()
    )


def under_transform() -> bool:
    """True inside grad, vjp, jvp or vmap of torch.func; torch itself checks it in this way."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active()  # noqa: SLF001 — there is no public way


def check_range(labels: Tensor, highest: int, *, check: bool | None) -> None:
    """Raises on a label out of range; on the GPU and under torch.compile without a host sync."""
    on_host = can_read(labels)
    if check is False or (check is None and not on_host):
        return
    inside = (labels >= 0) & (labels <= highest)
    message = f"wanted labels from 0 to {highest} (or ignore_index)"
    if not on_host:
        torch._assert_async(inside.all(), message)  # noqa: SLF001 — the only check without a sync
    elif not bool(inside.all()):
        wrong = labels[~inside]
        raise ValueError(f"{message}, got {wrong[0].item():g} ({len(wrong)} such labels)")


def check_weight(weight: Tensor | Sequence[float] | None, like: Tensor) -> Tensor | None:
    """Returns the class weights (C,) with the dtype and device of `like` (N, C), or None.

    They are contiguous, as the kernels read them. Values are checked where that does not wait for a
    device: in lists and in tensors on the CPU.
    """
    if weight is None:
        return None
    given = torch.as_tensor(weight)
    if can_read(given):
        check_weight_values(given)
    weight = given.to(dtype=like.dtype, device=like.device).contiguous()
    if weight.shape != like.shape[-1:]:
        wanted, got = tuple(like.shape[-1:]), tuple(weight.shape)
        raise ValueError(f"wanted one weight per class, {wanted}, got {got}")
    return weight


def check_weight_values(weight: Tensor) -> None:
    """Raises unless the weights are finite numbers from 0 up, one of them above 0."""
    if weight.is_complex() or weight.numel() == 0:
        raise TypeError(f"wanted real class weights, got {weight.dtype} {tuple(weight.shape)}")
    lowest, highest = (bound.item() for bound in weight.detach().aminmax())
    if not (lowest >= 0 and highest < torch.inf):
        raise ValueError(f"wanted finite class weights from 0 up, got {weight.tolist()}")
    if highest == 0:
        raise ValueError(f"wanted a class weight above 0, got {weight.tolist()}")


def refuse_gradient(name: str, tensor: Tensor | None) -> None:
    """Raises if `tensor` requires a gradient, which a loss without one would leave None."""
    if getattr(tensor, "requires_grad", False) and torch.is_grad_enabled():
        raise ValueError(f"this loss has no gradient with respect to {name}: pass {name}.detach()")


def check_choice(name: str, value: object) -> None:
    """Raises unless `value` is one of the choices of the option `name`."""
    if value not in CHOICES[name]:
        raise ValueError(f"wanted {name} to be one of {list(CHOICES[name])}, got {value!r}")


def check_at_least(name: str, value: float, lowest: float) -> None:
    """Raises unless `value` is a number from `lowest` up."""
    if not value >= lowest:
        raise ValueError(f"wanted {name} >= {lowest:g}, got {value!r}")


def reduce_rows(
    values: Tensor,
    *,
    counts: Tensor | None,
    shape: torch.Size,
    reduction: Reduction,
) -> Tensor:
    """Reduces the rows' values (N,): as they are, their sum, or that divided by Σ `counts`.

    Without `counts` every row counts as one, and N must not be 0. `sums` gives (2, 1): the sum of
    the values, and that of the counts.
    """
    if reduction == "none":
        return values.reshape(shape)
    if reduction == "mean" and counts is None:
        return values.mean()
    total = values.sum()
    if reduction == "sum":
        return total
    count = total.new_tensor(len(values)) if counts is None else counts.sum()
    if reduction == "sums":
        return torch.stack([total, count.to(total.dtype)]).unsqueeze(1)
    return mean(total, count)


def mean(total: Tensor, count: Tensor) -> Tensor:
    """Returns total / count, and 0 where the count is 0.

    The total need not be 0 there: with label smoothing, a row whose gold class has weight 0 still
    has a value.
    """
    count = count.to(total.dtype)
    return total / count.masked_fill(count == 0, torch.inf)


def sum_classes(values: Tensor) -> Tensor:
    """Returns the sums over the last axis; few classes by column, which is three times as fast."""
    return reduce(torch.add, values.unbind(-1)) if is_short(values) else values.sum(-1)


def column_sums(values: Tensor) -> Tensor:
    """Returns the sums over the rows (C,).

    Many rows on a CPU are summed in 64 blocks first. Otherwise torch gives each thread some of the
    columns, and the threads wait for each other's cache lines here and in the next operator.
    """
    rows = values.shape[0] // 64
    if not _is_shared(values) or rows == 0:
        return values.sum(0)
    blocks = values[: 64 * rows].reshape(64, rows, -1).sum(1).sum(0)
    rest = values[64 * rows :]
    return blocks.add_(rest.sum(0)) if len(rest) else blocks


def pick(values: Tensor, gold: Tensor) -> Tensor:
    """Returns each row's value of its gold class (N, 1).

    On a CPU by `nll_loss`, whose threads have the same rows as in other operators. `gather` has a
    single thread up to 32,768 rows, which waits for the cache lines of the others.
    """
    if not _is_shared(values):
        return values.gather(1, gold)
    # No class has the number that it would ignore: like `gather`, it raises on any other.
    picked = functional.nll_loss(values, gold.squeeze(1), ignore_index=-(2**63), reduction="none")
    return -picked.unsqueeze(1)


def _is_shared(values: Tensor) -> bool:
    """True if several threads of a CPU work on the values: from 32,768 numbers on."""
    several = values.numel() >= 32_768 and values.device.type == "cpu"
    return several and not torch.compiler.is_compiling()


def is_short(values: Tensor) -> bool:
    """True on the CPU if a row is shorter than a vector register: columns are then faster."""
    short = 1 < values.shape[-1] <= 4 and values.device.type == "cpu"
    return short and values.is_floating_point() and not torch.compiler.is_compiling()


def divide(top: Tensor, bottom: Tensor) -> Tensor:
    """Returns top / bottom; where bottom is 0, top must be 0 as well, and so is the result."""
    return top / bottom.masked_fill(bottom == 0, 1)


class HandWritten(torch.autograd.Function):
    """An autograd function that has a backward and no other derivative."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:  # noqa: ARG004
        """Refuses forward mode."""
        raise RuntimeError(FORWARD_MODE)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> NoReturn:  # noqa: ARG004
        """Refuses vmap."""
        raise RuntimeError(BATCHED)


def apply_function(
    function: type[torch.autograd.Function], of_transforms: type[HandWritten], x: Tensor, *rest: Any
) -> Any:
    """Applies `function`, or `of_transforms` inside torch.func.

    Forward mode is refused here: torch.compile does not take a function with a `jvp` of its own.
    """
    if not torch.compiler.is_compiling():
        refuse_forward_mode(x)
    chosen = of_transforms if under_transform() else function
    return chosen.apply(x, *rest)  # type: ignore[no-untyped-call]


def refuse_forward_mode(x: Tensor) -> None:
    """Raises if `x` has a tangent: without a derivative for it, it would be dropped silently."""
    if forward_ad.unpack_dual(x).tangent is not None:  # type: ignore[no-untyped-call]
        raise RuntimeError(FORWARD_MODE)


class _FirstDerivative(HandWritten):
    @staticmethod
    def forward(dx: Tensor, x: Tensor) -> Tensor:  # noqa: ARG004
        return dx.view_as(dx)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> NoReturn:  # noqa: ARG004
        raise RuntimeError(SECOND_DERIVATIVE)


def first_derivative(dx: Tensor, x: Tensor) -> Tensor:
    """Returns dx in such a way that differentiating it raises, instead of silently giving 0."""
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return dx
    result: Tensor = _FirstDerivative.apply(dx, x)  # type: ignore[no-untyped-call]
    return result
