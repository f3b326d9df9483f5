import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import softf1
from softf1.cli import list as listing
from softf1.cli.main import main
from softf1.data import FORMATS
from softf1.losses.registry import loss_facts, loss_names
from softf1.models.encoders import ENCODERS, find_scratch
from softf1.recipe.loading import list_recipes
from softf1.tasks import find_task, list_tasks


def listed(capsys, *words):
    assert main(["list", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.pop("version") == 1
    return found


def names(entries):
    return {entry["name"] for entry in entries}


def test_everything_is_listed(capsys):
    found = listed(capsys)
    assert list(found) == ["losses", "tasks", "formats", "encoders", "recipes"]
    assert names(found["losses"]) == {*loss_names(), "A+B"}
    assert names(found["tasks"]) == set(list_tasks())
    assert names(found["formats"]) == set(FORMATS)
    assert names(found["encoders"]) == {"NAME", "FOLDER", "minilm", *ENCODERS}
    assert names(found["recipes"]) == set(list_recipes())
    assert all(entry["summary"] for entries in found.values() for entry in entries)


def test_the_lines_are_what_the_classes_say():
    """They are read from the source, without importing torch."""
    losses = {entry["name"]: entry["summary"] for entry in listing.list_entries("losses")}
    assert losses.pop("A+B") == loss_facts("ce+dice").summary
    assert losses == {name: loss_facts(name).summary for name in losses}
    tasks = {entry["name"]: entry["summary"] for entry in listing.list_entries("tasks")}
    assert tasks == {name: find_task(name).summary for name in tasks}
    encoders = {entry["name"]: entry["summary"] for entry in listing.list_entries("encoders")}
    assert all(encoders[name] == find_scratch(name).summary for name in ENCODERS)


def test_one_kind(capsys):
    found = listed(capsys, "recipes")
    assert list(found) == ["recipes"]
    entry = next(entry for entry in found["recipes"] if entry["name"] == "mrpc")
    assert (entry["task"], entry["loss"]) == ("pairs", "dsc")
    assert entry["paper"] == "F1 88.92 with DSC, 88.0 with CE (Table 6, BERT)"
    assert entry["run"] == "softf1 train mrpc"


def test_a_line_each(capsys):
    assert main(["list", "tasks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "tasks:"
    assert [line.split()[0] for line in lines[1:]] == list(list_tasks())
    assert main(["list", "recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(list_recipes())
    assert lines[1].endswith("; published: F1 93.33 with DSC, 93.04 with CE")


def test_an_unknown_kind_is_bad_usage(capsys):
    with pytest.raises(SystemExit) as exit_code:
        main(["list", "losess"])
    assert exit_code.value.code == 2
    assert "invalid choice: 'losess'" in capsys.readouterr().err


def test_a_loss_of_another_package_is_listed(monkeypatch):
    class Point:
        name, value = "mine", "my_package:MyLoss"

    def points(group):
        return [Point] if group == "softf1.losses" else []

    monkeypatch.setattr(listing, "find_plugins", points)
    assert listing.list_entries("losses")[-1] == {
        "name": "mine",
        "summary": "of another package: my_package:MyLoss",
    }
    assert "mine" not in names(listing.list_entries("tasks"))


def test_an_encoder_that_is_not_installed_says_so(monkeypatch):
    monkeypatch.setattr(listing, "find_spec", lambda _name: None)
    summaries = {entry["name"]: entry["summary"] for entry in listing.list_entries("encoders")}
    assert summaries["minilm"].endswith("(not installed: softf1[minilm])")


def test_listing_does_not_load_torch():
    code = (
        "import sys; from softf1.cli.main import main; assert main(['list']) == 0;"
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(softf1.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True)
