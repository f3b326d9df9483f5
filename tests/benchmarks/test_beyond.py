"""The table of what beats cross entropy is that of its file, and so is the evidence of `auto`."""

import csv
import re
import sys
from statistics import fmean

import pytest

from softf1.recipe.auto import read_rules
from tests.pages import ROOT

RESULTS = ROOT / "benchmarks" / "results"
BOTH = "adv .5, con 1"
EVIDENCE = {
    "several labels": [
        ("leads", "conll03-types", f"ce+dice batch, {BOTH}"),
        ("leads", "conll03-types", f"ce, {BOTH}"),
        ("leads", "conll03-types", f"ce, balanced, {BOTH}"),
        ("leads", "conll03-types", f"wce, {BOTH}"),
        ("leads", "conll03-types", f"asymmetric, {BOTH}"),
        ("leads", "resume-types", f"ce+dice batch, {BOTH}"),
        ("leads", "msra-types", f"ce+dice batch, {BOTH}"),
    ],
    "few positives": [
        ("beyond", "qqp10", "auto"),
        ("beyond", "qqp10", "wce, adv .5"),
        ("beyond", "qqp10", f"wce, {BOTH}"),
        ("beyond", "qqp10", "la, adv .5"),
        ("beyond", "qqp10", "ce, adv .5"),
        ("beyond", "qqp10", f"ce, {BOTH}"),
        ("leads", "qqp5", "wce, adv .5"),
        ("leads", "qqp5", f"la, {BOTH}"),
        ("leads", "qqp5", f"wce, {BOTH}"),
        ("leads", "qqp5", f"ce, {BOTH}"),
        ("auto", "qqp10", "auto"),
        ("auto", "qqp10", "ce, five times the epochs"),
    ],
    "macro F1": [
        ("beyond", "tnews", "auto"),
        ("beyond", "tnews", f"wce, {BOTH}"),
        ("beyond", "tnews", "ce, twice the epochs"),
    ],
    "spans of a few kinds": [
        ("beyond", "conll03-tagger", f"ce, crf, {BOTH}"),
        ("beyond", "msra", f"ce, crf, {BOTH}"),
        ("beyond", "conll03-tagger", "ce+dice, rel .5, con 1"),
        ("beyond", "msra", "ce+dice, rel .5, con 1"),
        ("beyond", "resume", "auto"),
        ("beyond", "resume", "ce+dice, rel .5, con 1"),
    ],
    "BERT-MRC": [
        ("beyond", "conll03-mrc", f"dsc authors, {BOTH}"),
        ("beyond", "conll03-mrc", f"ce+dice, {BOTH}"),
        ("beyond", "msra-mrc", f"dsc authors, {BOTH}"),
        ("beyond", "msra-mrc", f"ce+dice, {BOTH}"),
        ("auto", "conll03-mrc", "auto"),
        ("beyond", "conll03-mrc", "ce+dice, rel .5, con 1"),
        ("auto", "msra-mrc", "auto"),
        ("beyond", "msra-mrc", "ce+dice, rel .5, con 1"),
    ],
    "spans and tags": [
        ("beyond", "squad1_1", "auto"),
        ("beyond", "squad2_0", "auto"),
        ("beyond", "quoref", "auto"),
        ("beyond", "ud1_4", "auto"),
        ("beyond", "tweets", "auto"),
        ("beyond", "squad1_1", f"ce, {BOTH}"),
        ("beyond", "squad1_1", f"ce+dice, {BOTH}"),
        ("beyond", "ud1_4", f"ce, {BOTH}"),
        ("beyond", "ud1_4", f"ce+dice, {BOTH}"),
    ],
    "classes": [
        ("beyond", "qqp37", "auto"),
        ("beyond", "mrpc", "auto"),
        ("beyond", "sst5", "auto"),
        ("beyond", "sst2", "auto"),
        ("beyond", "qqp37", "ce, adv .5"),
        ("beyond", "mrpc", "ce, adv .5"),
    ],
}
"""The runs behind the figures of each rule, in the order in which they stand there."""


def find_gains(name, grid, variant, split="dev", other=("auto", "ce")):
    """Points over cross entropy of the same version, in its own file or auto.csv, by seed."""

    def read(name, variant):
        with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            rows = [r for r in csv.DictReader(file) if (r["grid"], r["variant"]) == (grid, variant)]
        return {(row["seed"], row["softf1"]): float(row[split]) for row in rows}

    own, ce = read(name, variant), read(*other) | read(name, other[1])
    return [100 * (own[run] - ce[run]) for run in own.keys() & ce.keys()]


def mean_gain(*run):
    return fmean(find_gains(*run))


def test_the_page_says_what_sizes_of_the_step_gave():
    runs = [("beyond", "conll03-tagger", f"ce, adv {size}", "test") for size in (".2", ".5", "1")]
    first, second, third = (f"{mean_gain(*one):.1f}" for one in runs)
    page = (ROOT / "docs/howto/beat-cross-entropy.md").read_text("utf-8")
    assert f"0.2, 0.5 and 1 gained {first}, {second} and {third}" in page


@pytest.mark.parametrize("rule", read_rules(), ids=lambda rule: rule.name)
def test_the_evidence_of_auto_is_that_of_its_files(rule, beyond):
    shown = re.findall(r"[+-]\d+\.\d(?: ± \d+\.\d)?", rule.evidence)
    found = [find_gains(*run) for run in EVIDENCE[rule.name]]
    assert shown == [f"{fmean(own):+.1f} ± {beyond.half_width(own):.1f}" for own in found]


