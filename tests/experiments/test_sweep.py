import json
from functools import partial

import pytest

from softf1.errors import InputError
from softf1.experiments.sweep import combine, parse_axes, parse_complements, sweep
from softf1.recipe import with_values
from tests.experiments import fake
from tests.experiments.fake import run_inline

here = partial(run_inline, fake.train_run)


def test_lists_are_axes_and_single_values_are_not():
    axes, rest = parse_axes(
        ["loss.alpha=0.1,0.2", 'task.positive="a,b"', "loss.mix=[1, 0.5],[1, 1]", "train.lr=1e-3"]
    )
    assert axes == {"loss.alpha": [0.1, 0.2], "loss.mix": [[1, 0.5], [1, 1]]}
    assert rest == ['task.positive="a,b"', "train.lr=1e-3"]
    with pytest.raises(InputError, match="wanted a value in TOML"):
        parse_axes(["loss.mix=[1 2],[1, 1]"])


def test_beta_follows_alpha():
    complements = parse_complements(["loss.alpha:loss.beta"])
    rows = combine({"loss.alpha": [0.1, 0.3, 0.9]}, complements)
    assert [row["loss.beta"] for row in rows] == [0.9, 0.7, 0.1]  # no 0.09999999999999998
    with pytest.raises(InputError, match=r"wanted numbers for loss\.name, got 'ce'"):
        combine({"loss.name": ["ce"]}, {"loss.name": "loss.beta"})
    with pytest.raises(InputError, match=r"of a key of the sweep and another, got loss\.gamma"):
        combine({"loss.alpha": [0.1]}, {"loss.gamma": "loss.beta"})
    with pytest.raises(InputError, match="wanted --complement KEY:OTHER"):
        parse_complements(["loss.alpha"])


def test_every_combination_is_run_with_every_seed(tmp_path):
    recipe = with_values(fake.make_recipe(), {"loss.name": "focal"})
    axes = {"loss.gamma": [0.0, 2.0], "train.lr": [0.001, 0.0025]}
    found = sweep(recipe, tmp_path, axes=axes, seeds=[0, 1, 2], execute=here, quiet=True)
    rows = {row["loss"]: row for row in found["rows"]}
    assert list(rows) == [
        "gamma=0.0 lr=0.001",
        "gamma=0.0 lr=0.0025",
        "gamma=2.0 lr=0.001",
        "gamma=2.0 lr=0.0025",
    ]
    assert rows["gamma=0.0 lr=0.001"]["verdict"] == "baseline"
    assert rows["gamma=2.0 lr=0.0025"]["difference"] > rows["gamma=2.0 lr=0.001"]["difference"] > 0
    grid = json.loads((tmp_path / "grid.json").read_text("utf-8"))
    assert (grid["kind"], grid["axis"]) == ("sweep", ["loss.gamma", "train.lr"])
    assert len(grid["cells"]) == 12
    assert grid["cells"][-1]["id"] == "gamma=2.0_lr=0.0025-s2"
    assert grid["cells"][-1]["values"] == {"loss.gamma": 2.0, "train.lr": 0.0025, "train.seed": 2}
    assert found["axis"]["gamma=0.0 lr=0.0025"] == {"loss.gamma": 0.0, "train.lr": 0.0025}


def test_losses_can_be_swept_too(tmp_path):
    axes = {"loss.name": ["ce", "dice"]}
    found = sweep(fake.make_recipe(), tmp_path, axes=axes, seeds=[0, 1], execute=here, quiet=True)
    assert [row["loss"] for row in found["rows"]] == ["name=ce", "name=dice"]
    cells = json.loads((tmp_path / "grid.json").read_text("utf-8"))["cells"]
    assert [cell["loss"] for cell in cells] == ["ce", "ce", "dice", "dice"]


def test_nothing_to_sweep_and_seeds_are_refused(tmp_path):
    for axes in ({}, {"train.seed": [1, 2]}):
        with pytest.raises(InputError, match="two values or more"):
            sweep(fake.make_recipe(), tmp_path, axes=axes, seeds=[0], execute=here)
    with pytest.raises(InputError, match=r"train\.lrr: unknown key"):
        sweep(
            fake.make_recipe(),
            tmp_path / "grid",
            axes={"train.lrr": [1, 2]},
            seeds=[0],
            execute=here,
        )


def test_a_sweep_speaks_of_settings(tmp_path):
    axes = {"train.eps": [1e-8, 1e-7]}
    found = sweep(fake.make_recipe(), tmp_path, axes=axes, seeds=[0, 1], execute=here, quiet=True)
    assert found["verdict"].startswith("No setting is significantly better than eps=1e-08")
