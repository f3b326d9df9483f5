"""One process alone: what many would agree on. Several are in test_distributed."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from softf1.errors import InputError, RunError
from softf1.training import processes
from softf1.training.processes import (
    LAUNCHED,
    Processes,
    choose_precision,
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
