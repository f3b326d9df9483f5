"""Run folders: a run is its recipe, its files and its versions; nothing of others is touched."""

import fcntl
import json
import os
import shutil
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest

from softf1.errors import InputError
from softf1.recipe import read_recipe, with_values
from softf1.training import run_folder
from softf1.training.run import train_or_find, train_run
from softf1.training.run_folder import (
    claim,
    find_finished,
    finish_run,
    hash_encoder_files,
    identify,
    list_changes,
)
from tests.training.toys import make_data, make_recipe, write_recipe

ONE_STEP = {"train.max_steps": 1}


def write_run(place):
    """A recipe of one step, with its files."""
    place.mkdir(exist_ok=True)
    return with_values(read_recipe(write_recipe(place)), ONE_STEP)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A place with data files and a finished run of them."""
    place = tmp_path_factory.mktemp("trained")
    train_run(write_run(place), place / "run", quiet=True)
    return place


@pytest.fixture
def place(trained, tmp_path):
    """A copy of it, with its recipe."""
    here = tmp_path / "place"
    shutil.copytree(trained, here)
    recipe = write_run(here)
    for name in ("recipe.toml", "result.json"):  # as if it had been trained here
        path = here / "run" / name
        path.write_text(path.read_text("utf-8").replace(str(trained), str(here)), "utf-8")
    content = json.loads((here / "run/result.json").read_text("utf-8"))
    content["hash"] = identify(recipe)["hash"]
    (here / "run/result.json").write_text(json.dumps(content), "utf-8")
    return here, recipe


def snapshot(folder):
    return {p: p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def test_the_same_command_after_the_training_file_was_edited_is_refused(place):
    here, recipe = place
    assert not train_or_find(recipe, here / "run", quiet=True).trained
    before = snapshot(here / "run")
    with (here / "train.txt").open("a") as file:
        file.write("\nAnn B-PER\n")
    for resume in (False, True):
        with pytest.raises(InputError, match=r"the train file .*train\.txt has changed: use --out"):
            train_run(recipe, here / "run", resume=resume, quiet=True)
    assert snapshot(here / "run") == before


def test_force_starts_afresh_and_leaves_what_is_not_ours(place):
    here, recipe = place
    (here / "run/notes.txt").write_text("mine")
    (here / "run/predictions.other.jsonl").write_text("old")
    other = with_values(recipe, {"train.seed": 5})
    result, trained = train_or_find(other, here / "run", force=True, quiet=True)
    assert trained
    assert result["seed"] == 5
    assert (here / "run/notes.txt").read_text() == "mine"
    assert not (here / "run/predictions.other.jsonl").exists()
    assert not train_or_find(other, here / "run", quiet=True).trained


def test_force_does_not_take_a_folder_that_is_no_run(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match=r"found thesis\.tex"):
        train_run(make_recipe(), tmp_path, data=make_data(), force=True, quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    "names",
    [
        ("model/weights.bin",),
        ("recipe.toml",),
        ("metrics.jsonl", "predictions.dev.jsonl"),
        ("checkpoints/epoch-1.pt",),
        (".git/config",),
    ],
)
def test_a_folder_that_is_no_run_is_refused_and_nothing_in_it_changes(names, tmp_path):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("precious")
    before = snapshot(tmp_path)
    with pytest.raises(InputError, match="wanted an empty folder or a run of softf1, found"):
        train_run(make_recipe(), tmp_path, data=make_data(), resume=True, quiet=True)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("content", ["[1]", '{"loss": 0.1}', '{"schema": 1, "hash": 7}'])
def test_a_result_of_another_program_is_refused(content, tmp_path):
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(InputError, match=r"result\.json: wanted the result of a run"):
        train_run(make_recipe(), tmp_path, data=make_data(), force=True, quiet=True)
    assert (tmp_path / "result.json").read_text() == content


def test_a_file_is_no_run_folder(tmp_path):
    (tmp_path / "run").write_text("precious")
    with pytest.raises(InputError, match="wanted a folder, got a file"):
        train_run(make_recipe(), tmp_path / "run", data=make_data(), quiet=True)
    assert (tmp_path / "run").read_text() == "precious"


def test_what_a_start_that_was_killed_left_is_no_obstacle(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    for name in ("checkpoints/lock", "checkpoints/.softf1-00.tmp", ".softf1-00.tmp", "error.txt"):
        (tmp_path / name).write_text("")
    recipe = make_recipe(train={"max_steps": 1})
    assert train_or_find(recipe, tmp_path, data=make_data(), quiet=True).trained
    assert not list(tmp_path.glob(".softf1-*"))


def test_other_examples_in_memory_are_another_run(tmp_path):
    recipe, data = make_recipe(train={"max_steps": 1}), make_data()
    train_run(recipe, tmp_path, data=data, quiet=True)
    assert not train_or_find(recipe, tmp_path, data=data, quiet=True).trained
    data["dev"] = data["dev"][::-1]
    with pytest.raises(InputError, match="a finished run, but dev has changed"):
        train_run(recipe, tmp_path, data=data, quiet=True)


def test_another_version_is_said(monkeypatch):
    now = identify(make_recipe())
    for name in ("softf1", "torch", "transformers"):
        before = {**now, "versions": {**now["versions"], name: "0.0.1"}}
        assert list_changes(before, now) == [f"{name} was 0.0.1 and is {now['versions'][name]}"]
    monkeypatch.setattr(run_folder.torch, "__version__", "9.9")
    assert list_changes(now, identify(make_recipe())) == [
        f"torch was {now['versions']['torch']} and is 9.9"
    ]


def test_another_python_is_no_other_run():
    now = identify(make_recipe())
    assert not list_changes({**now, "versions": {**now["versions"], "python": "3.0"}}, now)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_an_encoder_whose_files_changed_is_another(name, bert, tmp_path):
    shutil.copytree(bert, tmp_path / "bert")
    recipe = make_recipe(encoder={"name": str(tmp_path / "bert")})
    before = identify(recipe)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= before["encoder_files"].keys()
    (tmp_path / "bert/README.md").write_text("about it")
    assert not list_changes(before, identify(recipe))
    path = tmp_path / "bert" / name
    state = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))  # no time stamp gives it away
    (said,) = list_changes(before, identify(recipe))
    assert said == f"encoder {tmp_path / 'bert'} has changed ({name})"


def test_a_name_of_the_hub_is_known_by_its_commit(monkeypatch):
    found = "/cache/models--x--y/snapshots/0abc/config.json"
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: found)
    assert hash_encoder_files("x/y") == {"commit": "0abc"}
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    assert hash_encoder_files("x/y") == {}  # it is not there yet


def test_many_changes_are_counted():
    now = identify(make_recipe())
    other = identify(make_recipe(train={"lr": 1.0, "seed": 3, "batch_size": 2, "epochs": 1.0}))
    said = run_folder.say_changes(list_changes(other, now))
    assert "; and 1 more: use --out" in said


def test_the_choice_of_auto_is_no_change():
    now = identify(make_recipe(loss={"name": "auto"}, train={"seed": 3}))
    chosen = {"name": "ce"}, {"consistency": 1.0, "adversarial_relative": 0.5}
    before = identify(make_recipe(loss=chosen[0], train=chosen[1]))
    assert list_changes(before, now) == ["train.seed was 0 and is 3"]
    own = identify(make_recipe(loss={"name": "auto"}, train={"consistency": 0.0}))
    assert list_changes(before, own) == ["train.consistency was 1.0 and is 0.0"]


def test_a_file_that_changes_while_it_is_read_trains_nothing(place):
    here, recipe = place
    from softf1.training.datasets import load_datasets

    def load(asked):
        found = load_datasets(asked)
        with (here / "dev.txt").open("a") as file:
            file.write("\nAnn B-PER\n")
        return found

    with pytest.raises(InputError, match=r"dev\.txt has changed while it was read"):
        train_run(recipe, here / "new", load=load, quiet=True)
    assert not (here / "new").exists()


def test_another_process_that_finishes_before_the_lock_is_seen(place):
    """Between the look and the lock somebody finishes another recipe in the folder."""
    here, recipe = place
    other = with_values(recipe, {"train.seed": 7})
    assert find_finished(here / "late", identify(other)) is None
    shutil.copytree(here / "run", here / "late")
    before = snapshot(here / "late")
    with ExitStack() as held, pytest.raises(InputError, match=r"train\.seed was 0 and is 7"):
        claim(here / "late", other, identify(other), held)
    shutil.rmtree(here / "late/checkpoints")
    assert snapshot(here / "late") == before


def test_the_same_run_finished_by_another_process_meanwhile_is_not_trained_again(place):
    here, recipe = place
    from softf1.training.datasets import load_datasets

    def load(asked):  # while this process reads, another one trains the same
        shutil.copytree(here / "run", here / "late")
        return load_datasets(asked)

    result, trained = train_or_find(recipe, here / "late", load=load, quiet=True)
    assert not trained
    assert result == json.loads((here / "run/result.json").read_text("utf-8"))
    assert not (here / "late/checkpoints").exists()


def test_a_lock_that_was_removed_with_its_folder_is_no_lock(tmp_path, monkeypatch):
    """Its holder finishes between our opening the file and our locking it."""
    path, times = tmp_path / "checkpoints/lock", []
    real = run_folder.lock_file

    def late(number):
        times.append(number)
        if len(times) == 1:
            shutil.rmtree(path.parent)
        return real(number)

    monkeypatch.setattr(run_folder, "lock_file", late)
    with ExitStack() as held:
        run_folder._lock(path, held)
        with path.open("ab") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert len(times) == 2


def test_a_finished_folder_is_not_tidied_under_somebody_who_works_there(place):
    here, recipe = place
    run = here / "run"
    (run / "checkpoints/step-00000009").mkdir(parents=True)
    with (run / "checkpoints/lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert not train_or_find(recipe, run, quiet=True).trained
        assert (run / "checkpoints/step-00000009").is_dir()
    assert not train_or_find(recipe, run, quiet=True).trained
    assert not (run / "checkpoints").exists()


def test_what_a_kill_at_the_end_left_of_the_checkpoints_goes_with_the_next_command(place):
    here, recipe = place
    left = here / "run/.softf1-0123456789abcdef.tmp"
    (left / "step-00000009").mkdir(parents=True)
    assert not train_or_find(recipe, here / "run", quiet=True).trained
    assert not left.exists()


def test_the_result_is_on_the_disk_before_the_checkpoints_go(tmp_path, monkeypatch):
    (tmp_path / "checkpoints").mkdir()
    done, fsync, rename = [], os.fsync, Path.rename

    def note_sync(number):
        if stat.S_ISDIR(os.fstat(number).st_mode):
            assert os.path.samestat(os.fstat(number), tmp_path.stat())
            assert (tmp_path / "result.json").exists()
            done.append("folder synced")
        fsync(number)

    def note_rename(self, to):
        done.append(f"{self.name} removed")
        return rename(self, to)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "rename", note_rename)
    finish_run(tmp_path, {"schema": 1}, {"hash": "a", "encoder_files": {}})
    assert done == ["folder synced", "checkpoints removed"]
