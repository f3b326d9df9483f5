"""A model from scratch: pages and log show what the file holds, and the default follows."""

import sys

import pytest

from softf1.recipe.sections import SECTIONS
from tests.pages import ROOT


@pytest.fixture
def scratch(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import scratch

    yield scratch
    sys.modules.pop("scratch")


def test_tables_are_those_of_the_file(scratch):
    for page, (mark, make) in scratch.TABLES.items():
        text = (scratch.DOCS / page).read_text("utf-8")
        shown = text.partition(f"<!-- {mark} -->\n")[2].partition(f"<!-- end of {mark} -->")[0]
        assert shown.strip() == make().strip()


def test_every_row_has_its_seeds(scratch):
    for name, (_, rows) in scratch.COMPARISONS.items():
        found = scratch.read_rows(name)
        assert {row: line["seeds"] for row, line in found.items()} == dict.fromkeys(rows, "8")
    assert scratch.TITLES.keys() | {scratch.STEP, scratch.DECODER} == scratch.COMPARISONS.keys()
    assert scratch.STEP_TITLES.keys() == scratch.STEPS.keys()


def test_the_log_has_the_figures(scratch):
    log = (scratch.DOCS / "research-log.md").read_text("utf-8")
    for name in scratch.COMPARISONS:
        for row in list(scratch.read_rows(name).values())[1:]:
            assert scratch.show_gain(row).replace("*", "") in log, (name, row["row"])


def test_pages_say_what_was_found_and_the_default_follows(scratch):
    """The prior is nowhere surely behind, so it is the default."""
    rows = {name: scratch.read_rows(name)["prior"] for name in scratch.TITLES}
    assert all(float(row["high"]) > 0 for row in rows.values())
    assert SECTIONS["train"]().head_bias == "prior"
    own = rows["ce, demo"]
    pages = {
        "concepts/when-dice-does-not-help.md": scratch.show_gain(own).replace("*", ""),
        "howto/choose-a-loss.md": f"{100 * float(own['difference']):.1f} for a BiLSTM",
    }
    for page, said in pages.items():
        assert said in (scratch.DOCS / page).read_text("utf-8")
