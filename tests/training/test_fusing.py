"""Fused encoder layers against the model's own: on a GPU where there is one, else interpreted."""

import copy
import importlib.util
import os
import pickle
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from transformers.models.bert.modeling_bert import BertSelfAttention

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

from softf1.kernels import _launch, attention, embedding, encoder, row_sums  # noqa: E402
from softf1.kernels._encoder import NUMBERS  # noqa: E402
from softf1.models.lora import add_lora  # noqa: E402
from softf1.recipe import with_values  # noqa: E402
from softf1.training import fusing, packing  # noqa: E402
from softf1.training.datasets import load_datasets  # noqa: E402
from softf1.training.fusing import FusedLayers  # noqa: E402
from softf1.training.graphs import CastOnce  # noqa: E402
from softf1.training.recognise import is_encoder, is_intermediate, is_output  # noqa: E402
from softf1.training.step import Stepper  # noqa: E402
from tests.training.test_graphs import compare_weights, make_stepper, make_steps, take  # noqa: E402
from tests.training.test_run import case  # noqa: E402

pytestmark = pytest.mark.needs_tool
KINDS = ("Bert", "Roberta", "Electra")
SIZES = {
    "vocab_size": 40,
    "hidden_size": 24,
    "embedding_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}
HALF = torch.bfloat16 if CUDA else torch.float16  # the interpreter takes bfloat16 for integers
CLOSE = 2e-4 if CUDA else 2e-5  # attention of float32 is not the same product everywhere
NONE = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def make_model(kind="Bert", **options):
    """A model for tags, whose weights tell mistakes: no bias is 0 and no scale is 1."""
    config = getattr(transformers, f"{kind}Config")(**SIZES | options)
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForTokenClassification")(config).to(DEVICE).train()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def make_inputs():
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, 40, (2, 7), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    inputs = {"input_ids": ids * mask, "attention_mask": mask}
    return {name: value.to(DEVICE) for name, value in inputs.items()}


def differentiate(model, run):
    """Logits of the tokens and the gradients of all parameters."""
    model.zero_grad()
    inputs = make_inputs()
    logits = run(**inputs).logits.float()[inputs["attention_mask"] > 0]
    logits.square().sum().backward()
    return logits.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def compare(model, run, *, tolerance, plain=None):
    """The run gives what the model gives."""
    wanted, wanted_gradients = differentiate(model, plain or model)
    found, gradients = differentiate(model, run)
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    assert gradients.keys() == wanted_gradients.keys()
    compare_gradients(gradients, wanted_gradients, tolerance)


def compare_gradients(found, wanted, tolerance):
    """Close to their largest entry; a key's bias, which changes nothing, to that of the query."""
    for name, gradient in found.items():
        scale = wanted[name.replace("key.bias", "query.bias")].abs().max().item()
        torch.testing.assert_close(
            gradient,
            wanted[name],
            rtol=0,
            atol=tolerance * max(1.0, scale),
            msg=lambda text, name=name: f"{name}: {text}",
        )


def count_calls(monkeypatch):
    """How often each part is called."""
    calls = dict.fromkeys(("linear_norm", "linear_gelu", "linear_qkv", "self_attention"), 0)

    def counted(name, function):
        def call(*args, **options):
            calls[name] += 1
            return function(*args, **options)

        return call

    for name in calls:
        monkeypatch.setattr(fusing, name, counted(name, getattr(fusing, name)))
    return calls


def listed(norm, gelu, qkv, attention):
    """The calls in words."""
    names = ("linear_norm", "linear_gelu", "linear_qkv", "self_attention")
    return dict(zip(names, (norm, gelu, qkv, attention), strict=True))


@pytest.mark.parametrize("longest", [128, 6], ids=["short", "long"])
@pytest.mark.parametrize("kind", KINDS)
def test_fused_layers_give_what_the_models_own_give(kind, longest, monkeypatch):
    monkeypatch.setattr(attention, "LONGEST_WHOLE", longest)  # texts have 7 tokens
    model = make_model(kind, **NONE)
    calls = count_calls(monkeypatch)
    compare(model, FusedLayers(model, model, torch.float32), tolerance=CLOSE)
    assert calls == (listed(4, 2, 0, 2) if longest == 128 else listed(4, 2, 2, 0))


@pytest.mark.parametrize("longest", [128, 6], ids=["short", "long"])
def test_fused_layers_in_half_precision(longest, monkeypatch):
    half = torch.bfloat16 if CUDA else torch.float16  # the interpreter's products
    monkeypatch.setattr(attention, "LONGEST_TEXT", longest)
    model = make_model(**NONE)
    calls = count_calls(monkeypatch)
    fused = FusedLayers(model, CastOnce(model, half), half)

    def autocast(run):
        def call(**inputs):
            with torch.autocast(DEVICE, half):
                return run(**inputs)

        return call

    compare(model, autocast(fused), plain=autocast(model), tolerance=6e-2)
    assert calls == listed(4, 2, 0, 2)


@pytest.fixture
def packed(monkeypatch):
    """The texts of each call of attention: None, or where they are."""
    seen, own = [], fusing.self_attention

    def attend(*args, packed=None, **options):
        seen.append(packed)
        return own(*args, **options, packed=packed)

    monkeypatch.setattr(fusing, "self_attention", attend)
    monkeypatch.setattr(packing, "ROOM", 4)
    return seen


def make_packing(model, dtype=torch.float32):
    """11 tokens of two texts, in 12 rows."""
    run = model if dtype == torch.float32 else CastOnce(model, dtype)
    layers = FusedLayers(model, run, dtype, packs=True)
    layers.room = packing.count_rows(11, 14)
    return layers


@pytest.mark.parametrize("kind", KINDS)
def test_texts_without_padding_give_what_the_models_own_give(kind, packed):
    model = make_model(kind, **NONE)
    layers = make_packing(model)
    assert layers.packs(7)
    compare(model, layers, tolerance=CLOSE)
    assert [one.starts.tolist() for one in packed] == 2 * [[0, 7, 11, 12]]


def test_texts_without_padding_in_half_precision(packed):
    model = make_model(**NONE)
    layers = make_packing(model, HALF)

    def run(**inputs):
        with torch.autocast(DEVICE, HALF):
            return layers(**inputs)

    compare(model, run, tolerance=0.06 if CUDA else 0.02)
    assert len(packed) == 2
    assert None not in packed


def look_at_layers(model, layers):  # noqa: ARG001 - as the others
    model.bert.encoder.layer[0].register_forward_hook(lambda *_: None)


def make_no_room(model, layers):  # noqa: ARG001
    layers.room = 0


def replace_attention(model, layers):  # noqa: ARG001
    one = model.bert.encoder.layer[1].attention.self
    one.forward = one.forward


def rest_a_layer(model, layers):  # noqa: ARG001
    model.bert.encoder.layer[1].attention.self.eval()


@pytest.mark.parametrize("change", [look_at_layers, make_no_room, replace_attention, rest_a_layer])
def test_texts_keep_their_padding_where_layers_are_not_all_ours(change, packed):
    model = make_model(**NONE)
    layers = make_packing(model)
    change(model, layers)
    compare(model, layers, tolerance=CLOSE)
    assert packed
    assert set(packed) == {None}


def test_long_texts_keep_their_padding(packed, monkeypatch):
    monkeypatch.setattr(attention, "LONGEST_WHOLE", 6)  # texts have 7 tokens
    model = make_model(**NONE)
    compare(model, make_packing(model), tolerance=CLOSE)
    assert not packed


@pytest.mark.parametrize(
    "options", [{"is_decoder": True}, {"hidden_act": "gelu_new"}, {"attn_implementation": "eager"}]
)
def test_encoders_that_pack_texts_have_fused_attention_in_both_directions(options):
    model = make_model(**options)
    packs = FusedLayers(model, model, torch.float32, packs=True).packs(7)
    assert packs == ("hidden_act" in options)  # its other parts see one token at a time


def test_layers_that_mix_the_tokens_of_a_row_do_not_pack_texts():
    model = make_model()
    layer = model.bert.encoder.layer[0].output

    class Mixes(type(layer)):
        def forward(self, hidden_states, input_tensor):
            return super().forward(hidden_states, input_tensor).roll(1, 1)

    layer.__class__ = Mixes
    assert not FusedLayers(model, model, torch.float32, packs=True).packs(7)


def test_packed_texts_never_attend_to_each_other():
    """Whatever a layer asks its attention for."""
    model = make_model(**NONE)
    layers = make_packing(model)
    inputs = make_inputs()
    with pytest.raises(RuntimeError, match="in packed texts"):
        layers(**inputs, softcap=30.0)
    assert layers.packed is None
    assert layers(**inputs).logits.isfinite().all()


def test_weights_of_query_key_and_value_are_not_copied(monkeypatch):
    monkeypatch.setattr(attention, "LONGEST_TEXT", 0)
    model = make_model(**NONE)
    copies = []
    monkeypatch.setattr("softf1.kernels.encoder.torch.cat", copies.append)
    half = torch.bfloat16 if CUDA else torch.float16  # the interpreter's products
    fused = FusedLayers(model, CastOnce(model, half), half)
    with torch.autocast(DEVICE, half):
        fused(**make_inputs())
    assert copies == []


def test_a_mask_is_made_once(monkeypatch):
    monkeypatch.setattr(attention, "LONGEST_WHOLE", 0)
    model = make_model(**NONE)
    fused, masks = FusedLayers(model, model, torch.float32), []
    attend = nn.functional.scaled_dot_product_attention

    def watch(*args, attn_mask=None, **options):
        masks.append(attn_mask)
        return attend(*args, attn_mask=attn_mask, **options)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", watch)
    fused(**make_inputs())
    first, second = masks
    assert first is second
    assert first.dtype == torch.float32
    assert first[1, 0, 0].tolist() == [0.0] * 4 + [-torch.inf] * 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packs", [False, True])
def test_a_mask_of_padding_stays_as_it_is(kind, packs, monkeypatch):
    """Made in one operation instead of a dozen; attention sees the same."""
    model = make_model(kind, **NONE)
    fused, seen = FusedLayers(model, model, torch.float32, packs=packs), []
    attend = fusing.self_attention

    def watch(*args, **options):
        seen.append(options["allowed"])
        return attend(*args, **options)

    monkeypatch.setattr(fusing, "self_attention", watch)
    inputs = make_inputs()
    fused(**inputs)
    for allowed in seen:
        assert allowed.stride()[1:3] == (allowed.stride(1), 0)
        assert torch.equal(allowed[:, 0, 3], inputs["attention_mask"].bool())
    assert len(seen) == 2


def test_a_decoder_makes_its_own_mask():
    decoder = make_model(is_decoder=True)
    assert is_encoder(make_model().bert)
    assert not is_encoder(decoder.bert)


def test_nothing_is_left_behind():
    model = make_model()
    before = {name: {*vars(module)} for name, module in model.named_modules()}
    fused = FusedLayers(model, model, torch.float32)
    assert [module.training for module in model.modules()] == [True] * len([*model.modules()])
    assert model.bert.encoder.layer[0].output.dropout.p == 0.1
    fused(**make_inputs())
    with pytest.raises(ValueError, match="input_ids"):
        fused()
    assert {name: {*vars(module)} for name, module in model.named_modules()} == before
    assert fused.last is fused.mask is fused.seeds is None
    assert [part.owed for part in fused.parts] == [None] * len(fused.parts)


def test_finding_parts_draws_no_random_number():
    model = make_model()
    torch.manual_seed(5)
    FusedLayers(model, model, torch.float32)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(1), drawn)


