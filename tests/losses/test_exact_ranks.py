"""Whatever the cut into ranks: value and gradient of the whole batch, on real processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from softf1.losses import make_loss
from tests.losses import ranks

ROOT = Path(__file__).parents[2]
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-5}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-W", "error", "-m", "tests.losses.ranks", str(folder)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=180)
    return torch.load(folder / "results.pt", weights_only=True)


def one_batch(case):
    """Value and gradient with all rows in one place."""
    name, dtype = case[0], case[-1]
    model = ranks.Tagger(dtype)
    x, y, mask = ranks.make_rows(case)
    value = make_loss(name, **ranks.LOSSES[name])(model(x), y, mask)
    value.backward()
    return value.detach(), ranks.gradients(model)


def relative_error(got, wanted):
    return ((got - wanted).norm() / wanted.norm()).item()


def errors(got, case):
    return [relative_error(a, b) for a, b in zip(got, one_batch(case), strict=True)]


@pytest.mark.parametrize("kind", ["exact", "fsdp", "accelerate"])
def test_two_and_four_ranks_give_value_and_gradient_of_one_batch(results, kind):
    cases = [case for key, case in results if key == kind]
    assert {case[4] for case in cases} == ({2, 4} if kind == "exact" else {4})
    wrong = {
        case: found
        for case in cases
        if not max(found := errors(results[kind, case], case)) < TOLERANCE[case[-1]]
    }
    assert not wrong


def test_eight_micro_batches_on_one_rank():
    for case in ranks.every_case(1):
        found = errors(ranks.run_exact(case, 0), case)
        assert max(found) < TOLERANCE[case[-1]], (case, found)


@pytest.mark.parametrize("world", [2, 4])
def test_the_scenarios_are_what_they_say(world):
    def last_rank(scenario):
        case = ("dice", "softmax", scenario, "uneven", world, torch.float64)
        pieces = ranks.cut_rows(ranks.make_rows(case), ranks.CUTS["uneven"][world], world - 1)
        _, target, mask = (torch.cat(part) for part in zip(*pieces, strict=True))
        return target[mask]

    assert (last_rank("ordinary") > 0).any()
    assert len(last_rank("no positives")) > 0
    assert (last_rank("no positives") == 0).all()
    assert len(last_rank("nothing kept")) == 0
    for cut in ranks.CUTS.values():
        assert sum(map(sum, cut[world])) == ranks.ROWS
        assert len(cut[world][0]) == 8


def test_the_mean_over_micro_batches_and_ranks_is_something_else(results):
    cases = [case for kind, case in results if kind == "naive"]
    assert {case[0] for case in cases} == set(ranks.LOSSES)
    for case in cases:
        assert relative_error(results["naive", case], one_batch(case)[1]) > 0.1, case


def test_a_set_level_training_curve_on_two_ranks_equals_that_on_one(results):
    model, loss = ranks.Tagger(), make_loss("dice", over="batch", exclude=(0,))

    def step(rows):
        x, y, mask = rows
        value = loss(model(x), y, mask)
        value.backward()
        return value.detach()

    values, weights = ranks.train(step, model)
    torch.testing.assert_close(results["curve", "exact"][0], values, rtol=1e-9, atol=0)
    torch.testing.assert_close(results["curve", "exact"][1], weights, rtol=1e-7, atol=1e-9)
    assert values[-1] < values[0]
    running, _ = results["curve", "running"]
    torch.testing.assert_close(running[0], values[0])  # the first window is exact
    assert not torch.allclose(running, values, rtol=1e-3)
    assert running[-1] < running[0]
