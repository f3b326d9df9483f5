"""Encoder layers run by fused kernels while a step runs; the model itself stays as it is.

What transformers calls BERT's layers, and RoBERTa's, ELECTRA's and many more copy, is three parts:

    output         LayerNorm(dropout(dense(x)) + residual)     twice a layer
    intermediate   gelu(dense(x))
    self           query(x), key(x), value(x), attention

`FusedLayers` finds them by what they hold and by what they compute (each is tried on a few numbers
before it is trusted), and puts another `forward` into each for the time of a call. A part that is
anything else keeps its own: another norm or activation, LoRA, hooks, weights of another dtype,
cross-attention, a part in eval mode. Dropout draws its numbers from seeds that torch's generator on
the device gives for each call, so that whatever stores and restores that generator covers them.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from softf1.kernels.encoder import (
    LONGEST_ROW,
    LONGEST_TEXT,
    Dropout,
    linear_gelu,
    linear_norm,
    linear_qkv,
    self_attention,
)
from softf1.kernels.row_sums import AddUp, Owed, Sums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Forward = Callable[..., Any]


HARMLESS = ("attention_mask", "cache_position")
"""Options of attention that it knows, or that mean nothing without a cache."""


class FusedLayers:
    """Calls a model with the parts of its encoder layers fused.

    Args:
        model: The model that holds the layers.
        run: What to call: the model, or what calls it with other weights.
        dtype: Of the linear layers' weights during a call.
    """

    def __init__(self, model: nn.Module, run: Forward, dtype: torch.dtype) -> None:
        self.run, self.dtype = run, dtype
        self.parts: list[Part] = []
        for module in model.modules():
            kind = find_kind(module)
            if kind is not None:
                self.parts.append(kind(self, module, len(self.parts)))
        self._forget()

    def _forget(self) -> None:
        self.last: tuple[Tensor, Tensor] | None = None
        self.mask: tuple[Tensor, Tensor] | None = None
        self.seeds: Tensor | None = None
        self.call = 0
        self.owed: list[Owed] = []

    def __call__(self, **inputs: Any) -> Any:
        """Returns the model's output."""
        forwards = [pair for part in self.parts for pair in part.forwards]
        self.owed = self._start_sums()
        try:
            for module, forward in forwards:
                module.forward = forward
            return self.run(**inputs)
        finally:
            for module, _ in forwards:
                vars(module).pop("forward", None)
            self._forget()

    def _start_sums(self) -> list[Owed]:
        groups = [part.vectors for part in self.parts]
        if not groups:
            return []
        sums = Sums(groups)
        token = AddUp.apply(sums, *chain(*groups))  # type: ignore[no-untyped-call]
        return [Owed(sums, number, token) for number in range(len(groups))]

    def cast(self, x: Tensor) -> Tensor:
        """The input in the dtype of the weights; the last norm has written its output in both."""
        if self.last is not None and self.last[0] is x:
            return self.last[1]
        return x.to(self.dtype)

    def draw(self, p: float, device: torch.device) -> Dropout:
        """Dropout with a seed of its own; all seeds of a call are drawn together."""
        if p == 0.0:
            return Dropout()
        if self.seeds is None or self.call == len(self.seeds):
            self.seeds, self.call = torch.randint(2**63 - 1, (len(self.parts),), device=device), 0
        self.call += 1
        return Dropout(float(p), self.seeds, self.call - 1)

    def additive(self, mask: Tensor) -> Tensor:
        """A boolean mask as what is added to the scores; PyTorch would make it in every layer."""
        if self.mask is None or self.mask[0] is not mask:
            made = torch.zeros(mask.shape, dtype=self.dtype, device=mask.device)
            self.mask = mask, made.masked_fill_(~mask, -torch.inf)
        return self.mask[1]


