"""The plots of the documentation show what the pages say of them."""

import importlib.util
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import pytest
import torch

from tests.pages import PAGES, ROOT


def load_plots() -> ModuleType:
    """Imports docs/plots.py by its path: docs is no package."""
    spec = importlib.util.spec_from_file_location("plots", ROOT / "docs/plots.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plots = load_plots()


def test_every_loss_has_a_page_and_every_plot_a_place() -> None:
    together = {"pauc": "rankings", "smooth_ap": "rankings"}
    stems = {path.stem for path in (ROOT / "src/softf1/losses").glob("[a-z]*.py")}
    stems = {together.get(stem, stem) for stem in stems}
    pages = {path.stem for path in (ROOT / "docs/losses").glob("*.md")}
    assert stems - {"exact", "registry", "weights"} == pages - {"index"}
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    others = {"decision.svg", "report.png"}  # of docs/decision.py and docs/screenshot.py
    drawn = {f"{name}.svg" for name in plots.PLOTS} | others
    assert {path.name for path in plots.IMAGES.iterdir()} == drawn
    assert all(f"images/{name}" in text for name in drawn)


def test_the_picture_of_the_report_is_small() -> None:
    assert (plots.IMAGES / "report.png").stat().st_size < 250_000


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


def test_losses_trade_precision_and_recall_on_real_names_as_the_pages_say() -> None:
    means = {
        row: [sum(values) / 3 for values in zip(*seeds, strict=True)]
        for row, seeds in plots.read_trade().items()
    }
    tversky = [means[f"tversky {alpha}/{beta}"] for alpha, beta in (
        ("0.9", "0.1"), ("0.7", "0.3"), ("0.5", "0.5"), ("0.3", "0.7"), ("0.1", "0.9"),
    )]  # fmt: skip
    recalls, precisions = zip(*tversky, strict=True)
    assert list(recalls) == sorted(recalls)  # as beta grows
    assert [round(value) for value in (recalls[0], recalls[-1])] == [20, 55]
    assert [round(value) for value in (precisions[0], precisions[-1])] == [78, 38]
    assert [round(value) for value in means["dsc, squared"]] == [44, 44]
    assert [round(value) for value in means["dice"]] == [33, 76]
    assert means["dsc, linear"] == means["dice, linear"] == [0, 0]
