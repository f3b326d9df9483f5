"""Recognises the parts of encoder layers: by their children, and by trying what they compute.

Each test gets a module, tries it on a few numbers, and says whether it is that part. `passes` runs
a test and leaves the module as it was.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from softf1.kernels.encoder import LONGEST_ROW
from softf1.training.packing import find_places, pack_texts, unpack_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def passes(test: Callable[[nn.Module], bool], module: nn.Module) -> bool:
    """Whether a module passes a test; False if the test raises, as in calls that do not fit."""
    modes = [(one, one.training, getattr(one, "p", None)) for one in module.modules()]
    try:
        with torch.no_grad():
            return test(module)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # noqa: BLE001 - the code of any model, which then keeps its own forward
        return False
    finally:
        for one, training, p in modes:
            one.training = training
            if isinstance(one, nn.Dropout):
                one.p = p  # type: ignore[assignment]


def is_output(module: Any) -> bool:
    """Whether a module computes LayerNorm(dropout(dense(x)) + residual), by trying it."""
    kinds = {"dense": nn.Linear, "dropout": nn.Dropout, "LayerNorm": nn.LayerNorm}
    if not (holds(module, kinds) and takes(module, "hidden_states", "input_tensor")):
        return False
    dense, norm = module.dense, module.LayerNorm
    if norm.normalized_shape != (dense.out_features,) or dense.out_features > LONGEST_ROW:
        return False
    x, residual = numbers(2, dense.in_features, dense), numbers(2, dense.out_features, dense)
    module.eval()
    whole = torch.allclose(module(x, residual), norm(dense(x) + residual), atol=1e-5)
    module.train()
    module.dropout.p = 1.0  # drops all of the product: the residual is left
    return whole and torch.allclose(module(x, residual), norm(residual), atol=1e-5)


def is_intermediate(module: Any) -> bool:
    """Whether a module computes gelu(dense(x)), by trying it."""
    act = getattr(module, "intermediate_act_fn", None)
    kinds: dict[str, type[nn.Module]] = {"dense": nn.Linear}
    if isinstance(act, nn.Module):
        kinds["intermediate_act_fn"] = type(act)
    if not (callable(act) and holds(module, kinds) and takes(module, "hidden_states")):
        return False
    x = numbers(2, module.dense.in_features, module.dense)
    some = torch.linspace(-6, 6, 49, device=x.device) ** 3  # large ones show a clipped gelu
    module.train()
    exact = torch.allclose(act(some), functional.gelu(some), rtol=1e-5, atol=1e-6)
    return exact and torch.allclose(module(x), act(module.dense(x)), atol=1e-5)


def is_self_attention(module: Any) -> bool:
    """Whether attention is softmax(query·keyᵀ / √size)·value of every head, by trying it."""
    kinds = dict.fromkeys(("query", "key", "value"), nn.Linear) | {"dropout": nn.Dropout}
    right = holds(module, kinds) and takes(module, "hidden_states", "attention_mask", more=True)
    if not (right and uses_sdpa(module)):
        return False
    three, heads = (module.query, module.key, module.value), module.num_attention_heads
    if {one.out_features for one in three} != {heads * module.attention_head_size}:
        return False
    tokens = 128  # enough to notice windows; numbers so large that capped scores show
    x = 10 * numbers(tokens, module.query.in_features, module.query)
    mask = torch.arange(tokens**2, device=x.device).view(1, 1, tokens, tokens) % 5 > 1
    module.eval()
    for given in (None, mask):
        expected = attend_heads([one(x) for one in three], heads, given)
        got, probabilities = module(x, attention_mask=given)
        if probabilities is not None or not torch.allclose(got, expected, rtol=1e-4, atol=1e-4):
            return False
    module.train()
    module.dropout.p = 1.0  # drops all probabilities
    with sdpa_kernel(SDPBackend.MATH):
        return not module(x, attention_mask=None)[0].count_nonzero()


def attend_heads(three: Sequence[Tensor], heads: int, mask: Tensor | None, p: float = 0) -> Tensor:
    """PyTorch's attention of query, key and value, each (texts, tokens, width of all heads)."""
    query, key, value = (one.view(*one.shape[:2], heads, -1).transpose(1, 2) for one in three)
    attend = functional.scaled_dot_product_attention
    return attend(query, key, value, attn_mask=mask, dropout_p=p).transpose(1, 2).flatten(2)


