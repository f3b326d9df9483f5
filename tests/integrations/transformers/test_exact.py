"""Whatever the cut of a step into micro-batches and processes: the weights of one whole batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.integrations.transformers import cases, ranks

ROOT = Path(__file__).parents[3]
TOLERANCE = 1e-5

every_case = pytest.mark.parametrize("case", cases.FUNCTION + cases.MIXIN, ids=lambda case: case.id)


@pytest.fixture(scope="module")
def on_two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-W", "error", "-m", "tests.integrations.transformers.ranks"]
    subprocess.run([*command, str(folder)], cwd=ROOT, env=environment, check=True, timeout=180)
    return torch.load(folder / "weights.pt", weights_only=True)


def distance(case, weights):
    return (weights - cases.whole_batches(case)).abs().max().item()


@every_case
def test_the_steps_are_large_enough_to_tell(case):
    start = torch.nn.utils.parameters_to_vector(cases.make_model(case.kind).parameters())
    assert distance(case, start.detach()) > 300 * TOLERANCE


@pytest.mark.parametrize("kind", ["tags", "language"])
def test_the_two_processes_have_unequal_numbers_of_labels(kind):
    kept = [int((item["labels"] != -100).sum()) for item in cases.make_items(kind)]
    for first in range(0, cases.ITEMS, cases.STEP):
        micro_batches = [sum(kept[i : i + 2]) for i in range(first, first + cases.STEP, 2)]
        assert sum(micro_batches[::2]) != sum(micro_batches[1::2])


@every_case
@pytest.mark.parametrize(("size", "accumulate"), [(8, 1), (2, 4)])
def test_one_process(case, size, accumulate, tmp_path):
    weights = cases.train(case, tmp_path, size=size, accumulate=accumulate)
    assert distance(case, weights) < TOLERANCE


def test_two_processes(on_two):
    off = {}
    for number, (case, layout) in enumerate(ranks.every_run()):
        found = distance(case, on_two[number])
        if not found < TOLERANCE:
            off[case.id, str(layout)] = found
    assert not off
    runs = 2 * len(cases.FUNCTION + cases.MIXIN + cases.ONE_EACH)
    assert len(on_two) == runs + len(ranks.ATTACKED)


@pytest.mark.parametrize("case", ranks.ATTACKED, ids=lambda case: case.id)
def test_adversarial_steps_of_two_processes_are_those_of_one(case, on_two, tmp_path):
    wanted = cases.train(case, tmp_path, size=8, accumulate=1, given=ranks.ATTACK)
    torch.testing.assert_close(on_two[case.id], wanted, rtol=0, atol=TOLERANCE)
    assert distance(case, wanted) > 30 * TOLERANCE  # another step than without it


def test_the_obvious_adapter_takes_steps_that_are_too_large(tmp_path):
    case = cases.FUNCTION[0]
    trainer = cases.make_trainer(case, tmp_path, size=2, accumulate=4)
    plain = trainer.compute_loss_func.loss
    trainer.compute_loss_func = lambda outputs, labels, **_: plain(outputs.logits, labels)
    trainer.train()
    weights = torch.nn.utils.parameters_to_vector(trainer.model.parameters()).detach()
    start = torch.nn.utils.parameters_to_vector(cases.make_model(case.kind).parameters())
    moved, wanted = (x - start.detach() for x in (weights, cases.whole_batches(case)))
    assert moved.norm() > 2 * wanted.norm()