def test_dropout_comes_from_torchs_generator():
    model = make_model()
    fused = FusedLayers(model, model, torch.float32)
    torch.manual_seed(1)
    first, second = (fused(**make_inputs()).logits for _ in range(2))
    torch.manual_seed(1)
    again = fused(**make_inputs()).logits
    assert torch.equal(first, again)
    assert not torch.allclose(first, second, atol=1e-2)


def test_each_norm_drops_other_entries(monkeypatch):
    model = make_model(hidden_dropout_prob=0.5)
    drawn = []
    draw = FusedLayers.draw

    def watch(self, p, device):
        drawn.append(draw(self, p, device))
        return drawn[-1]

    monkeypatch.setattr(FusedLayers, "draw", watch)
    FusedLayers(model, model, torch.float32)(**make_inputs())
    assert (
        len({int(one.seeds[one.call]) for one in drawn}) == len(drawn) == 6
    )  # two norms and an attention a layer


@pytest.mark.parametrize(
    "hardened",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["plain", "adversarial"],
)
def test_steps_with_fused_layers_are_steps(hardened, bert):
    """Optimizer steps, also adversarial ones with a consistency term: two passes, doubled rows."""
    recipe, data = case("tagging-batch", bert, lr=1e-3)
    recipe = with_values(recipe, {"encoder.dropout": 0.0})
    datasets = load_datasets(recipe, data)
    batches = make_steps(datasets, 2, size=2, widths=1)
    plain, fused = (
        make_stepper(Stepper, datasets, recipe, device=DEVICE, hardened=hardened) for _ in range(2)
    )
    fused.run = FusedLayers(fused.model, fused.run, torch.float32)
    np.testing.assert_allclose(take(fused, batches), take(plain, batches), rtol=1e-4)
    compare_weights(fused.model, plain.model, 1e-4)