def is_encoder(module: Any) -> bool:
    """Whether a model of transformers uses its mask for attention only, by trying it.

    `create_bidirectional_mask` leaves a mask of four dimensions as it is.
    """
    if (
        {"embeddings", "encoder"} - {name for name, _ in module.named_children()}
        or not takes(module, "input_ids", "attention_mask", more=True)
        or not hasattr(sys.modules[type(module).__module__], "create_bidirectional_mask")
        or getattr(module.config, "is_decoder", False)
        or not uses_sdpa(module)
    ):
        return False
    attentions = attends(module)
    if not attentions:
        return False
    ids = torch.tensor([[1, 2, 1], [2, 1, 0]], device=attentions[0].query.weight.device)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]], device=ids.device)
    module.eval()
    plain, laid_out = (module(ids, attention_mask=m).to_tuple() for m in (mask, lay_out_mask(mask)))
    return all(
        torch.allclose(one, other, rtol=1e-4, atol=1e-5)
        for one, other in zip(plain, laid_out, strict=True)
        if isinstance(one, Tensor)
    )


def is_stack(module: Any) -> bool:
    """Whether texts that are packed go through layers as they do one by one, by trying it."""
    if not takes(module, "hidden_states", "attention_mask", more=True):
        return False
    query = attends(module)[0].query
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], device=query.weight.device)
    places = find_places(mask, 6)
    x = numbers(8, query.in_features, query).view(2, 4, -1)
    text = torch.arange(2, device=mask.device).repeat_interleave(mask.sum(1))
    together = (text[:, None] == text)[None, None]
    module.eval()
    one = module(x, attention_mask=lay_out_mask(mask)).last_hidden_state
    packed = module(pack_texts(x, places), attention_mask=together).last_hidden_state
    found = unpack_texts(packed, places)[mask > 0]
    return torch.allclose(found, one[mask > 0], rtol=1e-3, atol=1e-3)


def attends(module: nn.Module) -> list[Any]:
    """The attention of the layers inside."""
    return [one for one in module.modules() if hasattr(one, "query")]


def lay_out_mask(mask: Tensor) -> Tensor:
    """Makes (texts, 1, tokens, tokens) of a padding mask (texts, tokens), without copying it.

    >>> lay_out_mask(torch.tensor([[1, 0]])).tolist()
    [[[[True, False], [True, False]]]]
    """
    return mask.bool()[:, None, None, :].expand(-1, 1, mask.shape[1], -1)


def uses_sdpa(module: Any) -> bool:
    """Whether transformers runs attention by PyTorch's `scaled_dot_product_attention`."""
    config = getattr(module, "config", None)
    return getattr(config, "_attn_implementation", None) == "sdpa"


def holds(module: nn.Module, kinds: Mapping[str, type[nn.Module]]) -> bool:
    """Whether a module has these children, with biases, in float32, and no other parameters."""
    layers = [one for one in module.children() if isinstance(one, nn.Linear | nn.LayerNorm)]
    theirs = {one.weight for one in layers} | {one.bias for one in layers}
    return (
        {name: type(child) for name, child in module.named_children()} == kinds
        and theirs == {*module.parameters(), *module.buffers()}
        and all(one.dtype == torch.float32 for one in theirs)
    )


def takes(module: nn.Module, *names: str, more: bool = False) -> bool:
    """Whether a forward takes these arguments only; with `more`, also others that are optional."""
    given = list(inspect.signature(type(module).forward).parameters.values())[1:]
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    others = given[len(names) :]
    spare = more and all(p.kind in several or p.default is not p.empty for p in others)
    return [p.name for p in given[: len(names)]] == list(names) and (spare or not others)


def numbers(rows: int, width: int, like: nn.Linear) -> Tensor:
    """Makes (1, rows, width) numbers to try a module on, without a random generator."""
    where = like.weight.device
    return torch.arange(float(rows * width), device=where).mul_(0.7).sin_().view(1, rows, width)


def has_hooks(module: nn.Module) -> bool:
    """Whether a module has hooks."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(module, kind) for kind in kinds)
