"""The site is built without a warning, hangs together, and loads nothing from elsewhere."""

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from tests.pages import ROOT

pytest.importorskip("mkdocs", reason="wants softf1[docs]")


def load(name):
    """Imports docs/NAME.py by its path: docs is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Page(HTMLParser):
    """The names of a page's elements, the addresses it links to and the files it loads."""

    def __init__(self, text):
        super().__init__()
        self.names, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.names |= {found[key] for key in ("id", "name") if found.get(key)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in ("script", "img", "iframe", "source") and found.get("src"):
            self.loads.append(found["src"])
        if tag == "link" and found.get("rel") != "canonical" and found.get("href"):
            self.loads.append(found["href"])


def build(folder):
    """Builds as `make docs` does; a warning ends it with an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return {path: Page(path.read_text("utf-8")) for path in folder.rglob("*.html")}


def test_site_is_whole(tmp_path):
    site = build(tmp_path)  # once: it takes its time
    check_links(site)
    check_loads(site)
    check_reference(site)
    check_formulas(site)


def check_links(site):
    """Every link inside the site leads to a file, and to a place in it."""
    assert len(site) > 40
    checked = 0
    for path, page in site.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{path.name} links to {link}"
            if parts.fragment and target in site:
                names = site[target].names
                assert unquote(parts.fragment) in names, f"{path.name} links to {link}"
            checked += 1
    assert checked > 1_000


def check_loads(site):
    """Nothing is loaded from elsewhere."""
    for path, page in site.items():
        for address in page.loads:
            parts = urlsplit(address)
            assert parts.scheme in ("", "data"), f"{path.name} loads {address}"
            assert not parts.netloc, f"{path.name} loads {address}"


def check_reference(site):
    """It comes from docstrings."""
    found = next(page for path, page in site.items() if path.match("reference/losses.html"))
    assert {"softf1.losses.dice_loss", "softf1.losses.make_loss"} <= found.names


def check_formulas(site):
    """They are shown without a script."""
    path = next(path for path in site if path.match("losses/dice.html"))
    text = path.read_text("utf-8")
    assert text.count("<math") == 2
    assert "$$" not in text


def test_reference_names_every_package():
    text = "".join(path.read_text() for path in (ROOT / "docs/reference").glob("*.md"))
    packages = {path.parent.name for path in (ROOT / "src/softf1").glob("*/__init__.py")}
    named = set(re.findall(r"^::: softf1\.(\w+)", text, re.MULTILINE))
    assert packages - named == {"cli", "kernels"}  # the first has its own page, the second no API


def test_links_to_files_of_the_repository_follow_them():
    hooks = load("hooks")
    assert hooks.site_path("docs/losses/dice.md") == "losses/dice.md"
    assert hooks.site_path("CONTRIBUTING.md") == "contributing.md"
    assert (
        hooks.site_path("benchmarks/results/losses.csv") == "source/benchmarks/results/losses.csv"
    )
    assert hooks._target("docs/losses/dice.md", "../../CONTRIBUTING.md#x") == "CONTRIBUTING.md"
    assert hooks._target("docs/a.md", "https://example.org/b.md") is None
    assert hooks._target("docs/a.md", "#here") is None


def test_pages_that_scripts_write_are_up_to_date():
    decision, commands = load("decision"), load("commands")
    assert decision.FILE.read_text("utf-8") == decision.draw(), "run docs/decision.py"
    assert commands.FILE.read_text("utf-8") == commands.write_page(), "run docs/commands.py"


def test_the_terminal_session_has_the_commands_of_the_quickstart():
    session = load("session")
    shown = re.findall(r"^\$ (.+)$", session.FILE.read_text("utf-8"), re.MULTILINE)
    assert shown == session.list_commands()
    assert len(shown) == 4


def test_decision_guide_names_losses_that_there_are():
    from softf1.losses import loss_names

    codes = [step.code for step in load("decision").STEPS] + [load("decision").LAST[1]]
    named = {
        part for code in codes for part in re.findall(r"\b(?!over|squared)[a-z]+\b(?![=_.])", code)
    }
    assert {"ce", "dice", "tversky", "wce", "la"} <= named & set(loss_names())


def test_every_file_of_results_is_named():
    text = (ROOT / "docs/results.md").read_text("utf-8")
    files = {path.name for path in (ROOT / "benchmarks/results").glob("*.csv")}
    assert {name for name in files if f"results/{name}" not in text} == set()
