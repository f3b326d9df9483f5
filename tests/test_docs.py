"""The documentation is true: its code prints what it says, its links and plots are there."""

import contextlib
import gc
import importlib.util
import io
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import matplotlib as mpl
import pytest
import torch

import softf1
from softf1.losses import registry

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"<!-- needs (\S+) -->\n\Z")
LINK = re.compile(r"\]\(([^)\s]+)\)")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def load_plots() -> ModuleType:
    """Imports docs/plots.py by its path: docs is no package."""
    spec = importlib.util.spec_from_file_location("plots", ROOT / "docs/plots.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plots = load_plots()


class Block(NamedTuple):
    """A ```python block, the text of the ```text block right after it, the module it needs."""

    line: int
    code: str
    output: str
    needs: str = "softf1"


def python_blocks(text: str) -> Iterator[Block]:
    fences = list(FENCE.finditer(text))
    for fence, after in zip_longest(fences, fences[1:]):
        if fence[1] != "python":
            continue
        follows = after and after[1] == "text" and not text[fence.end() : after.start()].strip()
        line = text.count("\n", 0, fence.start(2)) + 1
        needs = NEEDS.search(text[: fence.start()])
        output = after[2] if after and follows else ""
        yield Block(line, fence[2], output, needs[1] if needs else "softf1")


def prose(text: str) -> str:
    return FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """The names that hosts give to headings: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """More threads only wait for each other on tensors this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """What a page registers, seeds or writes is forgotten after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    gc.freeze()  # transformers collects garbage often, which takes long over all that is imported
    with torch.random.fork_rng():
        yield
    gc.unfreeze()


@every_page
@pytest.mark.usefixtures("own_state")
def test_code_prints_what_the_page_says(page: Path) -> None:
    namespace = {"__name__": "page"}
    for block in python_blocks(page.read_text(encoding="utf-8")):
        if importlib.util.find_spec(block.needs) is None:
            pytest.skip(f"{page.name}:{block.line} needs {block.needs}")
        printed = io.StringIO()
        numbered = "\n" * (block.line - 1) + block.code  # so that a traceback names the line
        with contextlib.redirect_stdout(printed):
            exec(compile(numbered, page.name, "exec"), namespace)
        assert printed.getvalue() == block.output, f"{page.name}:{block.line}"


def test_blocks_are_found_with_their_output() -> None:
    first = "```python\nprint(1)\n```\n\n```text\n1\n```\n"  # 7 lines
    second = "<!-- needs a.b -->\n```python\nx = 1\n```\nbetween\n```text\n2\n```\n"
    blocks = list(python_blocks(first + second))
    assert blocks == [Block(2, "print(1)\n", "1\n"), Block(10, "x = 1\n", "", needs="a.b")]


@every_page
def test_links_and_images_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in LINK.findall(prose(text)):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{page.name} links to {link}"
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), f"{page.name}: {link}"


def test_anchors_are_the_hosts() -> None:
    assert anchors("# Set level, or example level?\n```text\n# no heading\n```\n") == {
        "set-level-or-example-level"
    }


def test_every_loss_has_a_page_and_every_plot_a_place() -> None:
    stems = {path.stem for path in (ROOT / "src/softf1/losses").glob("[a-z]*.py")}
    pages = {path.stem for path in (ROOT / "docs/losses").glob("*.md")}
    assert stems - {"exact", "registry", "weights"} == pages - {"index"}
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert {path.name for path in plots.IMAGES.iterdir()} == {f"{name}.svg" for name in plots.PLOTS}
    assert all(f"images/{name}.svg" in text for name in plots.PLOTS)


def test_plots_are_made_from_nothing(tmp_path: Path) -> None:
    made = list(plots.make_plots(tmp_path / "new"))
    assert [path.name for path in made] == [f"{name}.svg" for name in plots.PLOTS]
    assert all(path.read_text(encoding="utf-8").rstrip().endswith("</svg>") for path in made)


def test_a_plot_has_the_same_bytes_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "PLOTS", {"figure1-optimum": plots.draw_optimum})
    first, second = (next(plots.make_plots(tmp_path / name)).read_bytes() for name in "ab")
    assert first == second
    assert mpl.rcParams["svg.hashsalt"] is None  # nothing stays set


def test_figure_1_is_the_papers() -> None:
    p = plots.probabilities()
    f1, f2 = plots.figure_1(p)
    # By hand: (p / (1 + p))' = 1 / (1 + p)²; with q = (1 − p)·p, (q / (1 + q))' = q' / (1 + q)².
    torch.testing.assert_close(f1, 1 / (1 + p) ** 2)
    torch.testing.assert_close(f2, (1 - 2 * p) / (1 + (1 - p) * p) ** 2)
    assert (f2[p > 0.501] < 0).all()
    assert (f2[p < 0.499] > 0).all()


@pytest.mark.parametrize("alpha", [1.0, 0.1, 0.01])
def test_decayed_probability_peaks_at_one_over_one_plus_alpha(alpha: float) -> None:
    p = torch.linspace(0.001, 0.999, 9981, dtype=torch.float64)
    q = plots.decayed(alpha, p)
    torch.testing.assert_close(q, (1 - p) ** alpha * p)
    assert p[q.argmax()].item() == pytest.approx(1 / (1 + alpha), abs=1e-4)


def test_bars_that_the_pages_name() -> None:
    best = plots.best_probability
    assert best("ce", 0.3) == pytest.approx(0.3, abs=1e-3)
    assert best("wce", 0.3, weight=[3.0]) == pytest.approx(
        0.9 / 1.6, abs=1e-3
    )  # w·π / (w·π + 1 − π)
    assert best("focal", 0.1) == pytest.approx(0.31, abs=0.005)
    assert best("dice", 0.56) < 0.5 < best("dice", 0.57)
    assert best("tversky", 0.35, alpha=0.3, beta=0.7) < 0.01
    assert best("tversky", 0.37, alpha=0.3, beta=0.7) > 0.99


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.8])
def test_bar_of_batch_level_tversky_is_alpha_times_the_index(alpha: float) -> None:
    rates = torch.linspace(0.005, 0.995, 100).unsqueeze(1)
    x = torch.zeros_like(rates).requires_grad_()
    options = {"alpha": alpha, "beta": 1 - alpha, "smooth": 0.0, "over": "batch"}
    loss = plots.make_loss("tversky", **options)(x, rates)
    pushed_up = torch.autograd.grad(loss, x)[0] < 0
    assert torch.equal(pushed_up, rates > alpha * (1 - loss.item()))


def test_share_of_the_positives_that_the_readme_names() -> None:
    assert plots.positive_share(plots.make_loss("ce"), 0.01) == pytest.approx(0.01)
    batch_dice = plots.make_loss("dice", over="batch")
    assert plots.positive_share(batch_dice, 0.01) == pytest.approx(1 / 3, abs=0.01)


def test_push_is_towards_the_label() -> None:
    p = torch.tensor([0.25], dtype=torch.float64)
    ce = plots.summed("ce")
    assert plots.push(ce, p, positive=True).item() == pytest.approx(0.75)  # 1 − p
    assert plots.push(ce, p, positive=False).item() == pytest.approx(0.25)  # p


def test_release_is_named_alike_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {softf1.__version__}\n" in citation
    assert f"\n## [{softf1.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200