def test_nothing_goes_back_through_frozen_layers():
    model = make_model(**NONE)
    model.bert.embeddings.requires_grad_(False)
    model.bert.encoder.layer[0].requires_grad_(False)
    compare(model, FusedLayers(model, model, torch.float32), tolerance=CLOSE)
    made = []
    model.bert.encoder.layer[0].register_forward_hook(lambda *given: made.append(given[-1]))
    FusedLayers(model, model, torch.float32)(**make_inputs())
    assert not made[-1].requires_grad


@pytest.mark.parametrize("trained", ["bias", "weight", "classifier", "LayerNorm", "layer.1.att"])
def test_some_parameters_are_trained(trained):
    model = make_model(**NONE)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(trained in name)
    compare(model, FusedLayers(model, model, torch.float32), tolerance=CLOSE)


def test_layers_that_are_shared_and_vectors_that_are_tied(monkeypatch):
    model, calls = make_model(num_hidden_layers=3, **NONE), count_calls(monkeypatch)
    layers = model.bert.encoder.layer
    layers[1] = layers[0]
    layers[2].output.dense.bias = layers[0].output.dense.bias
    layers[2].attention.self.key = layers[0].attention.self.query
    compare(model, FusedLayers(model, model, torch.float32), tolerance=CLOSE)
    assert calls == listed(6, 3, 0, 3)


