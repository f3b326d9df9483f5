"""One process alone: what many would agree on. Several are in test_distributed."""

import os
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from softf1.errors import InputError, RunError
from softf1.training import processes
from softf1.training.processes import (
    CUBLAS,
    LAUNCHED,
    EmbeddingsInOrder,
    Processes,
    choose_precision,
    deterministic,
    freeze_unused,
    make_autocast,
    on_rank_0,
)


def test_alone_all_is_as_it_is():
    processes = Processes()
    assert (processes.rank, processes.world, processes.main) == (0, 1, True)
    assert processes.any(True)
    assert not processes.any(False)
    assert processes.add([3, 4]) == [3, 4]
    assert on_rank_0(lambda: "found") == "found"
    model = nn.Linear(2, 2)
    assert processes.wrap(model) is model


@pytest.mark.parametrize(
    "error", [InputError("bad", path="a.txt"), OSError(28, "full"), RunError()]
)
def test_errors_come_out_of_agreements(error):
    def fail():
        raise error

    with pytest.raises(type(error)) as found:
        on_rank_0(fail)
    assert found.value is error


def test_one_process_is_not_sharded(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert not Processes().sharded


@pytest.mark.parametrize("wanted", ["fp32", "bf16"])
def test_precision_is_what_was_asked_for(wanted):
    cpu = torch.device("cpu")
    assert choose_precision(wanted, cpu) == wanted
    with make_autocast(wanted, cpu)():
        assert torch.is_autocast_enabled("cpu") == (wanted == "bf16")


def test_a_service_that_cannot_be_reached_is_one_line(monkeypatch):
    pytest.importorskip("tensorboard")
    processes = Processes(trackers=("tensorboard",), folder="nowhere")

    def fail(*_, **__):
        raise ConnectionError("no key\nand more")

    monkeypatch.setattr(processes.accelerator, "init_trackers", fail)
    with pytest.raises(RunError, match=r"^train\.trackers: no key$"):
        processes.start_trackers({})


def test_what_no_loss_reaches_is_frozen():
    model = nn.ModuleDict({"used": nn.Linear(2, 1), "pooler": nn.Linear(2, 1)})
    freeze_unused(model, model["used"](torch.ones(1, 2)).sum())
    assert [p.requires_grad for p in model.parameters()] == [True, True, False, False]
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_one_that_somebody_launched_asks_accelerate(launcher, monkeypatch):
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    asked = []
    alone = SimpleNamespace(device=torch.device("cpu"), process_index=0, num_processes=1)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(processes, "_make_accelerator", lambda *_: asked.append(1) or alone)
    assert Processes().accelerator is None
    assert not asked
    monkeypatch.setenv(launcher, "1")
    assert Processes().accelerator is alone


def test_deterministic_operations_are_asked_for_and_given_back(monkeypatch):
    monkeypatch.delenv(CUBLAS, raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    flags = torch.backends.cuda
    before = (flags.mem_efficient_sdp_enabled(), flags.cudnn_sdp_enabled())
    with deterministic(on=False):
        assert not torch.are_deterministic_algorithms_enabled()
        assert CUBLAS not in os.environ
    with deterministic(on=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert not flags.mem_efficient_sdp_enabled()
        assert not flags.cudnn_sdp_enabled()
        assert os.environ[CUBLAS] == ":4096:8"
        assert not torch.utils.deterministic.fill_uninitialized_memory
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert not torch.are_deterministic_algorithms_enabled()
    assert (flags.mem_efficient_sdp_enabled(), flags.cudnn_sdp_enabled()) == before


def test_a_workspace_that_can_no_longer_be_chosen_is_a_warning(monkeypatch):
    monkeypatch.delenv(CUBLAS, raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.warns(UserWarning, match="CUDA started before"), deterministic(on=True):
        assert CUBLAS not in os.environ
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
    with EmbeddingsInOrder():
        values = embedding(ids)
        assert "_Embed" in type(values.grad_fn).__name__
        keyword = torch.nn.functional.embedding(ids, embedding.weight, padding_idx=padding_idx)
    assert torch.equal(values, embedding(ids))
    assert torch.equal(keyword, values)
    (own,) = torch.autograd.grad(values, embedding.weight, gradient)
    torch.testing.assert_close(own, wanted)


@pytest.mark.parametrize("option", ["scale_grad_by_freq", "sparse", "max_norm"])
def test_embeddings_with_special_options_stay_with_torch(option):
    embedding = torch.nn.Embedding(7, 5, **{option: True if option != "max_norm" else 1.0})
    with EmbeddingsInOrder():
        values = embedding(torch.tensor([1, 1, 2]))
    assert "_Embed" not in type(values.grad_fn).__name__


@pytest.mark.skipif(not torch.cuda.is_available(), reason="wants a GPU")
def test_on_a_gpu_the_gradient_of_many_ids_repeats_to_the_bit(monkeypatch):
    monkeypatch.setenv(CUBLAS, ":4096:8")
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(30_000, 384, padding_idx=0, device="cuda")
    ids = torch.randint(2_000, (64, 384), device="cuda") * (
        torch.rand(64, 384, device="cuda") > 0.3
    )
    gradient = torch.randn(64, 384, 384, device="cuda")
    with deterministic(on=True):
        first, *others = (
            torch.autograd.grad(embedding(ids), embedding.weight, gradient)[0] for _ in range(10)
        )
    assert all(torch.equal(first, other) for other in others)