@pytest.mark.parametrize(
    ("longer", "said"),
    [
        ("", "it has {} more than CE + dice trained in the same way on CoNLL-2003 and {} more on"),
        (", twice the epochs", "for twice the epochs, {} and {}."),
    ],
)
def test_the_pages_say_what_is_the_gain_of_dsc_itself(beyond, longer, said):
    """Over the same training with CE + dice, not over plain cross entropy."""
    shown = []
    for grid in ("conll03-mrc", "msra-mrc"):
        other = ("beyond", f"ce+dice, rel .5, con 1{longer}")
        own = find_gains("auto", grid, f"auto{longer}", "test", other)
        assert len(own) == 5
        shown.append(f"{fmean(own):.1f} ± {beyond.half_width(own):.1f}")
    assert said.format(*shown) in beyond.PAGE.read_text("utf-8")
    if not longer:
        page = (ROOT / "docs/howto/choose-a-loss.md").read_text("utf-8")
        assert f"gave {shown[0]} more than CE + dice on CoNLL-2003 and {shown[1]} more on" in page
        page = (ROOT / "docs/paper.md").read_text("utf-8")
        assert f"it has {shown[0]} more on CoNLL-2003 and {shown[1]} more on MSRA" in page


@pytest.fixture
def beyond(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import beyond

    yield beyond
    sys.modules.pop("beyond")


def test_the_table_is_that_of_the_file(beyond):
    first, last = beyond.MARKS
    page = beyond.PAGE.read_text("utf-8")
    assert page.partition(first)[2].partition(last)[0].strip() == beyond.make_table().strip()


def test_gains_are_paired_by_seed_and_bold_where_sure(beyond):
    # t(0.975, 2) = 4.303; the standard error of 1, 2, 3 is 1/√3: ± 2.5
    assert beyond.show_gain([1.0, 2.0, 3.0]) == "+2.0 ± 2.5"
    assert beyond.show_gain([2.0, 2.1, 2.2]) == "**+2.1** ± 0.2"
    assert beyond.show_gain([-1.0]) == "−1.0 (1 seed)"


def test_no_run_is_there_twice(beyond):
    rows = [(r["grid"], r["variant"], r["seed"]) for r in beyond.read_csv(beyond.RESULTS)]
    assert len(rows) == len(set(rows)) > 300


def test_what_the_page_reads_from_the_table_is_there(beyond):
    """Means over the tasks, and on how many a row is ahead."""
    page, found = beyond.PAGE.read_text("utf-8"), beyond.read_rows(*beyond.FILES)
    grids = beyond.read_plan()["order"]

    def gains(variant):
        return [fmean(beyond.find_gains(found[grid], variant, "test")) for grid in grids]

    both, dice, longer = map(gains, (f"ce, {BOTH}", f"ce+dice, {BOTH}", "ce, twice the epochs"))
    noise, step = gains("ce, noise .5"), gains("ce, adv .5")
    ahead = sum(gain > 0 for gain in both)
    assert (
        f"gain on {ahead} of {len(grids)} tasks** by point estimate, {fmean(both):.1f} on" in page
    )
    assert f"twice the epochs gains {fmean(longer):.1f} on average" in page
    assert f"adds little**, {fmean(dice) - fmean(both):.1f} on average" in page
    more = sum(own > other for own, other in zip(step, noise, strict=True))
    assert f"much: {fmean(noise):.1f} on average over the tasks, the adversarial one" in page
    last = grids.index("quoref")  # which has the largest gains of both
    rest = [fmean(own[:last] + own[last + 1 :]) for own in (noise, step)]
    without = "without QuoRef {:.1f} and {:.1f}".format(*rest)
    assert f"{fmean(step):.1f}, and more on {more} of {len(grids)} ({without})" in page
    shares = {
        (grid, loss): beyond.show_gain(beyond.find_gains(found[grid], f"{loss}, {BOTH}", "test"))
        for grid in ("qqp20", "qqp37")
        for loss in ("ce", "wce")
    }
    shares = {key: text.replace("*", "") for key, text in shares.items()}
    assert f"at 20% they are level ({shares['qqp20', 'ce']}), at 37% ahead" in page
    assert shares["qqp37", "ce"] == "+1.0 ± 0.8"
    weighted = [shares[grid, "wce"].removeprefix("+") for grid in ("qqp20", "qqp37")]
    assert "they gain {} at 20% and {} at 37%".format(*weighted) in page


@pytest.mark.parametrize(
    ("grid", "test", "dev"), [("conll03-mrc", 2.4, 2.3), ("msra-mrc", 3.8, 5.2)]
)
def test_the_authors_loss_with_both_leads_in_bert_mrc(beyond, grid, test, dev):
    rows = beyond.read_rows(*beyond.FILES)[grid]
    page = beyond.PAGE.read_text("utf-8")
    for split, shown in (("test", test), ("dev", dev)):
        own, other = (
            fmean(beyond.find_gains(rows, f"{loss}, {BOTH}", split))
            for loss in ("dsc authors", "ce+dice")
        )
        assert f"{own:.1f}" == f"{shown:.1f}"
        assert f"+{own:.1f}" in page
        assert own > other
