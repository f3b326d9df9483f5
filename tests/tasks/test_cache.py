import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from softf1.data.problems import Problems
from softf1.models.encoders import make_codec
from softf1.tasks import cache as module
from softf1.tasks.cache import encode_file
from softf1.tasks.registry import make_task

TEXT = "Ann B-PER\nvisits O\nParis B-LOC\n\nBob B-PER\nworks O\n"


@pytest.fixture
def codec(bert):
    return make_codec(bert)


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(TEXT, "utf-8")
    return path


def entries(folder):
    return sorted(path.name for path in folder.iterdir())


def same(one, other):
    assert one.names == other.names
    assert one.arrays.keys() == other.arrays.keys()
    for key in one.arrays:
        assert one[key].dtype == other[key].dtype
        np.testing.assert_array_equal(one[key], other[key])


def test_the_second_time_nothing_is_encoded(data, codec, tmp_path, monkeypatch):
    task = make_task("tagging", format="conll")
    first = encode_file(task, data, codec, cache=tmp_path / "cache")
    monkeypatch.setattr(type(task), "encode", None)
    again = encode_file(task, data, codec, cache=tmp_path / "cache")
    same(first, again)
    assert task.fit(again).labels == ("O", "B-LOC", "B-PER")
    assert not again["tokens"].flags.writeable


def test_batches_from_the_cache_are_the_same(data, codec, tmp_path):
    task = make_task("tagging", format="conll")
    batches = []
    for _ in range(2):
        features = encode_file(task, data, codec, cache=tmp_path / "cache")
        batches.append(task.fit(features).collate(features, [1, 0], codec))
    for key, tensor in batches[0].inputs.items():
        assert tensor.equal(batches[1].inputs[key])


def test_a_change_of_the_file_is_seen_even_with_its_size_and_time_kept(data, codec, tmp_path):
    task, folder = make_task("tagging", format="conll"), tmp_path / "cache"
    encode_file(task, data, codec, cache=folder)
    before = data.stat()
    data.write_text(TEXT.replace("Paris", "parks"), "utf-8")
    os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert data.stat().st_size == before.st_size
    found = encode_file(task, data, codec, cache=folder)
    same(found, task.encode(task.read(data), codec))
    assert len(entries(folder)) == 2


def test_options_and_tokenizer_are_part_of_the_key(data, codec, xlnet, tmp_path):
    folder = tmp_path / "cache"
    for task, used in [
        (make_task("tagging", format="conll"), codec),
        (make_task("tagging", format="conll", max_length=5), codec),
        (make_task("tagging", format="conll"), make_codec(xlnet)),
    ]:
        same(encode_file(task, data, used, cache=folder), task.encode(task.read(data), used))
    assert len(entries(folder)) == 3


def test_labels_are_not_part_of_the_key(data, codec, tmp_path):
    task, folder = make_task("tagging", format="conll"), tmp_path / "cache"
    fitted = task.fit(encode_file(task, data, codec, cache=folder))
    encode_file(fitted, data, codec, cache=folder)
    assert len(entries(folder)) == 1


def test_a_file_that_changes_while_it_is_read_is_not_cached(data, codec, tmp_path, monkeypatch):
    task = make_task("tagging", format="conll")
    hashes = iter(["before", "after"])
    monkeypatch.setattr(module, "hash_file", lambda _: next(hashes))
    assert len(encode_file(task, data, codec, cache=tmp_path / "cache")) == 2
    assert not (tmp_path / "cache").exists()


def test_skipped_records_are_reported_every_time(data, codec, tmp_path):
    data.write_bytes(TEXT.encode() + b"\n\xff\xfe B-PER\n")
    task = make_task("tagging", format="conll")
    for _ in range(2):
        problems = Problems("skip")
        encode_file(task, data, codec, cache=tmp_path / "cache", problems=problems)
        assert problems.skipped == 1


def test_a_failed_write_leaves_nothing_behind(data, codec, tmp_path, monkeypatch):
    def fail(_arrays, name, **_):
        Path(name).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "save_file", fail)
    task = make_task("tagging", format="conll")
    with pytest.warns(UserWarning, match="not cached: No space left"):
        features = encode_file(task, data, codec, cache=tmp_path / "cache")
    same(features, task.encode(task.read(data), codec))
    assert entries(tmp_path / "cache") == []


def test_a_damaged_entry_is_never_used_and_written_anew(data, codec, tmp_path):
    task, folder = make_task("tagging", format="conll"), tmp_path / "cache"
    wanted = encode_file(task, data, codec, cache=folder)
    (entry,) = folder.iterdir()
    whole = entry.read_bytes()
    random = np.random.default_rng(0)
    for size in [0, 1, 7, 8, 50, len(whole) // 2, len(whole) - 1]:
        entry.write_bytes(whole[:size])
        assert module.load_features(entry) is None
    used = 0
    for place in random.integers(len(whole), size=200).tolist():
        flipped = bytes([whole[place] ^ 1 << place % 8])
        entry.write_bytes(whole[:place] + flipped + whole[place + 1 :])
        found = module.load_features(entry)
        if found is not None:  # a space that only fills up the header
            same(found, wanted)
            used += 1
    assert used < 10
    entry.write_bytes(whole[:-1])
    same(encode_file(task, data, codec, cache=folder), wanted)
    same(module.load_features(entry), wanted)


def test_versions_are_part_of_the_key(codec, monkeypatch):
    task = make_task("tagging", format="conll")
    before = module.cache_key(task, "content", codec)
    monkeypatch.setattr("softf1.models.codec.version", lambda _: "0.0")
    after = module.cache_key(task, "content", codec)
    monkeypatch.setattr(module, "__version__", "0.0")
    assert len({before, after, module.cache_key(task, "content", codec)}) == 3


def test_two_processes_at_once(tmp_path):
    # Each writes the entry with its own number in every place and must never read a mixture.
    program = textwrap.dedent("""
        import sys, time
        from pathlib import Path
        import numpy as np
        from softf1.tasks.base import Features
        from softf1.tasks.cache import load_features, save_features
        entry, number, start = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
        time.sleep(max(0, start - time.time()))
        for _ in range(200):
            save_features(Features({"a": np.full(30_000, number)}, {}), entry)
            found = load_features(entry)["a"]
            assert found.min() == found.max() and found[0] in (1, 2)
        assert "torch" not in sys.modules
    """)
    start = time.time() + 1.5
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", program, tmp_path / "entry", number, str(start)],
            env=os.environ | {"PYTHONPATH": str(Path(module.__file__).parents[2])},
        )
        for number in ("1", "2")
    ]
    assert [run.wait(timeout=60) for run in runs] == [0, 0]
    assert entries(tmp_path) == ["entry"]
