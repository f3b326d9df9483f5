"""Operations whose sums have a fixed order: what torch computes, and on a GPU the same bits."""

import os
from contextlib import ExitStack

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import deterministic as memory
from torch.utils.checkpoint import checkpoint
from transformers import T5Config, T5EncoderModel

from softf1.recipe import with_values
from softf1.training import fixed_order as module
from softf1.training.fixed_order import (
    ATTEND,
    DETERMINISTIC,
    WITHOUT_CUDNN,
    find_attention,
    fixed_order,
    which_operations,
)
from softf1.training.processes import CUBLAS, deterministic
from softf1.training.run import train_run
from softf1.training.step import Stepper
from tests.operations import Recorder
from tests.training.test_run import CASES, case
from tests.training.toys import read_files

CUDA = torch.cuda.is_available()
gpu = pytest.mark.skipif(not CUDA, reason="wants a GPU")


def test_deterministic_operations_are_asked_for_and_given_back(monkeypatch):
    monkeypatch.delenv(CUBLAS, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with deterministic(on=True):  # a CPU needs nothing of it
        assert not torch.are_deterministic_algorithms_enabled()
        assert CUBLAS not in os.environ
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with deterministic(on=False):
        assert not torch.are_deterministic_algorithms_enabled()
        assert CUBLAS not in os.environ
    with deterministic(on=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ[CUBLAS] == ":4096:8"
        assert not torch.utils.deterministic.fill_uninitialized_memory
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_workspace_that_was_chosen_stays(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv(CUBLAS, ":16:8")
    with deterministic(on=True):
        assert os.environ[CUBLAS] == ":16:8"


@pytest.mark.parametrize("rows", [7, 600])  # a product, and sums of sorted ids
@pytest.mark.parametrize("padding_idx", [None, 3, -1])
def test_embeddings_added_in_order_have_the_gradient_of_torch(padding_idx, rows):
    torch.manual_seed(0)
    ids, weight = torch.randint(7, (4, 50)), torch.randn(rows, 5, dtype=torch.float64)
    ids[0, 0] = rows - 1
    gradient = torch.randn(4, 50, 5, dtype=torch.float64)
    embedding = torch.nn.Embedding(rows, 5, padding_idx=padding_idx, _weight=weight)
    (wanted,) = torch.autograd.grad(embedding(ids), embedding.weight, gradient)
    with fixed_order():
        values = embedding(ids)
        assert "_Embed" in type(values.grad_fn).__name__
        named = {"input": ids, "weight": embedding.weight, "padding_idx": padding_idx}
        keyword = torch.nn.functional.embedding(**named)
    assert torch.equal(values, embedding(ids))
    assert torch.equal(keyword, values)
    (own,) = torch.autograd.grad(values, embedding.weight, gradient)
    torch.testing.assert_close(own, wanted)


@pytest.mark.parametrize(
    "option", [{"scale_grad_by_freq": True}, {"sparse": True}, {"max_norm": 1.0}, {"max_norm": 0.0}]
)
def test_embeddings_with_special_options_stay_with_torch(option):
    embedding = torch.nn.Embedding(7, 5, **option)
    with fixed_order():
        values = embedding(torch.tensor([1, 1, 2]))
    assert "_Embed" not in type(values.grad_fn).__name__


@pytest.mark.parametrize("padding_idx", [7, -8])
def test_a_padding_id_out_of_range_is_refused_as_torch_does(padding_idx):
    ids, weight = torch.tensor([1]), torch.ones(7, 5).requires_grad_()
    with fixed_order(), pytest.raises(AssertionError, match="Padding_idx must be within"):
        functional.embedding(ids, weight, padding_idx)


def test_embeddings_in_a_transform_of_torch_stay_with_torch():
    ids, weights = torch.tensor([1, 1, 2]), torch.randn(3, 7, 5)
    differentiate = torch.func.vmap(
        torch.func.grad(lambda weight: functional.embedding(ids, weight).square().sum())
    )
    wanted = differentiate(weights)
    with fixed_order("embedding"):
        torch.testing.assert_close(differentiate(weights), wanted)


def test_one_id_alone_has_a_gradient():
    embedding = nn.Embedding(7, 5)
    with fixed_order():
        embedding(torch.tensor(2)).sum().backward()
    assert embedding.weight.grad.sum(1).tolist() == [0, 0, 5, 0, 0, 0, 0]


ATTENDED = {
    "causal": {"is_causal": True},
    "masked": {"attn_mask": torch.rand(2, 1, 5, 5, generator=torch.Generator()) > 0.3},
    "learned mask": {"attn_mask": torch.randn(2, 3, 5, 5).requires_grad_()},
}


@pytest.mark.parametrize("options", ATTENDED.values(), ids=ATTENDED)
@pytest.mark.parametrize("named", [0, 2, 3], ids=str)
def test_attention_has_the_gradients_of_torch(options, named):
    """Of whatever has one, given by name or not."""
    torch.manual_seed(0)
    three = [torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3)]
    names = ("query", "key", "value")[3 - named :]
    given = (*three[: 3 - named],), dict(zip(names, three[3 - named :], strict=True))
    wanted_of = [one for one in (*three, options.get("attn_mask")) if _trains(one)]

    def differentiate():
        out = functional.scaled_dot_product_attention(*given[0], **given[1], **options)
        gradient = torch.linspace(-1, 1, out.numel()).view_as(out)
        return out, torch.autograd.grad(out, wanted_of, gradient)

    plain, wanted = differentiate()
    with fixed_order():
        own, found = differentiate()
        with torch.no_grad():
            assert functional.scaled_dot_product_attention(*three).grad_fn is None
    torch.testing.assert_close(own, plain)
    torch.testing.assert_close(found, wanted)


def _trains(one):
    return one is not None and one.requires_grad


def test_the_position_biases_of_t5_have_their_gradient():
    config = T5Config(
        vocab_size=20, d_model=16, d_kv=4, d_ff=8, num_layers=2, num_heads=4, dropout_rate=0.0
    )
    torch.manual_seed(0)
    model, ids = T5EncoderModel(config), torch.arange(12).view(2, 6)
    biases = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    (wanted,) = torch.autograd.grad(model(ids)[0].square().sum(), biases)
    with fixed_order():
        (found,) = torch.autograd.grad(model(ids)[0].square().sum(), biases)
    assert found.abs().max() > 0
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_the_backward_pass_of_attention_alone_is_told_to_be_deterministic():
    """Only where torch would fail rather than warn do its kernels change."""
    modes = []
    x = torch.randn(1, 1, 3, 4, requires_grad=True)
    with DETERMINISTIC:
        with fixed_order():
            out = functional.scaled_dot_product_attention(x, x, x)
        find_attention(out.grad_fn).register_prehook(lambda _: modes.append(which_operations()))
        for _ in range(2):
            out.sum().backward(retain_graph=True)
            assert which_operations() == (True, True)
    assert modes == [(True, False)] * 2
    assert which_operations() == (False, False)


def test_a_model_that_chooses_its_kernel_of_attention_gets_it():
    x = torch.randn(1, 1, 3, 4, requires_grad=True)
    with fixed_order():
        assert find_attention(functional.scaled_dot_product_attention(x, x, x).grad_fn)
        with sdpa_kernel(SDPBackend.MATH):
            out = functional.scaled_dot_product_attention(x, x, x)
    assert find_attention(out.grad_fn) is None


def test_attention_inside_a_function_of_torch_is_replaced_too(monkeypatch):
    found = []
    find = module.find_attention
    monkeypatch.setattr(module, "find_attention", lambda node: found.append(find(node)))
    attention, x = nn.MultiheadAttention(4, 2), torch.randn(3, 1, 4)
    with fixed_order():
        attention(x, x, x, need_weights=False)
    assert "ScaledDotProduct" in found[0].name()


def test_a_layer_that_is_computed_again_is_computed_once_more_only():
    runs = []

    def layer(x):
        runs.append(x)
        return functional.scaled_dot_product_attention(x, x, x).tanh()

    x = torch.randn(1, 1, 3, 4, requires_grad=True)
    with fixed_order():
        checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert len(runs) == 2


def test_functions_of_torch_come_back_even_from_inside_and_after_an_error():
    before = functional.embedding, functional.scaled_dot_product_attention, torch._VF.lstm
    with fixed_order(), pytest.raises(ZeroDivisionError), fixed_order("embedding"):
        raise ZeroDivisionError
    assert before == (
        functional.embedding, functional.scaled_dot_product_attention, torch._VF.lstm
    )  # fmt: skip


@pytest.mark.parametrize(
    ("enter", "look"),
    [
        (fixed_order, lambda: (functional.embedding, torch._VF.lstm)),
        (lambda: WITHOUT_CUDNN, lambda: torch.backends.cudnn.enabled),
        (lambda: deterministic(on=True), which_operations),
        (lambda: deterministic(on=True), torch.backends.cuda.cudnn_sdp_enabled),
        (lambda: deterministic(on=True), lambda: memory.fill_uninitialized_memory),
    ],
    ids=["functions", "cudnn", "operations", "attention", "memory"],
)
def test_threads_that_overlap_leave_torch_as_it_was(enter, look, monkeypatch):
    """The first to enter leaves first, when the second still wants the change."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv(CUBLAS, ":4096:8")
    before = look()
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(enter())
        changed = look()
        assert changed != before
        second.enter_context(enter())
        first.close()
        assert look() == changed
    assert look() == before


def test_an_lstm_runs_without_cudnn(monkeypatch):
    seen = []
    monkeypatch.setattr(
        module, "LSTM", lambda *args: seen.append(torch.backends.cudnn.enabled) or torch.lstm(*args)
    )
    model, x = nn.LSTM(3, 2, batch_first=True), torch.randn(2, 4, 3)
    with fixed_order():
        own = model(x)[0]
    assert torch.equal(own, model(x)[0])
    assert seen == [False]
    assert torch.backends.cudnn.enabled


def compiled_calls(model, x):
    """Returns the functions that Dynamo finds in a model."""
    calls = []

    def backend(traced, _):
        calls.extend(node.target for node in traced.graph.nodes if node.op == "call_function")
        return traced.forward

    torch.compiler.reset()
    with torch._dynamo.config.patch(allow_rnn=True):  # else an LSTM runs outside the graph
        torch.compile(model, backend=backend, fullgraph=True)(x)
    return calls


COMPILED = {
    "embedding": (nn.Embedding(7, 4), torch.arange(6).view(2, 3)),
    "attention": (
        lambda x: functional.scaled_dot_product_attention(x, x, x),
        torch.ones(2, 3, 4).requires_grad_(),
    ),
    "lstm": (nn.LSTM(4, 4, batch_first=True), torch.ones(2, 3, 4)),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own
@pytest.mark.parametrize(("model", "x"), COMPILED.values(), ids=COMPILED)
def test_what_is_compiled_keeps_the_operations_of_torch(model, x):
    usual = compiled_calls(model, x)
    with fixed_order():
        assert compiled_calls(model, x) == usual
    assert {functional.embedding, ATTEND, torch.lstm} & {*usual}


TRAININGS = {
    "plain": {},
    "regularised": {"train.adversarial": 0.5, "train.consistency": 1.0},
    "crf": {"task.decoder": "crf"},
}
RUNS = [
    (name, training)
    for name, (task, *_) in CASES.items()
    for training in TRAININGS
    if training != "crf" or task["kind"] == "tagging"
]


def in_order(name, training, bert):
    """The recipe of a case with sums in a fixed order, and its data."""
    recipe, data = case(name, bert)
    return with_values(recipe, TRAININGS[training] | {"train.deterministic": True}), data


@pytest.mark.parametrize(("name", "training"), RUNS)
def test_no_step_takes_an_operation_without_a_fixed_order(
    name, training, bert, tmp_path, monkeypatch
):
    """On a CPU, which has an order anyway: here the operations count that a GPU would take."""
    recipe, data = in_order(name, training, bert)
    recorder, gradient = Recorder(), Stepper.gradient

    def record(*args, **options):
        with recorder:
            return gradient(*args, **options)

    monkeypatch.setattr(Stepper, "gradient", record)
    with fixed_order():
        train_run(recipe, tmp_path / "run", data=data, quiet=True)
    assert {"mm", "embedding"} <= recorder.names
    assert not recorder.unordered()


def test_an_operation_without_a_fixed_order_is_noticed():
    embedding = nn.Embedding(5, 3)
    with Recorder() as recorder:
        embedding(torch.tensor([1, 1])).cumsum(0).sum().backward()
    assert recorder.unordered() == {"cumsum", "embedding_dense_backward"}


@gpu
@pytest.mark.parametrize(("name", "training"), RUNS)
def test_on_a_gpu_every_task_repeats_to_the_bit(name, training, bert, tmp_path, monkeypatch):
    monkeypatch.setenv(CUBLAS, ":4096:8")
    recipe, data = in_order(name, training, bert)
    for folder in ("a", "b"):
        result = train_run(recipe, tmp_path / folder, data=data, quiet=True)
        assert result["device"] == torch.cuda.get_device_name()
        assert result["deterministic"]
    assert read_files(tmp_path / "a") == read_files(tmp_path / "b")


@gpu
def test_on_a_gpu_the_gradient_of_many_ids_repeats_to_the_bit(monkeypatch):
    monkeypatch.setenv(CUBLAS, ":4096:8")
    torch.manual_seed(0)
    embedding = nn.Embedding(30_000, 384, padding_idx=0, device="cuda")
    ids = torch.randint(2_000, (64, 384), device="cuda") * (
        torch.rand(64, 384, device="cuda") > 0.3
    )
    gradient = torch.randn(64, 384, 384, device="cuda")
    with deterministic(on=True):
        first, *others = (
            torch.autograd.grad(embedding(ids), embedding.weight, gradient)[0] for _ in range(10)
        )
    assert all(torch.equal(first, other) for other in others)
    torch.testing.assert_close(
        first, torch.autograd.grad(embedding(ids), embedding.weight, gradient)[0]
    )


@gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_on_a_gpu_attention_over_long_texts_repeats_to_the_bit(dtype, monkeypatch):
    monkeypatch.setenv(CUBLAS, ":4096:8")
    torch.manual_seed(0)
    three = torch.randn(3, 8, 12, 384, 64, device="cuda", dtype=dtype).requires_grad_()
    mask = torch.zeros(8, 1, 384, 384, device="cuda", dtype=dtype)
    mask[..., 300:] = -torch.inf
    gradient = torch.randn(8, 12, 384, 64, device="cuda", dtype=dtype)

    def differentiate(mask):
        out = functional.scaled_dot_product_attention(*three, attn_mask=mask)
        return torch.autograd.grad(out, three, gradient)[0]

    for given in (mask, None):
        with deterministic(on=True):
            first, *others = (differentiate(given) for _ in range(10))
        assert all(torch.equal(first, other) for other in others)
        close = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {}
        torch.testing.assert_close(first, differentiate(given), **close)


@gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_on_a_gpu_the_gradient_of_an_lstm_repeats_to_the_bit(dtype, monkeypatch):
    monkeypatch.setenv(CUBLAS, ":4096:8")
    torch.manual_seed(0)
    model = nn.LSTM(150, 100, batch_first=True).cuda()
    x = torch.randn(32, 40, 150, device="cuda")

    def differentiate():
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            out = model(x)[0]
        return torch.autograd.grad(out.float().square().sum(), list(model.parameters()))

    with deterministic(on=True):
        first, *others = (differentiate() for _ in range(10))
    for other in others:
        assert all(map(torch.equal, first, other))
