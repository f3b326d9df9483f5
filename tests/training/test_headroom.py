"""The headroom of a run of every task: written by training, found by the command."""

import json
import shutil

import pytest

from softf1.cli.main import main
from softf1.recipe import build_recipe
from softf1.training.run import train_run
from tests.training.test_run import case
from tests.training.toys import make_data, make_recipe, read_lines, write_recipe

KINDS = {
    "tagging": {"right labels", "right boundaries", "a better decision", "a better ranking"},
    "classification": {"a better decision", "a better ranking"},
    "multi-label": {"a better decision", "a better ranking"},
    "pairs": {"a better decision", "a better ranking"},
    "qa": {"a better ranking", "right boundaries"},
    "mrc_ner": {"right labels", "right boundaries", "a better decision", "a better ranking"},
}


def check(found):
    """What holds of any headroom."""
    decided = found["decided"]
    steps = [step["score"] for step in found["steps"]]
    assert steps[0] == pytest.approx(decided)
    assert steps[-1] == 1
    assert all(a <= b + 1e-12 for a, b in zip(steps, steps[1:], strict=False))
    for part in found["parts"]:
        assert 0 <= part["score"] <= 1
        if part["wins"]:
            assert part["gain"] >= -1e-12  # the decision itself is one of the ways


@pytest.mark.parametrize("name", KINDS)
def test_training_leaves_it_in_the_run(name, bert, tmp_path, capsys):
    recipe, data = case(name, bert)
    result = train_run(recipe, tmp_path / "run", data=data, quiet=True)
    found = json.loads((tmp_path / "run/headroom.json").read_text("utf-8"))
    check(found)
    assert (found["schema"], found["split"]) == (1, "test")
    assert found["examples"] == len(data["test"])
    assert found["decided"] == pytest.approx(result["scores"]["test"][found["metric"]])
    assert {part["wins"] for part in found["parts"]} - {""} == KINDS[name]
    capsys.readouterr()
    assert main(["headroom", str(tmp_path / "run"), "--examples"]) == 0
    out = capsys.readouterr().out
    assert f"{found['metric']} on test, {len(data['test'])} examples" in out
    assert found["summary"][1:] in out
