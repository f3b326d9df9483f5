"""What the page about scale says of checkpoints and of messages between ranks."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from benchmarks import scale
from softf1.training.build import uses_graphs


@pytest.mark.parametrize("ranks", [8, 64])
def test_cut_over_ranks_the_gradient_is_that_of_the_whole_batch(ranks):
    sent, error = scale.simulate(ranks, rows=4 * ranks, classes=9)
    assert sent == 2 * 9 * 4  # overlap and total of each class in float32, whatever the ranks
    assert error < 1e-12


def test_a_checkpoint_holds_twelve_bytes_a_parameter():
    # The weight and AdamW's two averages, float32 each.
    assert scale.measure_checkpoint((1000, 2000, 4000)) == pytest.approx(12.0, abs=0.1)


def test_a_file_twice_as_long_holds_twice_as_many_features(monkeypatch, tmp_path):
    path = tmp_path / "some.txt"
    monkeypatch.setattr(scale, "make_tokenizer", lambda _: scale_tokenizer())
    found = []
    for size in (20, 40):
        scale.write_sentences(path, size)
        found.append(scale.read_and_encode(str(path)))
    ratio = found[1]["features_bytes"] / found[0]["features_bytes"]
    assert 1.5 < ratio < 2.5
    assert found[0]["read_s"] >= 0
    assert found[0]["peak_bytes"] > 10 * 2**20


@pytest.mark.parametrize("mark", scale.TABLES)
def test_the_page_shows_the_files(mark):
    text = (scale.DOCS / "scale.md").read_text("utf-8")
    shown = text.partition(f"<!-- {mark} -->\n")[2].partition(f"<!-- end of {mark} -->")[0]
    assert shown.strip() == scale.TABLES[mark]().strip()


def test_the_peak_holds_examples_and_features():
    costs = scale.read_costs()
    held = costs["examples in memory"] + costs["features in memory"]
    assert held < costs["peak of the process"] < 2 * held


def test_several_processes_take_plain_steps():
    setup = SimpleNamespace(
        recipe=SimpleNamespace(
            train=SimpleNamespace(compile="auto", accumulate=1),
            encoder=SimpleNamespace(gradient_checkpointing=False),
        ),
        processes=SimpleNamespace(device=torch.device("cuda"), world=1, sharded=False),
        precision="bf16",
    )
    assert uses_graphs(setup)
    setup.processes.world = 8
    assert not uses_graphs(setup)
    assert scale.read_steps("softf1-eager")["MiniLM"] > 5 * scale.read_steps()["MiniLM"]


def scale_tokenizer():
    from softf1.models.encoders import make_tokenizer

    return make_tokenizer("bilstm", ["ba do in"])