class Part:
    """A part of an encoder layer, and what runs in its place."""

    linear: tuple[str, ...] = ("dense",)
    """Names of its linear layers."""

    def __init__(self, layers: FusedLayers, module: Any, number: int) -> None:
        self.layers, self.module, self.number = layers, module, number

    @property
    def forwards(self) -> list[tuple[nn.Module, Forward]]:
        """Modules, and what to call instead of their forward."""
        return [(self.module, self.forward)]

    @property
    def vectors(self) -> list[Tensor]:
        """The parameters whose gradients are sums over rows."""
        return [linear.bias for linear in self.find_linear()]

    def forward(self, *args: Any, **options: Any) -> Any:
        """Runs the part."""
        raise NotImplementedError

    def find_linear(self) -> list[nn.Linear]:
        """The linear layers."""
        return [getattr(self.module, name) for name in self.linear]

    def fits(self, x: Tensor) -> bool:
        """Whether the part trains, with weights of the right dtype."""
        right = all(
            one.weight.dtype == one.bias.dtype == self.layers.dtype for one in self.find_linear()
        )
        dropout = getattr(self.module, "dropout", None)
        trains = self.module.training and (dropout is None or dropout.p < 1.0)
        return right and trains and x.numel() > 0

    def plain(self, *args: Any, **options: Any) -> Any:
        """Runs the module's own forward."""
        return type(self.module).forward(self.module, *args, **options)

    @property
    def owed(self) -> Owed:
        """Where the sums over rows are made."""
        return self.layers.owed[self.number]


class Output(Part):
    """LayerNorm(dropout(dense(x)) + residual)."""

    @property
    def vectors(self) -> list[Tensor]:
        """Scale, shift and bias."""
        norm = self.module.LayerNorm
        return [norm.weight, norm.bias, *super().vectors]

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Any:
        """The norm, in half precision too for the part that follows."""
        module, layers = self.module, self.layers
        if not (
            self.fits(hidden_states)
            and not has_hooks(module)
            and input_tensor.dtype == torch.float32
            and input_tensor.shape[:-1] == hidden_states.shape[:-1]
        ):
            return self.plain(hidden_states, input_tensor)
        out, half = linear_norm(
            layers.cast(hidden_states),
            module.dense.weight,
            module.dense.bias,
            input_tensor,
            module.LayerNorm,
            layers.draw(module.dropout.p * module.dropout.training, hidden_states.device),
            owed=self.owed,
        )
        layers.last = (out, out if half is None else half)
        return out


class Intermediate(Part):
    """gelu(dense(x))."""

    def forward(self, hidden_states: Tensor) -> Any:
        """The activation."""
        dense = self.module.dense
        if has_hooks(self.module) or not self.fits(hidden_states):
            return self.plain(hidden_states)
        return linear_gelu(
            self.layers.cast(hidden_states), dense.weight, dense.bias, owed=self.owed
        )


class Attention(Part):
    """Query, key and value of one input in one product; for short texts the attention too.

    Where PyTorch does the attention, its mask is made once for all layers.
    """

    linear = ("query", "key", "value")

    def __init__(self, layers: FusedLayers, module: Any, number: int) -> None:
        super().__init__(layers, module, number)
        self.known = is_plain_attention(module)
        self.made: dict[int, Tensor] = {}
        self.input: Tensor | None = None

    @property
    def forwards(self) -> list[tuple[nn.Module, Forward]]:
        """The attention, and query, key and value."""
        three = [(one, partial(self.take, n)) for n, one in enumerate(self.find_linear())]
        return [(self.module, self.forward), *three]

    def forward(self, hidden_states: Tensor, *args: Any, **options: Any) -> Any:
        """Attention in one kernel, or by PyTorch."""
        x, mask, config = (
            hidden_states,
            options.get("attention_mask"),
            getattr(self.module, "config", None),
        )
        # Not "eager", which returns the probabilities.
        sdpa = getattr(config, "_attn_implementation", None) == "sdpa"
        if sdpa and self.fits(x) and (mask is None or is_boolean(mask)):
            others = [*args, *(options[name] for name in options if name not in HARMLESS)]
            plain = all(other is None or other is False for other in others)
            short = x.ndim == 3 and x.shape[1] <= LONGEST_TEXT
            if self.known and plain and short and not has_hooks(self.module):
                return self._attend(x, mask), None
            if mask is not None:
                options["attention_mask"] = self.layers.additive(mask)
        try:
            return self.plain(x, *args, **options)
        finally:
            self.made, self.input = {}, None

    def _attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        module, three = self.module, self.find_linear()
        return self_attention(
            self.layers.cast(x),
            *(one.weight for one in three),
            *(one.bias for one in three),
            heads=module.num_attention_heads,
            scale=module.attention_head_size**-0.5,
            allowed=mask,
            dropout=self.layers.draw(module.dropout.p, x.device),
            owed=self.owed,
        )

    def take(self, number: int, input: Tensor) -> Tensor:  # noqa: A002 - as nn.Linear calls it
        """Query, key or value of an input; the first who is asked makes all three."""
        three = self.find_linear()
        if not self.fits(input):
            return nn.Linear.forward(three[number], input)
        if self.input is not input or number not in self.made:
            layers = (*(one.weight for one in three), *(one.bias for one in three))
            made = linear_qkv(self.layers.cast(input), *layers, owed=self.owed)
            self.made, self.input = dict(enumerate(made)), input
        return self.made.pop(number)


