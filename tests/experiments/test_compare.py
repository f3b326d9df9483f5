import csv
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from softf1.cli.show import show_comparison
from softf1.errors import InputError
from softf1.experiments.compare import compare, match_compute
from softf1.experiments.grid import lock_grid, make_run, name_run
from softf1.experiments.workers import Pool
from softf1.recipe import describe_recipe, with_values
from tests.experiments import fake
from tests.experiments.fake import run_inline

LOSSES = ("ce", "ce+tuned", "dice", "dsc", "focal")
ROOT = Path(__file__).parents[2]
TARGET = f"{fake.__name__}:train_run"
here = partial(run_inline, fake.train_run)


def run(folder, *, losses=LOSSES, seeds=range(4), tune="none", execute=here, **encoder):
    recipe = fake.make_recipe(**encoder)
    return compare(
        recipe, folder, losses=losses, seeds=seeds, tune=tune, execute=execute, quiet=True
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grid")
    return folder, run(folder)


def rows_of(found):
    return {row["loss"]: row for row in found["rows"]}


def test_what_helps_is_said_to_help_and_what_hurts_to_hurt(found):
    rows = rows_of(found[1])
    assert list(rows) == list(LOSSES)
    assert rows["ce"]["verdict"] == "baseline"
    assert rows["dice"]["verdict"] == "helps"
    assert rows["dsc"]["verdict"] == "hurts"
    assert rows["dice"]["low"] > 0 > rows["dsc"]["high"]
    assert found[1]["verdict"].startswith("dice +")
    assert "dsc hurts" in found[1]["verdict"]
    assert found[1]["failed"] == {}


def test_rows_are_means_over_seeds_and_paired_differences(found):
    folder, comparison = found
    rows = rows_of(comparison)
    scores = {
        loss: [
            json.loads((folder / f"cells/{loss}-s{seed}/result.json").read_text("utf-8"))
            for seed in range(4)
        ]
        for loss in ("ce", "dice")
    }
    f1 = {loss: [one["scores"]["test"]["f1"] for one in own] for loss, own in scores.items()}
    assert rows["dice"]["n"] == 4
    assert rows["dice"]["mean"] == pytest.approx(sum(f1["dice"]) / 4)
    gains = [a - b for a, b in zip(f1["dice"], f1["ce"], strict=True)]
    assert rows["dice"]["difference"] == pytest.approx(sum(gains) / 4)
    assert rows["dice"]["p_holm"] >= rows["dice"]["p"]
    assert rows["dice"]["sd_examples"] > 0
    tuned = [one["tuned"]["test"]["f1"] for one in scores["ce"]]
    assert rows["ce+tuned"]["mean"] == pytest.approx(sum(tuned) / 4)
    assert comparison["examples"] == comparison["units"] == 400


def test_files_follow_the_contract(found):
    folder, _ = found
    grid = json.loads((folder / "grid.json").read_text("utf-8"))
    assert grid["schema"] == 1
    assert (grid["kind"], grid["axis"], grid["baseline"]) == ("compare", ["loss"], "ce")
    assert grid["losses"] == list(LOSSES)
    assert grid["seeds"] == [0, 1, 2, 3]
    assert grid["headline"] == "f1"
    assert len(grid["cells"]) == 16
    cell = grid["cells"][-1]
    assert cell["id"] == "focal-s3"
    assert cell["values"]["loss.name"] == "focal"
    assert (cell["state"], cell["folder"]) == ("done", "cells/focal-s3")
    assert (folder / cell["folder"] / "predictions.test.jsonl").is_file()
    comparison = json.loads((folder / "comparison.json").read_text("utf-8"))
    wanted = {"loss", "n", "mean", "sd", "difference", "low", "high", "p", "p_holm", "probability"}
    wanted |= {"verdict", "precision", "recall", "sd_seeds", "sd_examples", "df"}
    wanted |= {"narrowest", "calibration_error", "calibration_error_tuned", "role"}
    assert all(wanted <= row.keys() for row in comparison["rows"])
    text = (folder / "comparison.csv").read_text("utf-8")
    table = list(csv.DictReader(text.splitlines()))
    assert [row["loss"] for row in table] == list(LOSSES)
    assert set(table[0]) == wanted
    label = comparison["labels"][0]
    assert (label["label"], label["support_train"], label["group"]) == ("no", 900, "head")
    assert set(label["scores"]["dice"]) == {"precision", "recall", "f1"}
    assert "NaN" not in (folder / "comparison.json").read_text("utf-8")


def test_one_seed_gives_rows_without_intervals(tmp_path):
    rows = rows_of(run(tmp_path, losses=("ce", "dice"), seeds=[7]))
    assert rows["dice"]["verdict"] == "one seed is not enough"
    text = (tmp_path / "comparison.json").read_text("utf-8")
    assert json.loads(text)["rows"][1]["low"] is None


def test_finished_cells_are_never_redone(tmp_path):
    calls = tmp_path / "calls"
    first = run(tmp_path / "grid", calls=str(calls))
    assert len(calls.read_text("utf-8").split()) == 16
    assert run(tmp_path / "grid", calls=str(calls)) == first
    assert len(calls.read_text("utf-8").split()) == 16
    more = run(tmp_path / "grid", calls=str(calls), seeds=range(5), losses=(*LOSSES, "tversky"))
    assert len(calls.read_text("utf-8").split()) == 16 + 4 + 5
    assert rows_of(more)["dice"]["n"] == 5


def test_a_grid_of_another_recipe_is_refused(tmp_path):
    run(tmp_path, losses=("ce",), seeds=[0])
    with pytest.raises(InputError, match=r"pause was None and is 0\.001: use --out .*, or --force"):
        run(tmp_path, losses=("ce",), seeds=[0], pause=0.001)


def test_a_damaged_result_of_other_settings_is_refused(tmp_path):
    run(tmp_path, losses=("ce",), seeds=[0])
    path = tmp_path / "cells/ce-s0/result.json"
    path.write_text(path.read_text("utf-8").replace('"hash": "', '"hash": "0'), "utf-8")
    with pytest.raises(InputError, match=r"ce-s0: an earlier .* otherwise: the recipe has"):
        run(tmp_path, losses=("ce",), seeds=[0])


def test_a_failed_cell_leaves_the_others_alone(tmp_path):
    found = run(tmp_path, fail="dice")
    assert set(found["failed"]) == {f"dice-s{seed}" for seed in range(4)}
    assert found["failed"]["dice-s0"] == "RuntimeError: no memory for dice"
    assert "dice" not in rows_of(found)
    assert rows_of(found)["dsc"]["verdict"] == "hurts"
    assert "Traceback" in (tmp_path / "cells/dice-s0/error.txt").read_text("utf-8")
    cells = json.loads((tmp_path / "grid.json").read_text("utf-8"))["cells"]
    failed = {cell["id"]: cell["error"] for cell in cells if cell["state"] == "failed"}
    assert failed == found["failed"]


def test_wrong_input_of_the_first_run_ends_the_comparison(tmp_path):
    calls = tmp_path / "calls"
    with pytest.raises(InputError, match=r"^wanted another input than ce \(row ce\)$"):
        run(tmp_path / "grid", refuse="ce", calls=str(calls))
    assert calls.read_text("utf-8").split() == ["ce-s0"]
    pool, refused = Pool(2, logs=tmp_path, target=TARGET, devices=()), r"than ce \(row ce\)$"
    with closing(pool), pytest.raises(InputError, match=refused):
        run(tmp_path / "pool", refuse="ce", losses=("ce",), execute=pool)


def test_wrong_input_of_a_later_run_is_a_failure_of_its_own(tmp_path):
    found = run(tmp_path, refuse="dice")
    assert found["failed"]["dice-s0"] == "wanted another input than dice"
    assert rows_of(found)["dsc"]["verdict"] == "hurts"


def last_first(jobs):
    yield from reversed(list(here(jobs)))


@pytest.mark.parametrize("order", ["last first", "pool"])
def test_wrong_input_of_a_later_run_is_its_own_even_if_it_comes_first(order, tmp_path):
    pool = Pool(3, logs=tmp_path, target=TARGET, devices=())
    execute, how = last_first if order == "last first" else pool, {"refuse": "dice", "pause": 1.0}
    with closing(pool):  # dice is refused at once, while the other processes are in a pause
        found = run(tmp_path / "grid", losses=("ce", "dice"), seeds=[0, 1], execute=execute, **how)
    assert set(found["failed"]) == {"dice-s0", "dice-s1"}
    assert rows_of(found)["ce"]["n"] == 2


def test_wrong_input_of_the_first_run_ends_the_comparison_even_if_it_comes_last(tmp_path):
    with pytest.raises(InputError, match=r"^wanted another input than ce \(row ce\)$"):
        run(tmp_path, losses=("ce",), seeds=[0, 1], refuse="ce", execute=last_first)
    cells = json.loads((tmp_path / "grid.json").read_text("utf-8"))["cells"]
    assert [cell["state"] for cell in cells] == ["missing", "failed"]


def test_without_a_baseline_there_are_rows_but_no_differences(tmp_path):
    found = run(tmp_path, fail="ce", losses=("ce", "dice"))
    assert rows_of(found)["dice"]["difference"] is None
    assert "no run of ce is done" in found["notes"][0]
    assert found["verdict"] == "Nothing to compare with ce."


def test_predictions_that_do_not_add_up_leave_the_seeds(tmp_path):
    run(tmp_path, losses=("ce", "dice"))
    path = tmp_path / "cells/dice-s1/predictions.test.jsonl"
    path.write_text("".join(path.read_text("utf-8").splitlines(keepends=True)[:-50]), "utf-8")
    found = run(tmp_path, losses=("ce", "dice"))
    assert any("predictions.test.jsonl does not add up to f1" in note for note in found["notes"])
    assert rows_of(found)["dice"]["sd_examples"] == 0
    assert rows_of(found)["dice"]["df"] == 3


def test_every_loss_is_tuned_alike_and_its_best_setting_taken(tmp_path):
    calls = tmp_path / "calls"
    run(tmp_path / "grid", losses=("ce", "focal"), seeds=[0, 1], tune="small", calls=str(calls))
    grid = json.loads((tmp_path / "grid/grid.json").read_text("utf-8"))
    by_loss = {loss: [t for t in grid["tuning"] if t["loss"] == loss] for loss in ("ce", "focal")}
    for trials in by_loss.values():
        assert [t["share"] for t in trials] == pytest.approx([1 / 3] * 4 + [1, 2])
        assert [t["steps"] for t in trials] == [30] * 4 + [90, 180]
        assert {t["values"]["train.seed"] for t in trials} == {9_999_999}
    # The stand-in is best at 2.5 times the learning rate, focal at gamma 2
    values = {cell["loss"]: cell["values"] for cell in grid["cells"]}
    assert values["ce"]["train.lr"] == 0.0025
    assert values["focal"]["train.lr"] == 0.0025
    assert values["focal"]["loss.gamma"] == 2.0
    assert "train.epochs" not in values["ce"]
    assert len(calls.read_text("utf-8").split()) == 2 * (4 + 2) + 2 * 2
    assert not (tmp_path / "grid/tuning/ce-0-33/model/model.safetensors").exists()
    assert (tmp_path / "grid/cells/ce-s0/model/model.safetensors").exists()


def test_full_tuning_halves_nine_settings(tmp_path):
    run(tmp_path, losses=("ce", "focal"), seeds=[0, 1], tune="full")
    tuning = json.loads((tmp_path / "grid.json").read_text("utf-8"))["tuning"]
    for loss in ("ce", "focal"):
        shares = [t["share"] for t in tuning if t["loss"] == loss]
        assert shares == pytest.approx([1 / 3] * 9 + [1.0] * 3 + [2.0])
    whole = [t for t in tuning if t["loss"] == "focal" and t["share"] == 1]
    best = max(whole, key=lambda t: t["score"])
    cells = json.loads((tmp_path / "grid.json").read_text("utf-8"))["cells"]
    assert cells[-1]["values"]["loss.gamma"] == best["values"]["loss.gamma"]


def test_twice_the_epochs_are_tried_on_whole_runs_and_taken_where_they_pay(tmp_path):
    fixed = "dice[train.epochs=6]"
    run(tmp_path, losses=("ce", fixed), seeds=[0], tune="small", patient=0.5)
    grid = json.loads((tmp_path / "grid.json").read_text("utf-8"))
    trials = [(trial["loss"], trial["share"]) for trial in grid["tuning"]]
    assert [share for loss, share in trials if loss == "ce"][4:] == [1, 2]
    assert len([loss for loss, _ in trials if loss == fixed]) == 4  # its own epochs are not tuned
    epochs = {c["label"]: c["values"].get("train.epochs") for c in grid["cells"]}
    assert epochs == {"ce": 18, fixed: 6}


ADVERSARIAL = "ce[train.adversarial=0.5]"
NOISE = "ce[train.adversarial=0.5], random step"
MATCHED = "ce, matched compute"


def test_a_row_with_an_adversarial_step_brings_its_controls(tmp_path):
    calls = tmp_path / "calls"
    how = {"losses": ("ce", ADVERSARIAL), "calls": str(calls)}
    found = run(tmp_path / "grid", **how)
    rows = rows_of(found)
    assert list(rows) == ["ce", MATCHED, ADVERSARIAL, NOISE]
    assert [row["role"] for row in rows.values()] == ["baseline", "control", "loss", "control"]
    assert rows[ADVERSARIAL]["verdict"] == "helps"
    assert rows[NOISE]["verdict"] == "no significant difference"
    assert rows[ADVERSARIAL]["p_holm"] == rows[ADVERSARIAL]["p"]  # controls are no tries of luck
    assert found["verdict"].startswith(f"{ADVERSARIAL} +")
    grid = json.loads((tmp_path / "grid/grid.json").read_text("utf-8"))
    assert grid["matched"] == {"row": ADVERSARIAL, "ratio": 3.0}  # a step takes three times as long
    cell = next(cell for cell in grid["cells"] if cell["label"] == MATCHED)
    assert cell["values"]["train.epochs"] == 27
    begun = calls.read_text("utf-8").split()
    assert len(begun) == 4 * 4
    assert run(tmp_path / "grid", **how) == found
    assert calls.read_text("utf-8").split() == begun


@pytest.mark.parametrize(
    ("values", "seconds", "ratio"),
    [
        ({}, [19.0, 30.0], None),  # as many passes: the machine was busy
        ({}, [25.0, 20.0], 2.0),  # the fastest counts
        ({"train.adversarial": 0.0, "train.consistency": 0.0}, [19.0], None),
        ({"train.adversarial": 0.5}, [21.0], 2.1),
        ({"train.adversarial_relative": 0.5}, [12.0], 1.2),  # two passes take 1.2 times as long
        ({"train.consistency": 1.0}, [9.0], 1.0),  # ce was disturbed; the row is there all the same
        ({"train.epochs": 12.0}, [13.0], None),  # 12 / 9 epochs
        ({"train.epochs": 13.5}, [15.0], 1.5),
    ],
)
def test_passes_decide_about_matched_compute_and_seconds_about_its_length(values, seconds, ratio):
    runs, results = {}, {}
    rows = {"ce": ({}, [11.0, 10.0, 40.0]), "other": (values, seconds)}
    for row, (changes, times) in rows.items():
        recipe = with_values(fake.make_recipe(), changes)
        for seed, own in enumerate(times):
            name = f"{row}-s{seed}"
            runs[name] = SimpleNamespace(id=name, label=row, trial=False)
            results[name] = {
                "examples": round(recipe.train.epochs * 320),
                "seconds": {"train": own + 1, "warmup": 1.0},
                "recipe": describe_recipe(recipe),
            }
    grid = SimpleNamespace(runs=runs, results=results, content={"matched": None})
    wanted = None if ratio is None else {"row": "other", "ratio": ratio}
    assert match_compute(grid, rows) == wanted
    assert match_compute(grid, ["other"]) is None  # nothing to compare it with


def test_a_clock_that_did_not_move_adds_no_control():
    recipe = describe_recipe(fake.make_recipe())
    runs = {name: SimpleNamespace(id=name, label=name, trial=False) for name in ("ce", "other")}
    results = {
        name: {"examples": 320, "seconds": {"train": train}, "recipe": recipe}
        for name, train in (("ce", 0.0), ("other", 1.0))
    }
    grid = SimpleNamespace(runs=runs, results=results, content={"matched": None})
    assert match_compute(grid, runs) is None


def test_both_options_make_four_passes():
    train = {"train.adversarial": 0.5, "train.consistency": 1.0}
    assert with_values(fake.make_recipe(), train).train.passes == 4


def test_runs_that_no_longer_fit_say_what_differs_and_what_to_do(tmp_path):
    run(tmp_path, losses=("ce", "dice"), seeds=[0])
    with pytest.raises(InputError) as error:
        run(tmp_path, losses=("ce", "ce+tuned", "dice"), seeds=[0])  # tunes in the runs of ce
    assert str(error.value) == (
        f"{tmp_path / 'cells/ce-s0'}: an earlier command or another version of softf1 trained this "
        "run otherwise: eval.tune was False and is True: use --out for another folder, or --force "
        "to start again"
    )


def test_rows_of_any_length_get_folders(tmp_path):
    labels = ",".join(f'"Größe {number}"' for number in range(40))
    long = f"dice[over=batch,exclude=[{labels}],train.adversarial=1]"
    found = run(tmp_path, losses=("ce", long), seeds=[0], tune="small")
    assert found["failed"] == {}
    assert {long, f"{long}, random step"} < {*rows_of(found)}
    names = [path.name for path in (*tmp_path.glob("cells/*"), *tmp_path.glob("tuning/*"))]
    assert max(len(name.encode()) for name in names) < 255


def test_long_rows_that_end_differently_have_other_folders():
    long = "dice[" + "a" * 300
    assert name_run(long + "b]", "s0") != name_run(long + "c]", "s0")
    assert name_run("é" * 150, "s0").startswith("é" * 90)
    assert name_run("d" * 200, "s0") == "d" * 200 + "-s0"


def test_only_rows_that_were_asked_for_count_in_the_correction(tmp_path):
    found = run(tmp_path, losses=("ce", "dice+tuned", "dsc"))
    rows = rows_of(found)
    assert list(rows) == ["ce", "dice+tuned", "dsc", "dice"]
    assert [row["role"] for row in rows.values()] == ["baseline", "loss", "loss", "control"]
    assert rows["dice"]["verdict"] == "significantly above"
    lowest = min(rows["dice+tuned"], rows["dsc"], key=lambda row: row["p"])
    assert lowest["p_holm"] == pytest.approx(2 * lowest["p"])


def test_where_nothing_was_tuned_a_note_says_why_there_is_no_row(tmp_path):
    found = run(tmp_path, losses=("ce", "ce+tuned", "dice", "dice+tuned"), untuned="dice")
    assert [*rows_of(found)] == ["ce", "ce+tuned", "dice"]
    assert found["notes"].count("nothing was tuned in the runs of dice: no dice+tuned") == 1


def test_all_runs_of_a_row_tune_for_the_same_target(tmp_path):
    recipe = with_values(fake.make_recipe(), {"eval.target": "recall>=0.9"})
    options = {"losses": ("ce", ADVERSARIAL, "dice+tuned"), "seeds": [0], "quiet": True}
    compare(recipe, tmp_path, execute=here, tune="small", **options)
    targets = {}
    for path in tmp_path.glob("*/*/result.json"):
        effective = json.loads(path.read_text("utf-8"))["recipe"]
        row = "dice" if effective["loss"]["name"] == "dice" else "others"
        targets.setdefault(row, set()).add(effective["eval"].get("target"))
    assert targets == {"dice": {"recall>=0.9"}, "others": {None}}
    assert [*tmp_path.glob("cells/ce__matched_compute*")]


def test_auto_brings_noise_of_the_size_that_it_chooses(tmp_path, capsys):
    how = {"losses": ("ce", "auto"), "seeds": [0, 1], "tune": "none"}
    found = compare(fake.make_recipe(), tmp_path, execute=here, **how)
    noise = "auto, random step"
    assert {row: own["role"] for row, own in rows_of(found).items()} == {
        "ce": "baseline",
        "auto": "loss",
        noise: "control",
    }
    assert f"one more row as a control, {noise}: noise" in found["notes"][0]
    assert capsys.readouterr().err.startswith("note: one more row as a control, auto, ")
    cells = json.loads((tmp_path / "grid.json").read_text("utf-8"))["cells"]
    assert [c["values"]["loss.name"] for c in cells if c["label"] == noise] == ["auto"] * 2
    without = compare(fake.make_recipe(), tmp_path, execute=here, controls=False, **how)
    assert [*rows_of(without)] == ["ce", "auto"]
    assert not without["notes"]


def test_the_baseline_is_the_better_cross_entropy_on_dev(tmp_path):
    found = run(tmp_path, losses=("ce", ADVERSARIAL), patient=0.3)
    assert found["baseline"] == MATCHED
    rows = rows_of(found)
    assert (rows["ce"]["role"], rows["ce"]["verdict"]) == ("control", "significantly below")
    assert rows[ADVERSARIAL]["difference"] == pytest.approx(
        rows[ADVERSARIAL]["mean"] - rows[MATCHED]["mean"]
    )
    assert any(
        "that is better on dev, and so it is the baseline" in note for note in found["notes"]
    )


def test_losses_that_cost_the_same_bring_no_controls(tmp_path):
    assert list(rows_of(run(tmp_path))) == list(LOSSES)
    options = {"losses": ("ce", ADVERSARIAL), "seeds": [0, 1], "tune": "none", "quiet": True}
    found = compare(fake.make_recipe(), tmp_path / "none", execute=here, controls=False, **options)
    assert list(rows_of(found)) == ["ce", ADVERSARIAL]


def test_a_ratio_of_seconds_that_moved_a_little_redoes_nothing(tmp_path):
    how = {"losses": ("ce", ADVERSARIAL), "calls": str(tmp_path / "calls")}
    run(tmp_path / "grid", **how)
    for path in (tmp_path / "grid/cells").glob("ce_train.adversarial=0.5_-s*/result.json"):
        result = json.loads(path.read_text("utf-8"))
        result["seconds"]["train"] *= 1.05
        path.write_text(json.dumps(result), "utf-8")
    run(tmp_path / "grid", **how)
    assert len((tmp_path / "calls").read_text("utf-8").split()) == 4 * 4


@pytest.mark.parametrize(
    ("device", "matched"),
    [("linux cpu", {"row": "dear", "ratio": 2.0}), ("NVIDIA H200", {"row": "busy", "ratio": 59.0})],
)
def test_on_a_cpu_compute_is_cpu_time_which_other_programs_do_not_lengthen(device, matched):
    spent = {"ce": (0.2, 0.2), "busy": (11.8, 0.2), "dear": (0.5, 0.4)}
    runs = {label: make_run(label, {}, 0, loss="ce") for label in spent}
    same = {"device": device, "examples": 100, "recipe": describe_recipe(fake.make_recipe())}
    grid = SimpleNamespace(
        runs={run.id: run for run in runs.values()},
        results={
            runs[label].id: same | {"seconds": {"train": wall, "train_cpu": cpu}}
            for label, (wall, cpu) in spent.items()
        },
        content={"matched": None},
    )
    assert match_compute(grid, spent) == matched


def test_seeds_are_added_where_they_narrow_the_interval_and_for_the_baseline(tmp_path):
    how = {"losses": ("ce", "dice", "dsc"), "seeds": [3, 4, 5], "tune": "none", "quiet": True}
    calls = tmp_path / "calls"
    recipe = fake.make_recipe(calls=str(calls))
    found = compare(recipe, tmp_path / "grid", execute=here, most_seeds=12, width=0.02, **how)
    for row in rows_of(found).values():
        if row["role"] == "loss":
            half = (row["high"] - row["low"]) / 2
            of_seeds = row["sd_seeds"] / row["n"] ** 0.5
            assert half <= 0.02 or of_seeds <= row["sd_examples"] or row["n"] == 12
    counts = {loss: row["n"] for loss, row in rows_of(found).items()}
    assert counts["ce"] == max(counts.values()) > 3
    assert set(rows_of(found)["ce"]["scores"]) == {str(3 + n) for n in range(counts["ce"])}
    begun = len(calls.read_text("utf-8").split())
    again = compare(recipe, tmp_path / "grid", execute=here, most_seeds=12, width=0.02, **how)
    assert (again, len(calls.read_text("utf-8").split())) == (found, begun)


def test_calibration_stands_beside_the_score_before_and_after_tuning(found):
    rows = rows_of(found[1])
    assert 0 < rows["ce"]["calibration_error"] < 0.5
    assert rows["ce+tuned"]["calibration_error"] != rows["ce"]["calibration_error"]
    assert rows["ce"]["calibration_error_tuned"] == rows["ce+tuned"]["calibration_error"]
    assert rows["dice"]["calibration_error_tuned"] is None  # its runs were not tuned


def test_with_tuning_in_the_recipe_every_row_has_its_calibration_after_it(tmp_path, capsys):
    recipe = with_values(fake.make_recipe(), {"eval.tune": True})
    how = {"losses": ("ce", "dice", "dsc+tuned"), "seeds": [0, 1], "quiet": True}
    found = compare(recipe, tmp_path, execute=here, tune="none", **how)
    rows = rows_of(found)
    assert [*rows] == ["ce", "dice", "dsc+tuned", "dsc"]  # no tuned rows that nobody asked for
    after = [row["calibration_error_tuned"] for row in rows.values()]
    assert after[2] is None
    assert after[3] == rows["dsc+tuned"]["calibration_error"]
    assert 0 < after[1] != rows["dice"]["calibration_error"]
    show_comparison(found)
    assert "ECE\tECE tuned" in capsys.readouterr().out


def test_models_can_be_left_out(tmp_path):
    recipe = fake.make_recipe()
    options = {"losses": ("ce", "dice"), "seeds": [0, 1], "tune": "none", "quiet": True}
    found = compare(recipe, tmp_path, execute=here, keep_models=False, **options)
    assert not list(tmp_path.rglob("*.safetensors"))
    assert rows_of(found)["dice"]["sd_examples"] > 0  # the task is kept, and so the counting


def test_workers_give_the_same_results(tmp_path, found):
    folder, comparison = found
    with closing(Pool(2, logs=tmp_path, target=TARGET, devices=())) as pool:
        assert run(tmp_path / "grid", execute=pool) == comparison
    for cell in ("ce-s0", "dice-s3"):
        path = f"cells/{cell}/predictions.test.jsonl"
        assert (tmp_path / "grid" / path).read_bytes() == (folder / path).read_bytes()


def test_a_worker_that_dies_costs_only_its_cell(tmp_path):
    calls = tmp_path / "calls"
    options = {"losses": ("ce", "dice", "dsc"), "seeds": [0, 1], "calls": str(calls)}
    with closing(Pool(2, logs=tmp_path, target=TARGET, devices=())) as pool:
        found = run(tmp_path / "grid", execute=pool, crash="dice", **options)
    assert set(found["failed"]) == {"dice-s0", "dice-s1"}
    assert found["failed"]["dice-s0"].startswith("the process ended by signal 9")
    assert calls.read_text("utf-8").split().count("dice-s0") == 2  # tried once more
    assert rows_of(found)["dsc"]["n"] == 2


COMMAND = """
import sys
from pathlib import Path
from tests.experiments.test_compare import Pool, TARGET, run
folder = Path(sys.argv[1])
pool = Pool(2, logs=folder, target=TARGET, devices=())
how = {"losses": ("ce", "dice"), "seeds": range(3), "tune": "small", "pause": 0.1}
run(folder / "grid", execute=pool, calls=str(folder / "calls"), **how)
"""


def test_killed_anywhere_the_same_command_goes_on(tmp_path):
    command = [sys.executable, "-c", COMMAND, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    calls = tmp_path / "calls"
    for wanted in (3, 11):
        process = subprocess.Popen(command, env=environment)
        while not (calls.is_file() and len(calls.read_text("utf-8").split()) >= wanted):
            time.sleep(0.02)
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    time.sleep(0.4)  # were a worker still at it, it would now write what the next run writes
    subprocess.run(command, env=environment, check=True)
    begun = calls.read_text("utf-8").split()
    trials, cells = 2 * (4 + 2), 2 * 3
    assert trials + cells <= len(begun) <= trials + cells + 4  # two at a time, killed twice
    how = {"losses": ("ce", "dice"), "seeds": range(3), "tune": "small"}
    whole = run(tmp_path / "whole", **how)
    again = run(tmp_path / "grid", **how, pause=0.1, calls=str(calls))
    assert again["rows"] == whole["rows"]
    assert calls.read_text("utf-8").split() == begun


def test_two_commands_do_not_meet_in_a_folder(tmp_path):
    with lock_grid(tmp_path), pytest.raises(InputError, match="another softf1 process is using"):
        run(tmp_path)
    run(tmp_path, losses=("ce",), seeds=[0])


def test_progress_is_plain_lines_in_a_pipe(tmp_path, capsys):
    recipe = fake.make_recipe(fail="dice")
    options = {"losses": ("ce", "dice"), "seeds": [0, 1], "tune": "none"}
    compare(recipe, tmp_path, execute=here, **options)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("[1/4] ce-s0 test f1 ")
    assert "left" in lines[0]
    assert lines[-1].startswith("[4/4] dice-s1 failed after 0 s: RuntimeError: no memory for dice")
    assert lines[-1].endswith(", done")


def test_runs_that_are_added_later_are_announced(tmp_path, capsys):
    options = {"losses": ("ce", ADVERSARIAL), "seeds": [0, 1], "tune": "none"}
    compare(fake.make_recipe(), tmp_path, execute=here, **options)
    said = capsys.readouterr().err.splitlines()
    at = next(place for place, line in enumerate(said) if "as a control, with" in line)
    assert said[at - 1].startswith("[6/6]")
    assert said[at] == (
        "note: 2 more runs of ce as a control, with 3 times the epochs, as long as "
        f"{ADVERSARIAL} takes; --no-controls leaves it out"
    )
    assert said[at + 1].startswith("[7/8]")
