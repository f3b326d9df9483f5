"""Runs encoder layers with fused kernels during a training step; the model itself stays as it is.

The layers of BERT in transformers, which RoBERTa, ELECTRA and many others copy, have three parts:

    output         LayerNorm(dropout(dense(x)) + residual)     twice a layer
    intermediate   gelu(dense(x))
    self           query(x), key(x), value(x), attention

and the encoder around them, which may leave out padding (`softf1.training.packing`).

`FusedLayers` finds these parts (`softf1.training.recognise`: each is tried on a few numbers before
it is trusted), and replaces the `forward` of each for the time of a call. A part that differs keeps
its own: another norm, activation or attention, LoRA, hooks, weights of another dtype, a part in
eval mode. Dropout gets its seeds for each call from torch's generator on the device, so saving and
restoring that generator is enough to repeat it.

Triton compiles a kernel when it is called for the first time. `compile_ahead` compiles all kernels
of a training together in threads, before it starts; they are the same kernels, only sooner.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from softf1.kernels._launch import compiling
from softf1.kernels.attention import (
    Packed,
    attention_tile,
    fits_whole,
    self_attention,
    takes_text,
)
from softf1.kernels.embedding import embedding_gradient
from softf1.kernels.encoder import Dropout, linear_gelu, linear_norm, linear_qkv
from softf1.kernels.row_sums import AddUp, Owed, Sums
from softf1.training.fixed_order import fixed_order
from softf1.training.packing import Places, find_places, pack_texts, unpack_texts
from softf1.training.recognise import (
    attend_heads,
    attends,
    has_hooks,
    is_encoder,
    is_intermediate,
    is_output,
    is_self_attention,
    is_stack,
    lay_out_mask,
    passes,
    uses_sdpa,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    Forward = Callable[..., Any]


NOWHERE = torch.device("meta")
"""The device of tensors without data."""

REHEARSED = 16
"""Texts in the batch that `compile_ahead` uses; a multiple of 16, as are most sizes in a step."""

HARMLESS = ("attention_mask", "cache_position")
"""Options of attention that our forward handles, or that mean nothing without a cache."""


class FusedLayers:
    """Calls a model with the parts of its encoder layers fused.

    Args:
        model: The model that holds the layers.
        run: What to call: the model, or a wrapper that calls it with other weights.
        dtype: The dtype of the linear layers' weights during a call.
        packs: Whether calls may leave out padding.

    Attributes:
        room: The rows into which calls pack their texts, from `count_rows`; 0 does not pack.
        packed: Where the texts are, inside layers whose texts are packed.
    """

    packed: Packed | None = None

    def __init__(
        self, model: nn.Module, run: Forward, dtype: torch.dtype, *, packs: bool = False
    ) -> None:
        self.run, self.dtype, self.room = run, dtype, 0
        self.parts: list[Part] = []
        # Gradient checkpointing runs layers again in the backward pass, when nothing is fused.
        again = any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
        kinds = {} if again else {module: find_kind(module) for module in model.modules()}
        for module, kind in kinds.items():
            # The mask of an encoder is ours only where all attention that reads it is.
            ours = kind is not Encoder or all(kinds[one] is Attention for one in attends(module))
            if kind is not None and ours:
                self.parts.append(kind(self, module))
            if packs and kind is Encoder and ours:
                stack: Any = module.encoder
                self.parts += [Stack(self, stack)] if passes(is_stack, stack) else []
        self.stacked = any(type(part) is Stack for part in self.parts)
        embeddings = (module for module in model.modules() if type(module) is nn.Embedding)
        self.embedded = {one.embedding_dim for one in embeddings if one.weight.requires_grad}
        self._forget()

    @property
    def whole(self) -> bool:
        """Whether all attention of the encoder runs fused in training steps."""
        return any(type(part) is Encoder for part in self.parts)

    def packs(self, tokens: int) -> bool:
        """Whether calls may pack texts of up to so many tokens."""
        attentions = (part for part in self.parts if isinstance(part, Attention))
        return self.stacked and all(part.packs(tokens) for part in attentions)

    def compile_ahead(self, widths: Iterable[int], device: torch.device) -> bool:
        """Compiles the kernels of training steps all at once, instead of each at its first call.

        One part of each size runs forward and backward on tensors without data.

        Args:
            widths: The widths of batches, in ids.
            device: The GPU.

        Returns:
            Whether there is something to compile; threads work on it from now on.
        """
        parts = list({part.sizes: part for part in self.parts if part.trains}.values())
        # Widths with the same tile share kernels; large tiles come first, as they take longest.
        tiles = {attention_tile(width, 1)[0]: width for width in widths}
        with compiling(device) as jobs:
            for _, width in sorted(tiles.items(), reverse=True) if parts else ():
                for both in (True, False):  # the last norm's half precision is never read
                    self._rehearse(parts, width, both=both)
                if self.packs(width):
                    starts = torch.empty(REHEARSED + 1, dtype=torch.int32, device=NOWHERE)
                    self.packed = Packed(starts, width)
                    attentions = [part for part in parts if isinstance(part, Attention)]
                    self._rehearse(attentions, width, both=True)
            for size in self.embedded:
                ids = torch.empty(REHEARSED, dtype=torch.int64, device=NOWHERE)
                embedding_gradient(blank(REHEARSED, size, dtype=torch.float32), ids, 1, None)
        return bool(jobs)

    def _rehearse(self, parts: Sequence[Part], width: int, *, both: bool) -> None:
        vectors = [[blank(*one.shape, dtype=one.dtype) for one in part.vectors] for part in parts]
        sums = Sums(vectors)
        token = AddUp.apply(sums, *chain(*vectors))  # type: ignore[no-untyped-call]
        outputs: list[Tensor] = []
        for number, part in enumerate(parts):
            part.owed = Owed(sums, number, token)
            made = part.rehearse(REHEARSED, width)
            outputs += made if both else made[:1]
        torch.autograd.backward(outputs, [torch.empty_like(one) for one in outputs])
        self._forget()

    def _forget(self) -> None:
        self.last: tuple[Tensor, Tensor] | None = None
        self.mask: tuple[Tensor, Tensor] | None = None
        self.places: Places | None = None
        self.packed = None
        self.seeds: Tensor | None = None
        self.call = 0
        for part in self.parts:
            part.owed = None

    def __call__(self, **inputs: Any) -> Any:
        """Returns the model's output."""
        parts = [part for part in self.parts if "forward" not in vars(part.module)]
        try:
            self._start_sums()
            mask = inputs.get("attention_mask")
            if self.room and isinstance(mask, Tensor) and mask.ndim == 2:
                self.places = find_places(mask, self.room)
            for part in parts:
                part.module.forward = part.forward
            with fixed_order("embedding"):  # faster than torch's gradient, too
                return self.run(**inputs)
        finally:
            for part in parts:
                vars(part.module).pop("forward", None)
            self._forget()

    def _start_sums(self) -> None:
        groups = [part.vectors for part in self.parts]
        trained = [any(vector.requires_grad for vector in group) for group in groups]
        if any(trained):
            sums = Sums(groups)
            token = AddUp.apply(sums, *chain(*groups))  # type: ignore[no-untyped-call]
            for number, (part, train) in enumerate(zip(self.parts, trained, strict=True)):
                # A frozen part has no gradients to sum.
                part.owed = Owed(sums, number, token) if train else None

    def cast(self, x: Tensor) -> Tensor:
        """Casts an input to the dtype of the weights; the last norm's output is there in both."""
        if self.last is not None and self.last[0] is x and x._version == 0:  # noqa: SLF001
            return self.last[1]
        return x.to(self.dtype)

    def draw(self, p: float, device: torch.device) -> Dropout:
        """Makes a dropout with its own seed; all seeds of a call are drawn together."""
        if p == 0.0:
            return Dropout()
        if self.seeds is None or self.call == len(self.seeds):
            self.seeds, self.call = torch.randint(2**63 - 1, (len(self.parts),), device=device), 0
        self.call += 1
        return Dropout(p, self.seeds, self.call - 1)

    def is_changed(self, module: nn.Module) -> bool:
        """Whether a module has hooks, or a forward that is neither that of its class nor ours."""
        own = vars(module).get("forward")
        ours = own is None or any(own == part.forward for part in self.parts)
        return not ours or has_hooks(module)

    def additive(self, mask: Tensor) -> Tensor:
        """Turns a boolean mask into 0 and −inf, once; PyTorch would do that in every layer."""
        if self.mask is None or self.mask[0] is not mask:
            made = torch.zeros(mask.shape, dtype=self.dtype, device=mask.device)
            self.mask = mask, made.masked_fill_(~mask, -torch.inf)
        return self.mask[1]


