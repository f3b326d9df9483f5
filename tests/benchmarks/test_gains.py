"""What `auto` gains over cross entropy: chosen on dev, with intervals, the same on every page."""

import csv
import sys

import numpy as np
import pytest

from tests.pages import ROOT


@pytest.fixture
def gains(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import gains

    yield gains
    for name in ("gains", "beyond", "corpora", "corpora_table"):
        sys.modules.pop(name, None)


def test_the_files_and_pages_are_those_of_the_runs(gains):
    rows, held = gains.find_gains(), gains.find_gains("held_out")
    for path, own in ((gains.GAINS, rows), (gains.HELD, held)):
        with path.open(encoding="utf-8", newline="") as file:
            assert list(csv.DictReader(file)) == [
                {key: str(value) for key, value in row.items()} for row in own
            ]
    for page, marks, table in (
        (gains.README, gains.MARKS, gains.make_table(rows[:6])),
        (gains.SUMMARY, gains.MARKS, gains.make_summary(rows)),
        (gains.SUMMARY, gains.HELD_MARKS, gains.make_table(held, epochs=True)),
    ):
        first, last = marks
        shown = page.read_text("utf-8").partition(first)[2].partition(last)[0]
        assert shown.strip() == table.strip()


def test_cross_entropy_may_train_at_least_as_long_as_auto(gains):
    """It gets twice the epochs everywhere, and four times where `auto` gets twice."""
    runs = gains.read_scores(gains.RUNS, "dev")
    for row in gains.find_gains() + gains.find_gains("held_out"):
        there = runs[row["grid"]]
        assert len(there[gains.BASELINE + gains.TWICE]) >= gains.SEEDS
        if there[gains.AUTO + gains.TWICE]:
            assert len(there[gains.BASELINE + gains.FOUR_TIMES]) >= gains.SEEDS


def test_the_page_says_where_more_epochs_might_catch_up(gains, monkeypatch):
    scores = {
        "a": {"ce": 80.0, "ce, twice the epochs": 81.0, "auto": 82.0},
        "b": {"ce": 70.0, "ce, twice the epochs": 70.0, "ce, four times the epochs": 69.0},
    }
    names = {*gains.BASELINES, *gains.AUTOS}
    test = {
        grid: {name: {"0": own[name]} if name in own else {} for name in names}
        for grid, own in scores.items()
    }
    spent = {("a", "ce, twice the epochs"): 3.0, ("a", "auto"): 4.0}
    spent |= {("b", "ce, four times the epochs"): 9.0, ("b", "auto"): 9.0}
    monkeypatch.setattr(gains, "read_scores", lambda *_: test)
    monkeypatch.setattr(gains, "read_seconds", lambda: spent)
    rows = [{"grid": g, "data": g.upper(), "chosen": "auto", "gain": "1.5"} for g in scores]
    said = gains.say_compute(rows)
    assert "0.8 to 1.0 times the seconds of `auto` (median 0.9), for fewer " in said
    assert "for fewer than `auto` on A." in said
    assert "by −1.0 to +1.0 points, by more than half of the gain of `auto` on A (+1.0)." in said


def test_the_pages_say_how_good_the_baseline_is_and_what_fusing_changes(gains):
    rows = gains.find_gains()
    over = gains.compare_tuned(rows)
    page = gains.SUMMARY.read_text("utf-8")
    own = {row["grid"]: float(row["gain"]) for row in rows}
    for grid in sorted(over, key=over.get)[-2:]:  # said by name
        left = own[grid] - over.pop(grid)
        assert f"`auto` gains {left:.1f} instead of {own[grid]:.1f}" in page
    assert f"at most {max(over.values()):.1f} points above" in page
    assert f"up to {-min(over.values()):.1f} below it" in page
    fused = gains.compare_fused()
    text = f"{gains.mean(fused):+.2f} ± {gains.half_width(fused):.2f}".replace("-", "−")
    assert f"over the {len(fused)} tasks" in (ROOT / "benchmarks/README.md").read_text("utf-8")
    assert text in (ROOT / "benchmarks/README.md").read_text("utf-8")


def test_the_page_says_what_more_epochs_give_with_auto(gains):
    page = (ROOT / "docs/howto/beat-cross-entropy.md").read_text("utf-8")
    scores = gains.read_scores(gains.RUNS, "test")
    places = {"quoref": "on QuoRef", "tnews": "on TNEWS", "sst2": "on SST-2"}
    for grid, place in (places | {"conll03-mrc": "in BERT-MRC", "msra": "on MSRA"}).items():
        longer, own = (scores[grid][name].values() for name in ("auto, twice the epochs", "auto"))
        assert f"{gains.mean(longer) - gains.mean(own):.1f} {place}" in page


def test_dev_chooses_how_long_a_variant_trains(gains):
    dev = {name: dict.fromkeys("01234", 0.0) for name in (*gains.BASELINES, *gains.AUTOS)}
    dev["ce, twice the epochs"] = dict.fromkeys("01234", 2.0)
    dev["auto"] = dict.fromkeys("01234", 1.0)
    assert gains.choose(dev, gains.BASELINES) == "ce, twice the epochs"
    assert gains.choose(dev, gains.AUTOS) == "auto"
    assert gains.choose(dev | {"ce": {}}, gains.BASELINES) == "ce, twice the epochs"
    assert gains.choose(dev | {"ce": {"0": 9.0}}, gains.BASELINES) is None  # runs are missing


def test_the_interval_is_over_seeds_and_examples(gains):
    test = {"auto": {"0": 60.0, "1": 62.0}, "ce": {"0": 58.0, "1": 59.0}}
    random = np.random.default_rng(0)
    examples = {("mrpc", name, seed): random.random(50) for name in test for seed in "01"}
    alone = gains.compare("mrpc", test, "auto", "ce", {})
    both = gains.compare("mrpc", test, "auto", "ce", examples)
    assert (alone.mean, alone.seeds, alone.examples) == (2.5, 2, 0)
    assert (both.mean, both.seeds, both.examples) == (2.5, 2, 50)
    assert gains.compare("tweets", test, "auto", "ce", examples).examples == 0  # folds


def test_the_gain_of_the_paper_stands_beside_that_of_auto(gains):
    rows = {row["grid"]: row for row in gains.find_gains()}
    table = gains.make_table([rows["mrpc"], rows["qqp10"]], epochs=True).splitlines()
    assert "| gain | paper |" in table[0]
    assert "± 0.6 | +0.9 |" in table[2]  # MRPC there: 88.92 with DSC, 88.0 with cross entropy
    assert "± 3.2 | – |" in table[3]  # the paper has no QQP with 10% positives


def test_the_readme_says_which_intervals_cover_seeds_only(gains):
    rows = gains.find_gains()
    page = gains.README.read_text("utf-8")
    assert all(int(row["examples"]) for row in rows[: gains.README_ROWS])  # over both, as it says
    sure = gains.find_sure(rows)
    assert f"on {len(sure)} of them significantly" in page
    held = [
        f"{float(r['gain']):.1f} ± {float(r['half']):.1f}" for r in gains.find_gains("held_out")
    ]
    assert f"it gains {', '.join(held[:2])} and {held[2]} points" in page
    points = [float(row["gain"]) for row in rows]
    ahead = sum(gain > 0 for gain in points)
    assert f"above 0 on {'all ' * (ahead == len(rows))}{ahead}, " in page
    assert f"between {min(points):.1f} and {max(points):.1f} points".replace("-", "−") in page
    assert [row["grid"] for row in sure if not int(row["examples"])] == ["msra", "tweets"]
    assert "on two of these, MSRA and the tweets, the interval covers seeds only" in page
    range_ = gains.say_compute(rows).partition("trains for ")[2].partition(" times")[0]
    assert f"The longest cross entropy takes {range_} times the training seconds of `auto`" in page


def test_what_an_example_adds_is_read_back(gains, tmp_path):
    import base64
    import zlib

    values = np.array([0.5, -1.25, 3.0], np.float32)
    packed = base64.b64encode(zlib.compress(values.tobytes())).decode()
    path = tmp_path / "examples.csv"
    path.write_text(f'mrpc,"ce, twice the epochs",0,{packed}\n', "utf-8")
    (key, got), *rest = gains.read_examples(path).items()
    assert (key, rest) == (("mrpc", "ce, twice the epochs", "0"), [])
    assert np.array_equal(got, values)


def test_the_pseudo_values_add_up_to_the_score(gains):
    """Their mean is the score but for the small bias of a ratio."""
    examples = gains.read_examples(gains.EXAMPLES)
    scores = gains.read_scores(gains.RUNS, "test")
    assert len(examples) > 250
    for (grid, variant, seed), values in examples.items():
        assert 100 * values.mean() == pytest.approx(scores[grid][variant][seed], abs=0.75)
