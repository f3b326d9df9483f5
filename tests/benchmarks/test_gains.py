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
        (gains.SUMMARY, gains.HELD_MARKS, gains.make_held(held)),
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
    spent |= {("a", "ce"): 2.0, ("b", "ce"): 3.0}
    monkeypatch.setattr(gains, "read_scores", lambda *_: test)
    monkeypatch.setattr(gains, "read_seconds", lambda: spent)
    rows = [{"grid": g, "data": g.upper(), "chosen": "auto", "gain": "1.5"} for g in scores]
    said = gains.say_compute(rows)
    assert "a step of `auto` took 2.0 to 3.0 times as long as one of cross entropy" in said
    assert "0.8 to 1.0 times the seconds of `auto` (median 0.9), for fewer " in said
    assert "for fewer than `auto` on A." in said
    assert "by −1.0 to +1.0 points; where that was more than half" in said
    assert said.endswith("longer training might catch up: A (+1.0).")
    chosen = {"a": "ce, twice the epochs", "b": "ce, twice the epochs"}
    edge = gains.say_edge([row | {"baseline": chosen[row["grid"]]} for row in rows])
    assert edge.endswith("we ran on A.")  # B has a longer one


def test_the_page_says_where_dev_or_the_best_epochs_are_against_auto(gains):
    rows = [
        {"data": "A", "gain_on_dev": "1.5", "gain_over_best": "2.0"},
        {"data": "B", "gain_on_dev": "-2.67", "gain_over_best": "-0.14"},
        {"data": "C", "gain_on_dev": "-0.06", "gain_over_best": "1.14"},
    ]
    assert gains.say_dev(rows) == (
        "On dev, `auto` is behind cross entropy on B (−2.7); C (−0.1). "
        "By dev scores one would choose cross entropy there."
    )
    assert gains.say_dev(rows[:1]) == "On dev, `auto` is behind cross entropy on no task."
    # 2.0, −0.14 and 1.14: the mean is 1.0; t(0.975, 2) = 4.303, the standard error 1.0766/√3
    assert (
        "`auto` gains +1.0 ± 2.7 on average and is ahead on 2 of 3 tasks, behind on B (−0.1)"
        in (gains.say_best(rows))
    )


def test_tasks_of_one_corpus_count_once(gains):
    rows = [{"grid": "qqp10", "gain": "4"}, {"grid": "qqp37", "gain": "2"}]
    rows += [{"grid": "mrpc", "gain": "1"}]
    # (3 + 1) / 2 and (2 + 1) / 2; t(0.975, 1) = 12.706, the standard errors are 1 and 0.5
    assert gains.say_corpora(rows) == (
        "The tasks come from 2 corpora: with the mean gain of each corpus it is +2.0 ± 12.7, "
        "with the smallest of each +1.5 ± 6.4."
    )
    order = gains.read_plan(gains.PLAN)["order"]
    assert {grid for own in gains.read_plan(gains.PLAN)["corpora"].values() for grid in own} <= {
        *order
    }


def test_the_best_epochs_are_those_of_the_test_scores(gains):
    test = gains.read_scores(gains.RUNS, "test")
    for row in gains.find_gains() + gains.find_gains("held_out"):
        means = {n: gains.mean(own.values()) for n, own in test[row["grid"]].items() if own}
        assert means[row["best"]] == max(means[name] for name in gains.BASELINES if name in means)
        assert float(row["gain_over_best"]) == pytest.approx(
            means[row["chosen"]] - means[row["best"]], abs=0.01
        )


def test_intervals_over_seeds_only_are_marked(gains):
    row = {"gain": "3.16", "half": "0.46", "examples": "0"}
    assert gains.show_gain(row) == "**+3.2** ± 0.5†"
    assert gains.show_gain(row | {"examples": "9", "half": "4"}) == "+3.2 ± 4.0"
    marked = [r["data"] for r in gains.find_gains() if gains.show_gain(r).endswith("†")]
    assert marked == ["MSRA", "Tweets"]


