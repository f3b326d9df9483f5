"""The page as text: golden file, what it holds, what it must not hold."""

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from softf1.cli.main import main
from softf1.errors import InputError
from softf1.reports import page, write_report
from softf1.reports.figures import policy_hash
from softf1.reports.study import read_study
from tests.reports import grids
from tests.reports.conftest import SCRIPT

GOLDEN = Path(__file__).parent / "golden.html"


class Elements(HTMLParser):
    """All start tags, and the text of scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self._inside = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._inside = self._inside and tag != "script"

    def handle_data(self, data):
        if self._inside:
            self.scripts[-1] += data

    def all(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]


@pytest.fixture(scope="module")
def rendered(grid):
    return page.render(read_study([grid]), library="/* plotly */")


def test_golden_page(tmp_path):
    """A fixed grid gives this file; SOFTF1_GOLDEN=write writes it anew."""
    folder = grids.write_compare(
        tmp_path / "g", losses=("ce", "ce+tuned", "dice"), seeds=2, sentences=60,
        rename={"ORG": "<b>R&D</b>"}, missing=("dice-s1",),
    )  # fmt: skip
    text = page.render(read_study([folder]), library="")
    for tag in ("style", "script"):  # files of their own, which may change without this one
        text = re.sub(rf"<{tag}>.*?</{tag}>", f"<{tag}></{tag}>", text, flags=re.DOTALL)
    text = re.sub(r"sha256-[\w+/=]+", "sha256-", text)
    if os.environ.get("SOFTF1_GOLDEN") == "write":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_the_same_files_give_the_same_page(grid, rendered):
    assert page.render(read_study([grid]), library="/* plotly */") == rendered


def test_the_verdict_comes_before_all_else(grid, rendered):
    comparison = json.loads((grid / "comparison.json").read_text())
    place = rendered.index(comparison["verdict"])
    assert place < rendered.index('class="data"') < rendered.index('class="canvas"')


def test_only_our_two_scripts_may_run(rendered):
    elements = Elements(rendered)
    policy = next(meta["content"] for meta in elements.all("meta") if "http-equiv" in meta)
    kinds = [script.get("type") for script in elements.all("script")]
    assert kinds == ["application/json", None, None]
    allowed = re.search("script-src ([^;]*);", policy).group(1).split()
    assert allowed == [policy_hash(script) for script in elements.scripts[1:]]
    assert "default-src 'none'" in policy


def test_nothing_is_loaded_or_run_from_attributes(rendered):
    for tag, attributes in Elements(rendered).tags:
        assert not {"src", "srcset", "style", "action"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("href", "#").startswith("#"), tag


def test_a_label_that_is_a_script_is_shown(rendered):
    assert SCRIPT not in rendered
    assert "&lt;script&gt;document.title=&#39;run&#39;&lt;/script&gt;" in rendered


def test_what_screen_readers_need(rendered):
    elements = Elements(rendered)
    ids = [attributes["id"] for _, attributes in elements.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in elements.tags:
        if "aria-labelledby" in attributes:
            assert attributes["aria-labelledby"] in ids
        if attributes.get("role") in ("img", "group") and "aria-labelledby" not in attributes:
            assert attributes["aria-label"]
    tables, captions = elements.all("table"), elements.all("caption")
    assert len(tables) == len(captions) == 6
    assert all("scope" in header for header in elements.all("th"))
    assert elements.all("html") == [{"lang": "en"}]
    landmarks = [tag for tag, _ in elements.tags if tag in ("header", "nav", "main", "footer")]
    assert landmarks == ["header", "nav", "main", "footer"]
    canvases = [a for _, a in elements.tags if a.get("class") == "canvas"]
    behind = [a for a in elements.all("details") if a.get("class") == "behind"]
    assert len(canvases) == len(behind) == 9  # a table behind each plot


def test_verdicts_take_one_line_and_the_rest_is_behind_a_click(rendered):
    """No script unfolds them: the browser does."""
    cells = re.findall(r'<td class="verdicts"[^>]*>(.*?)</td>', rendered)
    assert {"baseline", "helps", "hurts"} <= set(cells)
    (folded,) = [cell for cell in cells if cell.startswith("<details>")]
    form = "<details><summary>(.*)</summary><p>(.*)</p></details>"
    summary, rest = re.fullmatch(form, folded).groups()
    assert summary == "no difference shown"
    assert rest.startswith(
        "no difference that 5 seeds can show; a gain of 0.5 would need 18 seeds;"
    )
    assert "with a probability of 9" in rest


def test_97_percent_does_not_stand_above_no_difference(grid, tmp_path):
    shutil.copytree(grid, tmp_path / "grid")
    comparison = json.loads((grid / "comparison.json").read_text("utf-8"))
    said = "perhaps better, not sure; a gain of 0.5 would need 18 seeds"
    for row in comparison["rows"][1:]:
        row |= {"p_holm": 0.2, "probability": 0.97, "verdict": said}
    grids.write_json(tmp_path / "grid/comparison.json", comparison)
    facts = page.make_context(read_study([tmp_path / "grid"]))["facts"]
    assert facts[-1].value == "perhaps better"
    assert "97" not in facts[-1].note


def test_scores_that_are_one_number_have_one_column(texts):
    table = page.make_context(read_study(texts))["tables"]["comparison"]
    assert [column.key for column in table.columns] == ["loss", "n", "mean", "sd"]


def test_rows_that_are_not_trained_stand_in_the_table_alone(grid, tmp_path):
    folder = tmp_path / "grid"
    shutil.copytree(grid, folder)
    shutil.copytree(folder / "cells/ce-s0", folder / "cells/majority")
    content = json.loads((folder / "grid.json").read_text("utf-8"))
    cell = {"id": "majority", "loss": "majority", "label": "majority", "seed": None}
    content["cells"].append(cell | {"values": {}, "folder": "cells/majority", "state": "done"})
    grids.write_json(folder / "grid.json", content)
    comparison = json.loads((folder / "comparison.json").read_text("utf-8"))
    row = comparison["rows"][1] | {"loss": "majority", "role": "reference", "mean": 0.0, "n": 1}
    comparison["rows"].append(row | {"calibration_error": 0.25, "verdict": "significantly below"})
    grids.write_json(folder / "comparison.json", comparison)
    before, context = (page.make_context(read_study([path])) for path in (grid, folder))
    table = context["tables"]["comparison"]
    assert table.rows[-1][0] == "majority"
    assert [row[0] for row in context["tables"]["calibration"].rows] == ["majority"]
    assert table.columns[-1].key == "verdict"  # the table has room for it: errors have their own
    assert context["best"].label == before["best"].label
    assert [group.label for group in context["groups"]] == [g.label for g in before["groups"]]
    assert context["data"].count('"majority"') == 2  # in these two tables
    assert context["compared"] == before["compared"] == "9 losses"


def test_what_is_missing_is_said(rendered, texts):
    assert "1 run has no result: dsc-s4 (failed)." in rendered
    assert "These figures are made up." in rendered  # a note of the comparison
    assert "Precision-recall curves: the predictions hold no probabilities." in rendered
    alone = page.render(read_study(texts[:1]), library="")
    assert "Not shown: there is nothing beside ce to compare with." in alone
    assert "ce: 8" in alone  # the score itself is the verdict


def test_notices_stand_at_the_foot(texts):
    text = page.render(read_study(texts[:1]), library="", notices=["Data: A & B, CC BY 4.0."])
    assert "<footer>\n<p>Data: A &amp; B, CC BY 4.0.</p>" in text


def test_runs_trained_on_other_data_have_a_verdict_and_a_note(tmp_path):
    folders = [grids.write_texts(tmp_path / loss, loss=loss) for loss in ("ce", "dice")]
    result = json.loads((folders[1] / "result.json").read_text())
    result["data"]["train"] = {"sha256": "0" * 64}
    grids.write_json(folders[1] / "result.json", result)
    text = page.render(read_study(folders), library="")
    assert "has the highest mean" in text
    assert "The runs differ in their train data: do not compare scores." in text


def test_runs_that_score_the_same_share_the_first_place(tmp_path):
    folders = []
    for loss, score in (("ce", 0.9), ("dice", 0.90001), ("focal", 0.9), ("wce", 0.8)):
        folders.append(grids.write_texts(tmp_path / loss, loss=loss))
        result = json.loads((folders[-1] / "result.json").read_text())
        result["scores"]["test"] = dict.fromkeys(result["scores"]["test"], score) | {"labels": {}}
        grids.write_json(folders[-1] / "result.json", result)
    text = page.render(read_study(folders), library="")
    assert "ce, dice and focal have the highest mean, 90.00 " in text
    text = page.render(read_study([folders[3], folders[0]]), library="")
    assert "ce has the highest mean, 90.00 " in text


def test_runs_on_other_data_are_not_compared_in_silence(tmp_path):
    one = grids.write_texts(tmp_path / "one", loss="ce", texts=30)
    other = grids.write_texts(tmp_path / "other", loss="dice", texts=40)
    result = json.loads((other / "result.json").read_text())
    result["data"]["test"]["sha256"] = "0" * 64
    grids.write_json(other / "result.json", result)
    text = page.render(read_study([one, other]), library="")
    assert "The runs differ in their test data: do not compare scores." in text
    assert "No verdict: the runs have other test data, so scores cannot be compared." in text
    assert "2 rows · 2 runs" in text
    assert "has the highest mean" not in text
    assert "Not shown: the runs were tested on different examples." in text


def test_runs_without_predictions_and_logs(tmp_path):
    folder = grids.write_texts(tmp_path / "run")
    (folder / "predictions.test.jsonl").unlink()
    text = page.render(read_study([folder]), library="")
    assert "Learning curves: no run has metrics.jsonl." in text
    assert "Confusion of labels: no predictions with labels were found." in text


def test_command_line(grid, tmp_path, capsys):
    out = tmp_path / "new" / "page.html"
    assert main(["report", str(grid), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    text = out.read_text(encoding="utf-8")
    assert "plotly.js v" in text
    assert len(text.encode()) < 15e6
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]  # nothing left behind
    assert main(["report", str(tmp_path / "none")]) == 2
    assert "wanted the folder of a run" in capsys.readouterr().err


def test_the_page_has_the_permissions_that_the_umask_leaves(grid, tmp_path):
    before = os.umask(0o027)
    try:
        out = write_report([grid], tmp_path / "page.html")
    finally:
        os.umask(before)
    assert out.stat().st_mode & 0o777 == 0o640


def test_without_the_extra_its_name_is_said(grid, tmp_path, monkeypatch):
    for missing in ("plotly.offline", "jinja2"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, missing, None)
            with pytest.raises(InputError, match=r"softf1\[report\]"):
                write_report([grid], tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_help_imports_no_torch():
    code = "import sys; from softf1.cli.main import build_parser; build_parser(); "
    code += "assert not {'torch', 'plotly', 'jinja2', 'numpy'} & set(sys.modules)"
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": "src"}
    )


def test_reports_know_result_files_only():
    found = [
        f"{path.name}: {line}"
        for path in Path(page.__file__).parent.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"import|from", line)
        and re.search(r"softf1\.(training|experiments|tasks|models|losses|data)|torch", line)
    ]
    assert found == []


@pytest.mark.slow
def test_fifty_runs_of_ten_thousand_examples(tmp_path):
    sentences = 20_000  # half of them are dev
    folder = grids.write_compare(tmp_path / "g", seeds=1, sentences=sentences)
    grid = json.loads((folder / "grid.json").read_text())
    cells = []
    for number in range(50):
        cell = grid["cells"][number % len(grid["cells"])]
        cells.append({**cell, "id": f"{cell['id']}-{number}", "seed": number})
    grids.write_json(folder / "grid.json", {**grid, "cells": cells})
    out = write_report([folder], tmp_path / "page.html")
    assert out.stat().st_size < 15e6


def test_a_run_that_collapsed_is_said_to_have(tmp_path):
    folders = [grids.write_texts(tmp_path / f"ce-{seed}", seed=seed) for seed in range(2)]
    path = folders[1] / "result.json"
    result = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(result | {"collapsed": True}), "utf-8")
    write_report(folders, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "1 of 2 runs of ce collapsed: on dev they predict nothing, or only one class." in text
