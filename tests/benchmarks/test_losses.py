"""The benchmark of the losses runs, and the memory bar, which no busy machine can blur."""

import csv

import pytest
import torch

from benchmarks import losses as benchmark

COLUMNS = [
    "device", "dtype", "loss", "level", "n", "c", "median_ms", "ratio_to_ce", "peak_buffers",
    "seed", "threads", "versions", "machine", "date", "ours",
]  # fmt: skip
OURS = benchmark.our_cases(torch.linspace(0.5, 1.5, 300))


def test_the_quick_form_writes_a_line_for_every_case_and_cell(monkeypatch, tmp_path, capsys):
    effort = benchmark.Effort(rows=(32,), classes=(2, 300), blocks=1, rounds=1, sample_s=0.0)
    monkeypatch.setattr(benchmark, "QUICK", effort)
    path = tmp_path / "new" / "losses.csv"
    benchmark.main(["--quick", "--output", str(path), "--threads", str(torch.get_num_threads())])
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == COLUMNS
    ours = [(r["loss"], r["level"], int(r["c"])) for r in rows if r["ours"] == "True"]
    assert ours == [(case.loss, case.level, c) for c in (2, 300) for case in OURS]
    assert {benchmark.REFERENCE, benchmark.LOOP} < {row["loss"] for row in rows}
    assert all(float(row["median_ms"]) > 0 for row in rows)
    assert all(float(r["ratio_to_ce"]) == 1 for r in rows if r["loss"] == benchmark.REFERENCE)
    printed = capsys.readouterr().out
    assert "dsc batch" in printed
    assert sum(line.startswith(("holds: ", "FAILS: ")) for line in printed.splitlines()) >= 4


@pytest.mark.parametrize("case", OURS, ids=lambda case: f"{case.loss}-{case.level}")
def test_no_loss_holds_more_than_four_buffers(case):
    logits, target = benchmark.make_inputs(4096, 300, device="cpu", seed=0)
    # The gradient is one of them; the others are at least the probabilities.
    assert 2 <= benchmark.peak_buffers(case.function, logits, target) <= 4


@pytest.mark.parametrize(
    "case", benchmark.our_cases(torch.ones(2)), ids=lambda case: f"{case.loss}-{case.level}"
)
def test_buffers_of_two_classes(case):
    logits, target = benchmark.make_inputs(4096, 2, device="cpu", seed=0)
    # Labels and one number a row are half or all of a buffer here.
    assert benchmark.peak_buffers(case.function, logits, target) <= 4.005


def test_the_shortest_of_some_steps_on_a_part_of_the_grid(tmp_path):
    path = tmp_path / "losses.csv"
    given = ["--shortest", "2", "--rows", "16", "--classes", "3", "--output", str(path)]
    benchmark.main([*given, "--threads", str(torch.get_num_threads())])
    with path.open(encoding="utf-8", newline="") as file:
        assert {(row["n"], row["c"]) for row in csv.DictReader(file)} == {("16", "3")}


def test_a_buffer_is_counted_as_one():
    logits, target = benchmark.make_inputs(64, 50, device="cpu", seed=0)
    # A copy in forward, released with the sum; the gradient of the sum is expanded, then copied.
    assert benchmark.peak_buffers(lambda x, _: (x * 2.0).sum(), logits, target) == pytest.approx(
        1.0, abs=0.01
    )


def test_the_loop_is_the_batch_level_dice():
    logits, target = benchmark.make_inputs(64, 5, device="cpu", seed=0)
    dice = next(c.function for c in OURS if (c.loss, c.level) == ("dice", "batch"))
    torch.testing.assert_close(benchmark.per_label_loop(logits, target), dice(logits, target))