def test_gradients_add_up_over_passes():
    """Twice through one graph, and through a part of it after a look at another gradient."""
    model = make_model(**NONE)
    fused, found = FusedLayers(model, model, torch.float32), []
    for run in (model, fused):
        model.zero_grad()
        out = run(**make_inputs(), output_hidden_states=True)
        torch.autograd.grad(out.logits.sum(), out.hidden_states[0], retain_graph=True)
        out.hidden_states[1].square().sum().backward(retain_graph=True)
        for _ in range(2):
            out.logits.square().sum().backward(retain_graph=True)
        found.append({name: p.grad for name, p in model.named_parameters()})
    compare_gradients(*reversed(found), CLOSE)


def test_parts_that_are_not_gone_through_leave_no_numbers_behind(monkeypatch):
    """Half a backward pass writes half of the lines; what memory held in the others is not read."""
    model = make_model(**NONE)
    fused = FusedLayers(model, model, torch.float32)
    out = fused(**make_inputs(), output_hidden_states=True)
    summed, add_lines, empty = [], row_sums.add_lines, torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **how: empty(*size, **how).fill_(torch.inf))
    monkeypatch.setattr(
        row_sums, "add_lines", lambda *given: summed.append(given[0]) or add_lines(*given)
    )
    out.hidden_states[1].square().sum().backward()
    assert summed
    assert all(parts.isfinite().all() for parts in summed)


def test_two_models_with_evaluation_and_copies_in_between():
    one, other = make_model(**NONE), make_model("Roberta", **NONE)
    runs = [FusedLayers(model, model, torch.float32) for model in (one, other)]
    wanted = one.eval()(**make_inputs()).logits
    for model, run in zip((one, other), runs, strict=True):
        compare(model.train(), run, tolerance=CLOSE)
    assert torch.equal(runs[0].run.eval()(**make_inputs()).logits, wanted)
    assert torch.equal(runs[0](**make_inputs()).logits, wanted)  # in eval mode nothing is fused
    copied = pickle.loads(pickle.dumps(copy.deepcopy(one)))
    assert torch.equal(copied(**make_inputs()).logits, wanted)
    compare(copied.train(), FusedLayers(copied, copied, torch.float32), tolerance=CLOSE)


def test_layers_that_are_computed_again_keep_their_forward():
    model = make_model()
    model.gradient_checkpointing_enable()
    assert FusedLayers(model, model, torch.float32).parts == []


def test_whose_attention_runs_fused_is_known():
    """Then deterministic operations cost nothing, and are the default."""

    def is_whole(model):
        return FusedLayers(model, model, torch.bfloat16).whole

    assert all(is_whole(make_model(kind)) for kind in KINDS)
    assert not is_whole(make_model(attn_implementation="eager"))
    assert not is_whole(make_model("RoFormer"))  # it turns queries and keys
    again = make_model()
    again.gradient_checkpointing_enable()
    assert not is_whole(again)


def test_an_output_that_is_changed_in_place_is_cast_again():
    model = make_model(**NONE)
    model.bert.encoder.layer[0].register_forward_hook(lambda *given: given[-1].mul_(2.0))
    fused = FusedLayers(model, CastOnce(model, torch.float16), torch.float16)
    with torch.autocast(DEVICE, torch.float16):
        got, wanted = (run(**make_inputs()).logits.float() for run in (fused, model))
    torch.testing.assert_close(got, wanted, rtol=0, atol=0.05)  # 0.6 apart if it were not


class Adapted(nn.Linear):
    """A linear layer that is more than one."""

    def forward(self, x):
        return super().forward(x) + 1.0


class Bounded(BertSelfAttention):
    def forward(self, hidden_states, attention_mask=None, **options):
        return super().forward(hidden_states.clamp(-8.0, 8.0), attention_mask, **options)


class Steady(BertSelfAttention):
    """Has a dropout that it never uses."""

    def forward(self, hidden_states, attention_mask=None, **options):
        self.training, training = False, self.training
        try:
            return super().forward(hidden_states, attention_mask, **options)
        finally:
            self.training = training


class OtherNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x) * 2.0


def to_eval(layer):
    layer.eval()


def adapt_query(layer):
    layer.attention.self.query.__class__ = Adapted


def adapt_dense(layer):
    layer.output.dense.__class__ = Adapted


def change_norm(layer):
    layer.attention.output.LayerNorm.__class__ = OtherNorm


def scale_scores(layer):
    layer.attention.self.scaling *= 2.0


def listen_to_key(layer):
    layer.attention.self.key.register_forward_hook(lambda *given: given[-1] * 3.0)