class Encoder(Part):
    """All layers: the mask of padding as it is, which transformers makes in a dozen kernels."""

    linear = ()

    def forward(self, input_ids: Tensor | None = None, *args: Any, **options: Any) -> Any:
        """The encoder, with the mask in the form in which transformers leaves it alone."""
        mask = options.get("attention_mask")
        if isinstance(mask, Tensor) and mask.ndim == 2 and self.fits(mask):
            options["attention_mask"] = lay_out_mask(mask)
        return self.plain(input_ids, *args, **options)


def find_kind(module: nn.Module) -> type[Part] | None:
    """Which part a module is; None if it is no part, or if somebody has replaced its forward."""
    if any("forward" in vars(one) for one in (module, *module.children())):
        return None
    kinds: dict[type[Part], Callable[[nn.Module], bool]] = {
        Output: is_output,
        Intermediate: is_intermediate,
        Attention: is_self_attention,
        Encoder: is_encoder,
    }
    return next((kind for kind, test in kinds.items() if test(module)), None)


def is_output(module: Any) -> bool:
    """Whether a module computes LayerNorm(dropout(dense(x)) + residual), by trying it."""
    kinds = {"dense": nn.Linear, "dropout": nn.Dropout, "LayerNorm": nn.LayerNorm}
    if {name: type(child) for name, child in module.named_children()} != kinds:
        return False
    dense, norm = module.dense, module.LayerNorm
    if (
        arguments(module) != ["hidden_states", "input_tensor"]
        or norm.normalized_shape != (dense.out_features,)
        or any(p is None or p.dtype != torch.float32 for p in (dense.bias, norm.weight, norm.bias))
        or dense.out_features > LONGEST_ROW
    ):
        return False
    x, residual = numbers(dense.in_features, dense), numbers(dense.out_features, dense)
    with trial(module):
        module.eval()
        whole = torch.allclose(module(x, residual), norm(dense(x) + residual), atol=1e-5)
        module.train()
        module.dropout.p = 1.0  # drops all of the product: the residual is left
        return whole and torch.allclose(module(x, residual), norm(residual), atol=1e-5)


def is_intermediate(module: Any) -> bool:
    """Whether a module computes gelu(dense(x)), by trying it."""
    children, act = dict(module.named_children()), getattr(module, "intermediate_act_fn", None)
    dense = children.pop("dense", None)
    children.pop("intermediate_act_fn", None)
    if (
        children
        or not callable(act)
        or type(dense) is not nn.Linear
        or dense.bias is None
        or dense.bias.dtype != torch.float32
        or arguments(module) != ["hidden_states"]
    ):
        return False
    some = torch.linspace(-6, 6, 49, device=dense.weight.device)
    x = numbers(dense.in_features, dense)
    with trial(module):
        module.train()
        exact = torch.allclose(act(some), nn.functional.gelu(some), rtol=1e-5, atol=1e-6)
        return exact and torch.allclose(module(x), act(dense(x)), atol=1e-5)


def is_self_attention(module: Any) -> bool:
    """Whether a module has query, key and value of one size and takes one input."""
    three = [getattr(module, name, None) for name in ("query", "key", "value")]
    if not all(type(one) is nn.Linear and one.bias is not None for one in three):
        return False
    sizes = {one.weight.shape for one in three}  # type: ignore[union-attr]
    return len(sizes) == 1 and "encoder_hidden_states" not in arguments(module)