def test_the_page_compares_with_the_gain_of_the_paper(gains):
    """BERT-MRC on CoNLL-2003 and MSRA, as the paper has it."""
    grids = gains.read_all(gains.read_plan(gains.PLAN))
    rows = [row for row in gains.find_gains() if row["grid"] not in ("conll03-tagger", "msra")]
    both = [(float(r["gain"]), gains.printed_gain(grids[r["grid"]], "dsc"), r) for r in rows]
    both = [one for one in both if one[1] is not None]
    larger, positive = [one for one in both if one[0] > one[1]], [o for o in both if o[1] > 0]
    page = gains.SUMMARY.read_text("utf-8")
    assert f"gain on {len(larger)} of {len(both)} tasks**" in page
    more = sum(one in larger for one in positive)
    assert f"on {more} of the {len(positive)} with a positive gain in the paper" in page
    inside = [r["data"] for own, paper, r in larger if own - float(r["half"]) < paper]
    assert sorted(inside) == ["MRPC", "QuoRef"]
    assert "On QuoRef and MRPC the interval includes the paper's gain" in page


def test_the_page_says_how_often_the_last_epochs_made_cross_entropy_worse(gains):
    test, rows = gains.read_scores(gains.RUNS, "test"), gains.find_gains()
    worse = 0
    for row in rows:
        shorter, longest = gains.list_there(test[row["grid"]])[-2:]
        worse += gains.mean(test[row["grid"]][longest].values()) < gains.mean(
            test[row["grid"]][shorter].values()
        )
    page = gains.SUMMARY.read_text("utf-8")
    assert f"made it worse on {worse} of {len(rows)} tasks" in page
    longer = [row for row in rows if test[row["grid"]]["auto, twice the epochs"]]
    assert len(longer) == 7  # "all seven tasks that had them"
    assert {row["chosen"] for row in longer} == {"auto, twice the epochs"}


def test_the_pages_say_how_good_the_baseline_is_and_what_fusing_changes(gains):
    rows = gains.find_gains()
    over = gains.compare_tuned(rows)
    page = gains.SUMMARY.read_text("utf-8")
    own, lefts, wholes = {row["grid"]: float(row["gain"]) for row in rows}, [], []
    for grid in sorted(over, key=over.get)[-2:]:  # said by name
        left = own[grid] - over.pop(grid)
        assert f"`auto` gains {left:.1f} instead of {own[grid]:.1f}" in page
        lefts.append(f"{left:.1f}")
        wholes.append(f"{own[grid]:.1f}")
    readme = gains.README.read_text("utf-8")
    assert (
        f"gains {lefts[0]} there and {lefts[1]} on QQP 10%, not {' and '.join(wholes)}." in readme
    )
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


def test_the_pages_compare_a_tagger_with_bert_mrc(gains):
    own = {row["grid"]: f"{float(row['auto']):.1f}" for row in gains.find_gains()}
    page = (ROOT / "docs/howto/choose-a-loss.md").read_text("utf-8")
    assert f"{own['conll03-tagger']} against {own['conll03-mrc']} on CoNLL-2003" in page
    assert f"{own['msra']} against {own['msra-mrc']} on MSRA" in page
    page = (ROOT / "docs/tutorials/names.md").read_text("utf-8")
    assert f"BERT-MRC has {own['conll03-mrc']} and the tagger {own['conll03-tagger']}" in page


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
    table = gains.make_table([rows["mrpc"], rows["qqp10"]], full=True).splitlines()
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
    range_ = gains.say_compute(rows).partition("trained for ")[2].partition(" times")[0]
    assert f"The longest cross entropy takes {range_} times the training seconds of `auto`" in page
    best = [float(row["gain_over_best"]) for row in rows]
    assert f"`auto` gains {gains.show_mean(best).removeprefix('+')} on average and is" in page
    (behind,) = [row for row in rows if float(row["gain_over_best"]) < 0]
    assert f"behind only on {gains.list_behind({behind['data']: -0.1})}" in page
    assert gains.points(float(behind["gain_over_best"])) == "−0.1"
    on_dev = {r["data"]: float(r["gain_on_dev"]) for r in rows + gains.find_gains("held_out")}
    assert {data for data, gain in on_dev.items() if gain < 0} == {"QQP 10%", "HKCanCor", "Tweets"}
    qqp, names, tweets = (gains.points(on_dev[n]) for n in ("QQP 10%", "HKCanCor", "Tweets"))
    assert f"behind on QQP 10% ({qqp}), HKCanCor ({names}) and the tweets ({tweets})" in page


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
