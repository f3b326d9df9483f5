"""What is released says the same everywhere, and asks for versions that were tried."""

import csv
import importlib.util
import re
import tomllib

import pytest

import softf1
from tests.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TRIED = ("train", "hf", "minilm", "demo", "report", "onnx", "sklearn", "lightning")
"""Extras of which `make dist-test` tries the oldest versions."""


def read_pins(name):
    lines = (ROOT / name).read_text("utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    return {re.sub(r"[-_.]+", "-", key).lower(): value for key, value in pins.items()}


def test_version_is_named_alike_everywhere():
    assert "version" in PROJECT["dynamic"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {softf1.__version__}\n" in citation
    assert f"\n## [{softf1.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_oldest_versions_are_those_that_the_project_allows():
    oldest = read_pins("constraints-oldest.txt")
    extras = PROJECT["optional-dependencies"]
    wanted = PROJECT["dependencies"] + [one for extra in TRIED for one in extras[extra]]
    checked = 0
    for requirement in wanted:
        found = re.fullmatch(r"([\w-]+)(?:>=|==)([\d.]+)", requirement)
        if found is None or found[1] == "torch":  # softf1[train]; torch stays at its pin
            continue
        pin = oldest[found[1].lower()]
        assert [*map(int, pin.split("."))][: found[2].count(".") + 1] == [
            int(part) for part in found[2].split(".")
        ], requirement
        checked += 1
    assert checked > 12
    assert oldest["torch"] == read_pins("constraints.txt")["torch"]


def test_the_index_page_has_no_dead_links():
    pytest.importorskip("hatchling", reason="wants the tool that builds the package")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    readme = (ROOT / "README.md").read_text("utf-8")
    text = module.for_index(readme)
    assert len(text) > len(readme) / 2
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert [link for link in links if not link.startswith("https://")] == []
    assert "<!--" not in text
    assert "https://aclanthology.org/2020.acl-main.45" in text


def test_figures_of_the_demo_are_those_of_the_file():
    with (ROOT / "benchmarks/results/demo.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    page = (ROOT / "docs/results.md").read_text("utf-8")
    report = (ROOT / "docs/examples/report-demo.html").read_text("utf-8")
    assert f"softf1 {softf1.__version__}" in report
    for row in rows:
        assert f">{100 * float(row['f1']):.2f}<" in report
    table = page.partition("| verdict |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(table) == len(rows)
    for line, row in zip(table, rows, strict=True):
        cells = line.partition(" | ")[2].replace("−", "-")
        shown = [float(number) for number in re.findall(r"[-+]?\d+\.\d", cells)]
        names = ("f1", "sd", "precision", "recall", "difference", "low", "high")
        wanted = [100 * float(row[name]) for name in names if row[name]]
        assert shown == pytest.approx(wanted, abs=0.0501), line