class Part:
    """A part of an encoder layer, with the fused forward that replaces its own."""

    linear: tuple[str, ...] = ("dense",)
    """Names of its linear layers."""

    owed: Owed | None = None
    """Where the sums over rows for its gradients are made; None makes them in the part itself."""

    def __init__(self, layers: FusedLayers, module: Any) -> None:
        self.layers, self.module = layers, module

    def forward(self, *args: Any, **options: Any) -> Any:
        """Runs the part."""
        raise NotImplementedError

    def find_linear(self) -> list[nn.Linear]:
        """The linear layers."""
        return [getattr(self.module, name) for name in self.linear]

    @property
    def weights(self) -> list[Tensor]:
        """Weights, then biases."""
        linear = self.find_linear()
        return [*(one.weight for one in linear), *(one.bias for one in linear)]

    @property
    def vectors(self) -> list[Tensor]:
        """The parameters whose gradients are sums over rows."""
        return [one.bias for one in self.find_linear()]

    @property
    def p(self) -> float:
        """The dropout probability; in attention, the mode of the dropout module does not matter."""
        dropout: Any = getattr(self.module, "dropout", None)
        drops = isinstance(dropout, nn.Dropout) and (dropout.training or type(self) is Attention)
        return float(dropout.p) if drops else 0.0

    def fits(self, x: Tensor) -> bool:
        """Whether to run fused: in training mode, without hooks, weights of the right dtype."""
        return (
            self.module.training
            and self.p < 1.0
            and x.numel() > 0
            and not any(map(self.layers.is_changed, self.module.children()))
            and all(
                type(one) is nn.Linear and one.weight.dtype == one.bias.dtype == self.layers.dtype
                for one in self.find_linear()
            )
        )

    def plain(self, *args: Any, **options: Any) -> Any:
        """Runs the module's own forward."""
        return type(self.module).forward(self.module, *args, **options)

    @property
    def trains(self) -> bool:
        """Whether training steps run the part fused, and train a vector of it."""
        return any(one.requires_grad for one in self.vectors) and self.trained_p < 1.0

    @property
    def trained_p(self) -> float:
        """The dropout probability in training, whatever the mode is now."""
        return float(getattr(getattr(self.module, "dropout", None), "p", 0.0))

    @property
    def sizes(self) -> Hashable:
        """What the kernels of the part depend on."""
        heads = getattr(self.module, "num_attention_heads", None)
        return type(self), tuple(one.shape for one in self.weights), heads, self.trained_p > 0

    def rehearse(self, texts: int, tokens: int) -> Sequence[Tensor]:
        """Runs the part on tensors without data; returns its outputs."""
        raise NotImplementedError

    def blank_inputs(self, texts: int, tokens: int) -> list[Tensor]:
        """An input, weights and biases without data, of the dtype that they have in a step."""
        shapes: list[tuple[int, ...]] = [(texts, tokens, self.find_linear()[0].in_features)]
        shapes += [tuple(one.shape) for one in self.weights]
        return [blank(*shape, dtype=self.layers.dtype) for shape in shapes]