def listen_to_dropout(layer):
    layer.output.dropout.register_forward_hook(lambda *given: given[-1] * 3.0)


def replace_forward(layer):
    own = layer.intermediate.forward
    layer.intermediate.forward = lambda x: own(x) * 2.0


def replace_dense(layer):
    own = layer.output.dense.forward
    layer.output.dense.forward = lambda x: own(x) * 2.0


def never_drop(layer):
    layer.attention.self.__class__ = Steady


def rest_dropout(layer):
    layer.output.dropout.p = 0.5
    layer.output.dropout.eval()


def drop_all(layer):
    layer.output.dropout.p = 1.0


def drop_bias(layer):
    layer.intermediate.dense.bias = None


def norm_weights_in_hooks(layer):
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(layer.attention.self.key)


def norm_weights(layer):
    nn.utils.parametrizations.weight_norm(layer.output.dense)


def gate(layer):
    """A factor that is learned starts at 1."""
    layer.output.register_parameter("gate", nn.Parameter(torch.ones(1)))


def cap_scores(layer):
    """A subclass bounds what it is given; small numbers do not show it."""
    layer.attention.self.__class__ = Bounded


@pytest.mark.parametrize(
    ("change", "calls"),
    [
        (to_eval, (2, 1, 0, 1)),
        (adapt_query, (4, 2, 0, 1)),
        (adapt_dense, (3, 2, 0, 2)),
        (change_norm, (3, 2, 0, 2)),
        (listen_to_dropout, (3, 2, 0, 2)),
        (listen_to_key, (4, 2, 0, 1)),
        (replace_forward, (4, 1, 0, 2)),
        (drop_bias, (4, 1, 0, 2)),
        (rest_dropout, (4, 2, 0, 2)),
        (drop_all, (3, 2, 0, 2)),
        (scale_scores, (4, 2, 0, 1)),
        (norm_weights_in_hooks, (4, 2, 0, 1)),
        (norm_weights, (3, 2, 0, 2)),
        (gate, (3, 2, 0, 2)),
        (cap_scores, (4, 2, 0, 1)),
        (never_drop, (4, 2, 0, 1)),
        (replace_dense, (3, 2, 0, 2)),
    ],
)
def test_a_part_that_is_something_else_keeps_its_forward(change, calls, monkeypatch):
    model = make_model(**NONE)
    change(model.bert.encoder.layer[1])
    fused, counted = FusedLayers(model, model, torch.float32), count_calls(monkeypatch)
    with torch.no_grad():
        got, wanted = (run(**make_inputs()).logits for run in (fused, model))
    torch.testing.assert_close(got, wanted, rtol=CLOSE, atol=CLOSE)
    assert counted == listed(*calls)


