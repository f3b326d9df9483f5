"""The losses on real names: rows that can be trained, and tables that are those of the file."""

import csv
import json
import sys
from collections import Counter

import pytest

from softf1.losses import make_loss
from tests.pages import ROOT


@pytest.fixture
def names(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import names

    yield names
    sys.modules.pop("names")


def test_every_row_is_a_loss_with_its_options(names):
    for row, values in names.ROWS.items():
        options = {key.removeprefix("loss."): value for key, value in values.items()}
        name, nested = options.pop("name"), {}
        for key in [key for key in options if "." in key]:
            part, _, own = key.partition(".")
            nested.setdefault(part, {})[own] = options.pop(key)
        for own in (options, *nested.values()):
            if "exclude" in own:
                own["exclude"] = [0]  # names of labels are indices in a loss
        make_loss(name, **options, **nested)
        if row.startswith("tversky "):
            alpha, beta = map(float, row.removeprefix("tversky ").split("/"))
            assert (options["alpha"], options["beta"]) == (alpha, beta)
            assert alpha + beta == pytest.approx(1)


def test_tables_are_those_of_the_file(names):
    for page, tables in names.TABLES.items():
        text = (names.DOCS / page).read_text("utf-8")
        for mark, make in tables.items():
            shown = text.partition(f"<!-- {mark} -->\n")[2].partition(f"<!-- end of {mark} -->")[0]
            assert shown.strip() == make().strip(), mark


def test_every_row_has_its_seeds_once(names):
    lines = names.read_csv(names.RESULTS)
    runs = Counter((line["row"], line["seed"]) for line in lines if line["split"] == "test")
    assert runs == Counter((row, str(seed)) for row in names.ROWS for seed in range(3))
    halves = {line["epoch"] for line in lines if line["split"] == "dev"}
    assert halves == {f"{0.5 * count}" for count in range(1, 9)}


def test_scores_are_collected_by_row_and_epoch(names, tmp_path):
    path = tmp_path / "names.csv"
    kept = [("ce", 0, "dev", 1.0, 0.5), ("ce", 1, "dev", 1.0, 0.7), ("ce", 0, "test", 3.5, 0.6)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([("row", "seed", "split", "epoch", "f1"), *kept])
    assert names.collect("dev", "f1", path) == {"ce": {"1.0": [50.0, 70.0]}}
    assert names.collect("test", "f1", path) == {"ce": {"": [60.0]}}  # whatever epoch was kept
    assert names.spread([50.0, 70.0]) == "60.0\u00a0±\u00a014.1"  # √((10² + 10²) / 1)


def test_evaluations_of_a_run_are_those_of_its_log(names, tmp_path):
    scores = {"precision": 0.5, "recall": 1.0, "f1": 2 / 3}
    log = [
        {"event": "step", "step": 10, "loss": 0.1},
        {"event": "eval", "epoch": 0.5, "split": "dev", "scores": scores},
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, log)))
    result = {"best": {"epoch": 0.5}, "scores": {"test": scores | {"f1": 0.25}}}
    dev, test = names.read_evaluations(tmp_path, result)
    assert (dev["split"], dev["epoch"], dev["f1"]) == ("dev", 0.5, 2 / 3)
    assert (test["split"], test["epoch"], test["f1"]) == ("test", 0.5, 0.25)