class OutputPart(Part):
    """LayerNorm(dropout(dense(x)) + residual)."""

    @property
    def vectors(self) -> list[Tensor]:
        """Scale, shift and bias."""
        norm = self.module.LayerNorm
        return [norm.weight, norm.bias, *super().vectors]

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Any:
        """Returns the norm; keeps it in half precision too, for the part that follows."""
        norm, layers = self.module.LayerNorm, self.layers
        shape = (*hidden_states.shape[:-1], *norm.normalized_shape)
        residual = input_tensor.dtype == torch.float32 and input_tensor.shape == shape
        if not (residual and self.fits(hidden_states)):
            return self.plain(hidden_states, input_tensor)
        x, dropout = layers.cast(hidden_states), layers.draw(self.p, hidden_states.device)
        weight, bias = self.weights
        out, half = linear_norm(x, weight, bias, input_tensor, norm, dropout, owed=self.owed)
        layers.last = (out, out if half is None else half)
        return out

    def rehearse(self, texts: int, tokens: int) -> Sequence[Tensor]:
        """The norm in float32, and in half precision."""
        (x, weight, bias), like = self.blank_inputs(texts, tokens), self.module.LayerNorm
        norm = nn.LayerNorm(like.normalized_shape, like.eps, device=NOWHERE)
        residual = blank(texts, tokens, *like.normalized_shape, dtype=torch.float32)
        dropout = self.layers.draw(self.trained_p, NOWHERE)
        made = linear_norm(x, weight, bias, residual, norm, dropout, owed=self.owed)
        return [one for one in made if one is not None]


class Intermediate(Part):
    """gelu(dense(x))."""

    def forward(self, hidden_states: Tensor) -> Any:
        """The activation."""
        if not self.fits(hidden_states):
            return self.plain(hidden_states)
        return linear_gelu(self.layers.cast(hidden_states), *self.weights, owed=self.owed)

    def rehearse(self, texts: int, tokens: int) -> Sequence[Tensor]:
        """The activation."""
        x, weight, bias = self.blank_inputs(texts, tokens)
        return [linear_gelu(x, weight, bias, owed=self.owed)]


