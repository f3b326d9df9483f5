"""The grids over real corpora: what is run, how files are split, and the tables made of it."""

import json
import sys
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import corpora  # noqa: E402
import corpora_data  # noqa: E402
import corpora_table  # noqa: E402
import same_seed  # noqa: E402

from softf1.experiments.search import check_losses, list_settings  # noqa: E402
from softf1.recipe import check_recipe, with_values  # noqa: E402

GRIDS = corpora.read_grids()
COMPARED = [name for name, grid in GRIDS.items() if grid.get("kind") in (None, "folds")]


@pytest.mark.parametrize("name", COMPARED)
def test_every_row_of_a_grid_can_be_trained(name):
    recipe = corpora.make_recipe(GRIDS[name], Path("work"))
    rows = check_losses(corpora.list_rows(GRIDS[name]), recipe)
    assert len(rows) == 11
    settings = {}
    for row in rows:
        settings[row] = list_settings(row, recipe, "small")
        for values in settings[row]:
            check_recipe(with_values(recipe, values))
    decays = [with_values(recipe, settings[row][0]).loss.options.get("decay") for row in rows]
    assert decays == [None] * 8 + ["paper", "paper", None]  # rows are what their names say


def test_tables_are_those_of_the_files():
    rows = corpora_table.read_rows()
    for name, tables in corpora_table.TABLES.items():
        page = (corpora_table.DOCS / name).read_text("utf-8")
        for mark, make in tables.items():
            shown = page.partition(f"<!-- {mark} -->\n")[2].partition(f"<!-- end of {mark} -->")[0]
            assert shown.strip() == make(rows), mark


def test_answers_to_the_paper_have_its_gain_and_three_of_ours(monkeypatch, tmp_path):
    gains = tmp_path / "gains.csv"
    lines = ["grid,gain,half,examples", "mrpc,0.75,2.77,408", "qqp37,-0.97,0.75,0", "sst5,1.09,,9"]
    gains.write_text("\n".join([*lines, "msra-mrc,2.14,1.08,9"]) + "\n", "utf-8")
    monkeypatch.setattr(corpora_table, "GAINS", gains)
    lines = corpora_table.answers(corpora_table.read_rows()).splitlines()[2:]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    found = {row[0]: row[1:] for row in cells}
    first = ["MRPC", "QQP, 37% positive", "SST-5", GRIDS["msra-mrc"]["title"]]
    assert [row[0] for row in cells[:4]] == first  # with a gain
    assert found[first[-1]][1:3] == ["not measured"] * 2  # no loss alone was run there
    assert found["MRPC"][0] == "+0.9"  # 88.92 with DSC, 88.0 with cross entropy
    assert [found[row[0]][-1] for row in cells[:5]] == [
        "+0.8\u00a0±\u00a02.8", "**−1.0**\u00a0±\u00a00.8†", "+1.1\u00a0(1\u00a0seed)",
        "**+2.1**\u00a0±\u00a01.1", "",
    ]  # fmt: skip
    (own,) = [
        row for row in corpora.read_csv(corpora.ROWS)
        if (row["grid"], row["loss"]) == ("ud1_4", "ce+dice")
    ]  # fmt: skip
    assert f"{100 * float(own['high']):.1f}]" in found[GRIDS["ud1_4"]["title"]][2]


def test_means_of_rows_are_those_of_their_runs():
    runs = corpora.read_csv(corpora.RUNS)
    for row in corpora.read_csv(corpora.ROWS):
        own = [
            float(run[row["split"]])
            for run in runs
            if (run["grid"], run["loss"], run["kind"]) == (row["grid"], row["loss"], "run")
        ]
        assert len(own) == int(row["n"])
        assert sum(own) / len(own) == pytest.approx(float(row["mean"]), abs=2e-5)


def test_runs_are_the_same_that_have_seed_and_settings_in_common(tmp_path):
    line = {"grid": "a", "kind": "run", "loss": "ce", "seed": "0", "values": "{}", "hash": "1"}
    both, other = line | {"test": "0.5"}, line | {"seed": "1", "test": "0.7"}
    kept = [both, other, both | {"hash": "1+", "test": "0.9"}, both | {"kind": "trial"}]
    scores = []
    for name, rows in (("old", kept), ("new", [both | {"test": "0.6"}])):
        corpora.write_csv(tmp_path / name, (*line, "test"), rows)
        scores.append(same_seed.read_scores(tmp_path / name))
    assert len(scores[0]) == 2
    assert same_seed.list_gaps(*scores) == {"a": [pytest.approx(0.1)]}


def test_grids_that_are_not_there_are_refused(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["corpora.py", "run", "work", "--only", "mprc"])
    with pytest.raises(SystemExit, match=r"wanted grids of conll03-tagger, .* got mprc"):
        corpora.main()


def test_no_run_is_there_twice():
    keys = [(run["grid"], run["hash"]) for run in corpora.read_csv(corpora.RUNS)]
    assert len(set(keys)) == len(keys)


@pytest.fixture
def preparer(tmp_path):
    return corpora_data.Preparer(tmp_path, tmp_path / "out", None)


def write(tmp_path, name, text):
    path = tmp_path / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def test_pairs_are_thinned_to_the_share(tmp_path, preparer):
    for part in ("dev", "test"):
        rows = [f"{n % 2}\tfirst {part} {n}\tsecond {n}\t{n}" for n in range(400)]
        write(tmp_path, f"qqp_20k/{part}.tsv", "\n".join(rows) + "\n")
    preparer.thin_questions("qqp10", 0.1)
    parts = {}
    for part in ("train", "dev", "test"):
        lines = (tmp_path / f"out/data/qqp10/{part}.tsv").read_text("utf-8").splitlines()
        parts[part] = [line.split("\t") for line in lines[1:]]
    assert [len(parts[part]) for part in ("train", "dev", "test")] == [200, 22, 222]
    for rows in (parts["train"] + parts["dev"], parts["test"]):
        assert sum(row[-1] == "1" for row in rows) == 22
        assert len({row[3] for row in rows}) == 222


def test_articles_and_folds_are_split_without_overlap(tmp_path, preparer):
    articles = [{"title": str(n), "paragraphs": []} for n in range(20)]
    write(tmp_path, "squad_dev/some.json", json.dumps({"data": articles}))
    preparer.split_articles("squad_dev/some.json", "squad1.1")
    found = [
        [
            a["title"]
            for a in json.loads((tmp_path / f"out/data/squad1.1/{p}.json").read_text())["data"]
        ]
        for p in ("train", "dev", "test")
    ]
    assert [len(own) for own in found] == [14, 2, 4]
    assert sorted(chain.from_iterable(found), key=int) == [str(n) for n in range(20)]
    write(tmp_path, "ritter_twitter_pos/pos.txt", "\n\n".join(f"w{n} NN" for n in range(20)))
    preparer.fold_tweets()
    tests = []
    for fold in range(5):
        parts = [
            (tmp_path / f"out/data/tweets-{fold}/{part}.txt").read_text().split("\n\n")[:-1]
            for part in ("train", "dev", "test")
        ]
        assert [len(own) for own in parts] == [12, 4, 4]
        assert len({block for own in parts for block in own}) == 20
        tests += parts[2]
    assert len(set(tests)) == 20


def test_without_the_corpora_nothing_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["corpora_data.py", str(tmp_path), str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="nothing to measure on"):
        corpora_data.main()