def is_plain_attention(module: Any) -> bool:
    """Whether attention is softmax(query·keyᵀ / √size)·value of every head, by trying it."""
    kinds = dict.fromkeys(("query", "key", "value"), nn.Linear) | {"dropout": nn.Dropout}
    sizes = getattr(module, "num_attention_heads", 0), getattr(module, "attention_head_size", 0)
    if (
        {name: type(child) for name, child in module.named_children()} != kinds
        or arguments(module)[:2] != ["hidden_states", "attention_mask"]
        or wanted(module) - {"hidden_states", "attention_mask"}
        or sizes[0] * sizes[1] != module.query.out_features
        or module.query.weight.dtype != torch.float32
        or getattr(module, "is_causal", False)
    ):
        return False
    x = numbers(module.query.in_features, module.query)
    mask = torch.tensor([[True, True], [False, True]], device=x.device)[None, None]
    with trial(module):
        module.eval()
        three = (module.query(x), module.key(x), module.value(x))
        query, key, value = (one.view(1, 2, *sizes).transpose(1, 2) for one in three)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        got = module(x, attention_mask=mask)
        right = isinstance(got, tuple) and len(got) == 2 and got[1] is None  # no probabilities
        return right and torch.allclose(got[0], mixed.transpose(1, 2).reshape(1, 2, -1), atol=1e-5)


def is_encoder(module: Any) -> bool:
    """Whether a model of transformers makes nothing of its mask but that of attention.

    `create_bidirectional_mask` leaves a mask of four dimensions as it is.
    """
    if (
        {"embeddings", "encoder"} - {name for name, _ in module.named_children()}
        or arguments(module)[:2] != ["input_ids", "attention_mask"]
        or wanted(module)
        or not hasattr(sys.modules[type(module).__module__], "create_bidirectional_mask")
        or getattr(module.config, "is_decoder", False)
        or getattr(module.config, "_attn_implementation", None) != "sdpa"
    ):
        return False
    attentions = [one for one in module.modules() if is_self_attention(one)]
    if not attentions or not all(map(is_plain_attention, attentions)):
        return False
    ids = torch.tensor([[1, 2, 1], [2, 1, 0]], device=attentions[0].query.weight.device)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]], device=ids.device)
    with trial(module):
        module.eval()
        plain, laid_out = (module(ids, attention_mask=m)[0] for m in (mask, lay_out_mask(mask)))
        return torch.allclose(plain, laid_out, rtol=1e-4, atol=1e-5)


def lay_out_mask(mask: Tensor) -> Tensor:
    """A mask of padding (texts, tokens) as which token may look at which, without a copy for each.

    >>> lay_out_mask(torch.tensor([[1, 0]])).tolist()
    [[[[True, False], [True, False]]]]
    """
    return mask.bool()[:, None, None, :].expand(-1, 1, mask.shape[1], -1)


def is_boolean(mask: Any) -> bool:
    """Whether a mask says which token may look at which, the same for all heads."""
    return isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape[1:2] == (1,)


def arguments(module: nn.Module) -> list[str]:
    """The names of a forward's arguments."""
    return list(inspect.signature(type(module).forward).parameters)[1:]


def wanted(module: nn.Module) -> set[str]:
    """The arguments that a forward cannot do without."""
    given = list(inspect.signature(type(module).forward).parameters.values())[1:]
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {p.name for p in given if p.default is p.empty and p.kind not in several}


def numbers(width: int, like: nn.Linear) -> Tensor:
    """Two rows of numbers to try a module on; no random generator is asked."""
    where = like.weight.device
    return torch.arange(2.0 * width, device=where).mul_(0.7).sin_().view(1, 2, width)


@contextmanager
def trial(module: nn.Module) -> Iterator[None]:
    """Puts modes and dropout back after a module was tried; nothing is recorded for gradients."""
    modes = [(one, one.training, getattr(one, "p", None)) for one in module.modules()]
    try:
        with torch.no_grad():
            yield
    finally:
        for one, training, p in modes:
            one.training = training
            if isinstance(one, nn.Dropout):
                one.p = p  # type: ignore[assignment]


def has_hooks(module: nn.Module) -> bool:
    """Whether something is called when a module calls its children."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(child, kind) for child in module.children() for kind in kinds)