@pytest.mark.parametrize(
    ("kind", "options", "calls"),
    [
        ("Bert", {"hidden_act": "gelu_new"}, (4, 0, 0, 2)),
        ("Bert", {"attn_implementation": "eager"}, (4, 2, 0, 0)),
        ("Bert", {"hidden_act": "gelu_10"}, (4, 0, 0, 2)),  # clips what is above 10
        ("Bert", {"hidden_act": "gelu_python", "layer_norm_eps": 0.1}, (4, 2, 0, 2)),
        ("Bert", {"is_decoder": True}, (4, 2, 0, 0)),
        ("Bert", {"chunk_size_feed_forward": 1}, (2 + 14, 14, 0, 2)),
        ("Electra", {"embedding_size": 8}, (4, 2, 0, 2)),
        ("Albert", {"num_hidden_groups": 1}, (0, 0, 0, 0)),
        ("MPNet", {}, (2, 2, 0, 0)),
        ("DebertaV2", {"relative_attention": True, "pos_att_type": ["p2c"]}, (4, 2, 0, 0)),
        ("RoFormer", {}, (4, 2, 0, 0)),
        ("ConvBert", {"num_groups": 2}, (2, 0, 0, 0)),
        ("Longformer", {"attention_window": 4}, (4, 2, 0, 0)),
        ("Yoso", {"use_expectation": True}, (4, 2, 0, 0)),
        ("MegatronBert", {}, (0, 2, 0, 0)),
        ("RobertaPreLayerNorm", {}, (0, 0, 0, 2)),
        ("DistilBert", {"dim": 24, "hidden_dim": 40, "n_layers": 2, "n_heads": 2}, (0, 0, 0, 0)),
        ("ModernBert", {}, (0, 0, 0, 0)),
        ("Qwen2", {"num_key_value_heads": 2}, (0, 0, 0, 0)),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_models_of_other_kinds(kind, options, calls, monkeypatch):
    others = ("dropout", "attention_dropout", "classifier_dropout", "classifier_dropout_prob")
    model = make_model(kind, **NONE | dict.fromkeys(others, 0.0) | options)
    counted = count_calls(monkeypatch)
    compare(model, FusedLayers(model, model, torch.float32), tolerance=CLOSE)
    assert counted == listed(*calls)


@pytest.mark.parametrize("tokens", [7, 32, 130])
@pytest.mark.parametrize("size", [16, 96])
def test_heads_and_texts_of_many_sizes(tokens, size, monkeypatch):
    """Also a text that is nothing but padding."""
    sizes = {"hidden_size": 2 * size, "max_position_embeddings": 140, "num_hidden_layers": 1}
    model = make_model("Electra", **NONE | sizes | {"initializer_range": 0.1})
    calls = count_calls(monkeypatch)
    mask = (torch.arange(tokens) < torch.tensor([[tokens], [tokens - 2], [0]])).long()
    ids = torch.arange(3 * tokens).view(3, tokens) % 37 + 2
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids % 2}
    inputs = {name: one.to(DEVICE) for name, one in inputs.items()}
    monkeypatch.setitem(globals(), "make_inputs", lambda: inputs)
    compare(model, FusedLayers(model, model, torch.float32), tolerance=CLOSE)
    assert calls == (listed(2, 1, 0, 1) if tokens <= 32 else listed(2, 1, 1, 0))


@pytest.mark.parametrize(
    "change", [adapt_query, adapt_dense, replace_forward, replace_dense, norm_weights]
)
def test_a_part_that_is_changed_later_keeps_its_forward(change):
    model = make_model(**NONE)
    fused = FusedLayers(model, model, torch.float32)
    change(model.bert.encoder.layer[1])
    with torch.no_grad():
        wanted, *found = (run(**make_inputs()).logits for run in (model, fused, fused))
    for got in found:
        torch.testing.assert_close(got, wanted, rtol=CLOSE, atol=CLOSE)


def test_lora(monkeypatch):
    pytest.importorskip("peft", reason="peft is not installed")
    model, calls = make_model(**NONE), count_calls(monkeypatch)
    add_lora(model, rank=2, targets=("query", "intermediate.dense"))
    for name, parameter in model.named_parameters():
        if "lora" in name:
            nn.init.normal_(parameter, std=0.2)
    compare(model, FusedLayers(model, model, torch.float32), tolerance=CLOSE)
    assert calls == listed(4, 0, 0, 0)


@pytest.mark.parametrize("asked", ["position_ids", "output_attentions"])
def test_attention_that_is_asked_for_more_keeps_its_forward(asked, monkeypatch):
    model, calls = make_model(**NONE), count_calls(monkeypatch)
    inputs = make_inputs()
    inputs[asked] = torch.arange(6, -1, -1, device=DEVICE)[None] if asked[0] == "p" else True
    monkeypatch.setitem(globals(), "make_inputs", lambda: inputs)
    compare(model, FusedLayers(model, model, torch.float32), tolerance=CLOSE)
    assert calls == listed(4, 2, 0, 0)


def test_attention_that_is_switched_later_has_its_own_mask():
    model = make_model(**NONE)
    fused = FusedLayers(model, model, torch.float32)
    model.set_attn_implementation("eager")
    compare(model, fused, tolerance=CLOSE)


def test_weights_of_another_dtype_keep_their_forward(monkeypatch):
    model = make_model(**NONE)
    calls = count_calls(monkeypatch)
    # On a GPU the gradients of embeddings are added up in another order.
    compare(model, FusedLayers(model, model, torch.bfloat16), tolerance=1e-6 if CUDA else 0.0)
    assert not any(calls.values())


def test_cross_attention_keeps_its_forward():
    model = make_model(is_decoder=True, add_cross_attention=True)
    layer = model.bert.encoder.layer[0]
    parts = FusedLayers(model, model, torch.float32).parts
    found = {part.module for part in parts}
    assert layer.crossattention.output in found
    assert not {layer.attention.self, layer.crossattention.self} & found  # one is causal


class Late(nn.Module):
    """Drops after the norm instead of before."""

    def __init__(self):
        super().__init__()
        self.dense, self.dropout = nn.Linear(4, 4), nn.Dropout(0.1)
        self.LayerNorm = nn.LayerNorm(4)

    def forward(self, hidden_states, input_tensor):
        return self.dropout(self.LayerNorm(self.dense(hidden_states) + input_tensor))


class Scaled(Late):
    """Weighs the residual."""

    def forward(self, hidden_states, input_tensor):
        return self.LayerNorm(self.dropout(self.dense(hidden_states)) + 0.9 * input_tensor)


class Right(Late):
    """The formula in other words."""

    def forward(self, hidden_states, input_tensor):
        return self.LayerNorm(input_tensor + self.dropout(self.dense(hidden_states)))


class Gated(nn.Module):
    """An activation and more."""

    def __init__(self):
        super().__init__()
        self.dense, self.intermediate_act_fn = nn.Linear(4, 4), nn.GELU()

    def forward(self, hidden_states):
        return hidden_states * self.intermediate_act_fn(self.dense(hidden_states))


def test_a_part_is_known_by_what_it_computes():
    assert is_output(Right())
    assert not is_output(Late())
    assert not is_output(Scaled())
    assert not is_intermediate(Gated())
    assert not is_intermediate(Right())


def record_kernels(monkeypatch):
    """What Triton compiles kernels by: names, types, constants, and what it knows of numbers."""
    started, start = {"compiled": set(), "run": set()}, _launch.start

    def describe(name, value):
        if isinstance(value, torch.Tensor):
            return value.dtype, value.data_ptr() % 16 == 0
        if isinstance(value, int) and not name.isupper() and name != "num_warps":
            return "number" if name in NUMBERS else (value == 1, value % 16 == 0)
        return "number" if isinstance(value, float) else value

    def recorded(kernel, grid, *arguments, **numbers):
        given = dict(zip(kernel.arg_names, arguments, strict=False)) | numbers
        said = tuple(sorted((name, str(describe(name, one))) for name, one in given.items()))
        started["compiled" if arguments[0].is_meta else "run"].add((kernel.fn.__name__, said))
        start(kernel, grid, *arguments, **numbers)

    # On a CPU torch adds up the gradients of embeddings.
    for module in (encoder, attention, row_sums, *([embedding] if CUDA else [])):
        monkeypatch.setattr(module, "start", recorded)
    return started


@pytest.mark.parametrize("dtype", [torch.float32, HALF], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("packs", [False, True])
def test_kernels_are_compiled_ahead_and_no_others(dropout, dtype, packs, monkeypatch):
    sizes = {"hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 160}
    chances = dict.fromkeys(NONE, dropout)
    model, widths = make_model(**sizes, **chances), (8, 16, 40, 144)
    run = CastOnce(model, dtype) if dtype != torch.float32 else model
    layers = FusedLayers(model, run, dtype, packs=packs)
    generator = torch.random.get_rng_state()
    started = record_kernels(monkeypatch)
    monkeypatch.setattr(attention, "shared_memory", lambda _: 2**30)
    layers.compile_ahead(widths, torch.device(DEVICE))
    assert torch.equal(torch.random.get_rng_state(), generator)
    assert all(part.owed is None for part in layers.parts)
    assert not started["run"]
    for width, packed in product(widths, {False, packs}):
        ids = torch.ones((2, width), dtype=torch.long, device=DEVICE)
        ids[1, width // 2 :] = 0
        layers.room = packing.count_rows(int(ids.sum()), ids.numel()) if packed else 0
        with torch.autocast(DEVICE, dtype, enabled=dtype != torch.float32):
            layers(input_ids=ids, attention_mask=ids).logits.float().sum().backward()
    names = {name for name, _ in started["run"]}
    long = "pack_backward" if dtype == torch.float32 else "long_attention_key_backward"
    assert {"norm_backward", "attention_backward", long, "sum_parts"} <= names
    assert started["run"] == started["compiled"]


def test_frozen_layers_are_not_compiled_ahead(monkeypatch):
    model = make_model()
    for parameter in model.bert.parameters():
        parameter.requires_grad = False
    started = record_kernels(monkeypatch)
    FusedLayers(model, model, torch.float32).compile_ahead([8], torch.device(DEVICE))
    assert started == {"compiled": set(), "run": set()}


A_GPU = """
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget

class Driver:
    loaded = []
    def launcher_cls(self, src, metadata):
        return lambda *_: None
    def load(name, *_):
        Driver.loaded.append((name, threading.current_thread() is threading.main_thread()))
        return 1, 1, 32, 0, 1024
    utils = SimpleNamespace(
        load_binary=load, unload_module=lambda _: None,
        get_device_properties=lambda _: {"max_shared_mem": 2**18},
    )
    get_current_device = staticmethod(lambda: 0)
    get_current_stream = staticmethod(lambda *_: 0)
    get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))

triton.runtime.driver.set_active(Driver())
devices = set()
torch.cuda.device, torch.cuda.current_device = lambda _: nullcontext(), lambda: 3
torch.cuda.set_device = devices.add

from softf1.kernels._encoder import gelu_forward, sum_parts
from softf1.kernels._launch import compiling, start

compiled = []
knobs.compilation.listener = lambda *, src, **_: compiled.append(src.name)
gpu, blank, ones = torch.device("cuda"), torch.empty(64, device="meta"), torch.ones(64)
"""
"""A GPU that is made up, for which Triton compiles."""

COMPILES = """
with compiling(gpu) as jobs:
    for _ in range(3):
        start(gelu_forward, (1,), blank, blank, 64, 2048)
        start(sum_parts, (1,), blank, blank, blank, 2, 64, 64, R=64, W=32)
    print(len(jobs), compiled)
start(gelu_forward, (1,), ones, ones, 64, 2048)
start(sum_parts, (1,), ones, ones, ones, 2, 64, 64, R=64, W=32)
print(sorted(compiled), sorted(Driver.loaded), devices)
with compiling(gpu):
    for rows in (3, 16):
        start(sum_parts, (1,), blank, blank, blank, 2, 64, 64, R=rows, W=32)
start(sum_parts, (1,), ones, ones, ones, 2, 64, 64, R=16, W=32)
try:
    start(sum_parts, (1,), ones, ones, ones, 2, 64, 64, R=3, W=32)
except triton.CompilationError:
    print("no power of two")
"""

FINISHES = """
from softf1.kernels._launch import await_kernels

with compiling(gpu):
    start(gelu_forward, (1,), blank, blank, 64, 2048)
    start(sum_parts, (1,), blank, blank, blank, 2, 64, 64, R=64, W=32)
await_kernels()
print(sorted(Driver.loaded))
threads = [
    threading.Thread(target=start, args=(gelu_forward, (1,), ones, ones, 64, 2048))
    for _ in range(8)
]
with compiling(gpu):
    start(gelu_forward, (1,), blank, blank, 64, 1024)
for one in threads:
    one.start()
for one in threads:
    one.join()
print(len(compiled))
"""

NO_THREADS = """
from softf1.kernels import _launch

class Pool:
    def submit(self, *_):
        raise RuntimeError("can't start new thread")
    def shutdown(self, wait):
        pass

def refuse(_):
    raise RuntimeError("no such device")

torch.cuda.set_device = refuse
with compiling(gpu):
    start(gelu_forward, (1,), blank, blank, 64, 2048)
start(gelu_forward, (1,), ones, ones, 64, 2048)
_launch.ThreadPoolExecutor = lambda _: Pool()
with compiling(gpu):
    start(sum_parts, (1,), blank, blank, blank, 2, 64, 64, R=64, W=32)
start(sum_parts, (1,), ones, ones, ones, 2, 64, 64, R=64, W=32)
print(Driver.loaded)
"""

WAKES = """
from softf1.training.graphs import wake_triton

awake = wake_triton(gpu)
awake.result()
print(compiled, wake_triton(gpu) is awake)
"""


def say(script, tmp_path):
    """What a script prints in a process of its own, with a GPU that is made up."""
    settings = {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    settings["TRITON_DEFAULT_FP_FUSION"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", A_GPU + script],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.splitlines()


@pytest.mark.slow
def test_kernels_are_compiled_and_loaded_in_threads(tmp_path):
    names = ["gelu_forward", "sum_parts"]
    loaded = [(name, False) for name in names]
    said = ["2 []", f"{names} {loaded} {{3}}", "no power of two"]
    assert say(COMPILES, tmp_path) == said


@pytest.mark.slow
def test_kernels_can_be_waited_for(tmp_path):
    loaded = [(name, False) for name in ("gelu_forward", "sum_parts")]
    assert say(FINISHES, tmp_path) == [str(loaded), "3"]


@pytest.mark.slow
def test_without_threads_a_kernel_is_compiled_where_it_is_launched(tmp_path):
    loaded = [(name, True) for name in ("gelu_forward", "sum_parts")]
    assert say(NO_THREADS, tmp_path) == [str(loaded)]


@pytest.mark.slow
def test_triton_wakes_once_by_compiling_a_kernel(tmp_path):
    assert say(WAKES, tmp_path) == ["['sum_parts'] True"]


AHEAD = """
from threading import current_thread

import torch
from triton import knobs
from softf1.training.fusing import FusedLayers
from softf1.training.graphs import CastOnce
from tests.training.test_fusing import make_model

compiled = []

def note(*, src, **_):
    compiled.append((src.name, current_thread().name.startswith("ThreadPool")))

knobs.compilation.listener = note
model = make_model(hidden_size=32, intermediate_size=64)
layers = FusedLayers(model, CastOnce(model, torch.bfloat16), torch.bfloat16)
layers.compile_ahead([16], torch.device("cuda"))
ids = torch.randint(2, 40, (16, 16), device="cuda")  # Triton compiles for multiples of 16
with torch.autocast("cuda", torch.bfloat16):
    logits = layers(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
logits.float().sum().backward()
print(sorted(set(compiled)))
"""


@pytest.mark.skipif(not CUDA, reason="wants a GPU")
def test_steps_compile_no_kernel_of_a_layer_that_was_compiled_ahead(tmp_path):
    """In a process of its own, which has compiled nothing yet."""
    said = subprocess.run(
        [sys.executable, "-c", AHEAD],
        env=os.environ | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = [
        f"{part}_{way}" for part in ("attention", "gelu", "norm") for way in ("backward", "forward")
    ]
    ahead = [(name, True) for name in ("add_rows", *names, "place_ids", "sum_parts")]
    assert said.splitlines() == [str(ahead)]
