"""The class prior against a zero bias: the page and the log show what the file holds."""

import sys

import pytest

from softf1.recipe.sections import SECTIONS
from tests.pages import ROOT


@pytest.fixture
def head_bias(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import head_bias

    yield head_bias
    sys.modules.pop("head_bias")


def test_the_table_is_that_of_the_file(head_bias):
    text = (head_bias.DOCS / "weights.md").read_text("utf-8")
    shown = text.partition("<!-- head bias -->\n")[2].partition("<!-- end of head bias -->")[0]
    assert shown.strip() == head_bias.make_table().strip()


def test_every_setting_has_its_seeds_and_a_name(head_bias):
    rows = head_bias.read_csv(head_bias.RESULTS)
    found = [(row["setting"], row["bias"], row["seeds"]) for row in rows]
    assert found == [(s, bias, "8") for s in head_bias.SETTINGS for bias in ("zero", "prior")]
    assert head_bias.TITLES.keys() == head_bias.SETTINGS.keys()


def test_pages_say_what_was_found_and_the_default_follows(head_bias):
    """The prior is nowhere surely behind, so it is the default."""
    rows = {
        row["setting"]: row
        for row in head_bias.read_csv(head_bias.RESULTS)
        if row["bias"] == "prior"
    }
    assert all(float(row["high"]) > 0 for row in rows.values())
    assert SECTIONS["train"]().head_bias == "prior"
    log = (head_bias.DOCS / "research-log.md").read_text("utf-8")
    for row in rows.values():
        gain, low, high = (100 * float(row[key]) for key in ("difference", "low", "high"))
        assert f"{gain:+.1f} [{low:.1f}, {high:.1f}]".replace("-", "−") in log
    gain = 100 * float(rows["ce, demo"]["difference"])
    pages = {
        "concepts/when-dice-does-not-help.md": f"{gain:+.1f} [",
        "howto/choose-a-loss.md": f"{gain:.1f} for a BiLSTM",
    }
    for page, said in pages.items():
        assert said in (head_bias.DOCS / page).read_text("utf-8")