class Attention(Part):
    """Query, key and value of one input in one matrix product, and the attention.

    What the kernels do not take is left to PyTorch's attention, such as long texts in float32, with
    a mask that is made once for all layers.
    """

    linear = ("query", "key", "value")

    def forward(self, hidden_states: Tensor, *args: Any, **options: Any) -> Any:
        """Attention in one kernel, or by PyTorch."""
        x, mask = hidden_states, options.get("attention_mask")
        others = [*args, *(options[name] for name in options if name not in HARMLESS)]
        if not (
            uses_sdpa(self.module)
            and self.fits(x)
            and x.ndim == 3
            and (mask is None or (mask.dtype == torch.bool and mask.shape[1:2] == (1,)))
            and all(other is None or other is False for other in others)
        ):
            if self.layers.packed is not None:  # texts would attend to each other
                raise RuntimeError(f"wanted attention without {sorted(options)} in packed texts")
            return self.plain(x, *args, **options)
        heads, size = self.module.num_attention_heads, self.module.attention_head_size
        x, how = self.layers.cast(x), {"heads": heads, "scale": size**-0.5, "allowed": mask}
        packed = self.layers.packed
        if packed is not None or takes_text(x, size, mask):
            how |= {"dropout": self.layers.draw(self.p, x.device), "packed": packed}
            return self_attention(x, *self.weights, **how, owed=self.owed), None
        three = linear_qkv(x, *self.weights, owed=self.owed)
        added = None if mask is None else self.layers.additive(mask)
        return attend_heads(three, heads, added, self.p), None

    def rehearse(self, texts: int, tokens: int) -> Sequence[Tensor]:
        """Attention, or the products of a long text."""
        heads, size = self.module.num_attention_heads, self.module.attention_head_size
        x, *weights = self.blank_inputs(texts, tokens)
        mask = torch.empty((texts, 1, 1, tokens), dtype=torch.bool, device=NOWHERE)
        mask = mask.expand(-1, 1, tokens, -1)
        if not takes_text(x, size, mask):
            return linear_qkv(x, *weights, owed=self.owed)
        how = {"heads": heads, "scale": size**-0.5, "allowed": mask, "packed": self.layers.packed}
        dropout = self.layers.draw(self.trained_p, NOWHERE)
        return [self_attention(x, *weights, **how, dropout=dropout, owed=self.owed)]

    def packs(self, tokens: int) -> bool:
        """Whether one program can hold all scores of a head."""
        weight, size = self.module.query.weight, self.module.attention_head_size
        return fits_whole(tokens, size, self.layers.dtype.itemsize, weight.device)


class Encoder(Part):
    """The whole encoder: only its attention mask, which costs transformers a dozen kernels."""

    linear = ()

    def forward(self, input_ids: Tensor | None = None, *args: Any, **options: Any) -> Any:
        """Runs the encoder with a mask of four dimensions, which transformers takes as it is."""
        mask = options.get("attention_mask")
        if isinstance(mask, Tensor) and mask.ndim == 2 and self.fits(mask):
            options["attention_mask"] = lay_out_mask(mask) if uses_sdpa(self.module) else mask
        return self.plain(input_ids, *args, **options)


class Stack(Part):
    """The layers of an encoder, one after the other: packs the texts that go through."""

    linear = ()

    def forward(self, hidden_states: Tensor, *args: Any, **options: Any) -> Any:
        """Runs the layers; rows of padding get the output of some token."""
        x, layers, places = hidden_states, self.layers, self.layers.places
        if args or places is None or x.shape[:-1] != places.kept.shape or not self.fits(x):
            return self.plain(x, *args, **options)
        layers.packed = Packed(places.starts, x.shape[1])
        try:
            out = self.plain(pack_texts(x, places), **options | {"attention_mask": None})
        finally:
            layers.packed = None
        out.last_hidden_state = unpack_texts(out.last_hidden_state, places)
        return out

    def fits(self, x: Tensor) -> bool:
        """Whether all attention inside runs fused, and nobody looks at what is packed."""
        inside = {*self.module.modules()}
        return not any(map(has_hooks, inside)) and all(
            part.module.forward == part.forward
            and uses_sdpa(part.module)
            and part.packs(x.shape[1])
            and part.fits(x)
            for part in self.layers.parts
            if isinstance(part, Attention) and part.module in inside
        )


def find_kind(module: nn.Module) -> type[Part] | None:
    """Returns which part a module is; None if it is none, or if its forward was replaced."""
    if any("forward" in vars(one) for one in (module, *module.children())):
        return None
    tests = (is_output, is_intermediate, is_self_attention, is_encoder)
    kinds = zip(tests, (OutputPart, Intermediate, Attention, Encoder), strict=True)
    return next((kind for test, kind in kinds if passes(test, module)), None)


def blank(*shape: int, dtype: torch.dtype) -> Tensor:
    """A tensor without data that requires a gradient."""
    return torch.empty(shape, dtype=dtype, device=NOWHERE, requires_grad=True)
