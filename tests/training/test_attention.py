import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.backends import cuda
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers import BertConfig, BertModel

from softf1.training import step
from softf1.training.attention import steady_attention
from softf1.training.graphs import GraphStepper
from softf1.training.material import load_material
from softf1.training.run import train_run
from softf1.training.step import Stepper
from tests.training.test_graphs import gpu, make_stepper, make_steps
from tests.training.test_run import case
from tests.training.toys import read_files


def rows(width, device="cuda"):
    return {"input_ids": SimpleNamespace(device=SimpleNamespace(type=device), shape=(4, width))}


def kernels():
    return cuda.cudnn_sdp_enabled(), cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled()


@pytest.mark.parametrize("width", [129, 136, 512])
def test_long_rows_go_without_fast_kernels(width):
    before = kernels()
    with steady_attention(rows(width)):
        assert kernels() == (False, False, False)
        assert cuda.math_sdp_enabled()
    assert kernels() == before


@pytest.mark.parametrize("inputs", [rows(128), rows(8), rows(512, "cpu"), {}])
def test_all_else_is_left_as_it_is(inputs):
    before = kernels()
    with steady_attention(inputs):
        assert kernels() == before


@pytest.mark.parametrize("kind", [Stepper, GraphStepper])
@pytest.mark.parametrize("wanted", [True, False])
def test_steps_ask_for_it_where_it_is_wanted(kind, wanted, bert, monkeypatch):
    recipe, data = case("tagging-batch", bert)
    material = load_material(recipe, data)
    (batch,) = make_steps(material, 1, widths=1)
    asked = []

    def steady(inputs):
        asked.append(set(inputs))
        return sdpa_kernel(SDPBackend.MATH)

    monkeypatch.setattr(step, "steady_attention", steady)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: None)
    stepper = make_stepper(kind, material, recipe)
    stepper.deterministic = wanted
    stepper.step([batch])
    assert asked == ([set(batch.inputs)] if wanted else [])
    assert stepper.read_meter()[step.SKIPPED] == 0


@gpu
@pytest.mark.parametrize("width", [136, 192, 320, 512])
def test_gradients_are_the_same_every_time(width):
    torch.manual_seed(0)
    made = torch.randn((3, 32, 12, width, 32), device="cuda", dtype=torch.bfloat16)
    mask = torch.ones(32, 1, 1, width, dtype=torch.bool, device="cuda")
    mask[::2, ..., width // 2 :] = False
    found = []
    for _ in range(20):
        query, key, value = (one.clone().requires_grad_() for one in made)
        with steady_attention({"input_ids": torch.zeros(32, width, device="cuda")}):
            out = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        out.float().square().sum().backward()
        found.append(torch.stack([query.grad, key.grad, value.grad]))
    assert all(torch.equal(found[0], other) for other in found[1:])


@pytest.fixture
def long_bert(bert, tmp_path):
    """A random BERT for rows of up to 256 ids, of 4 heads."""
    folder = tmp_path / "bert"
    shutil.copytree(bert, folder)
    config = BertConfig.from_pretrained(bert)
    config.update({"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 256})
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    return folder


def train_long(long_bert, folder, steps):
    train = {"batch_size": 32, "max_steps": steps, "epochs": 10.0, "deterministic": True}
    recipe, data = case("tagging-batch", long_bert, **train)
    long = {
        name: [replace(one, words=one.words * 20, tags=one.tags * 20) for one in examples]
        for name, examples in data.items()
    }
    result = train_run(recipe, folder, data=long, quiet=True)
    assert result["steps"] == steps
    return read_files(folder)


def test_long_rows_train(long_bert, tmp_path):
    assert train_long(long_bert, tmp_path / "a", steps=1)


@gpu
def test_the_seed_decides_every_bit_of_long_rows(long_bert, tmp_path):
    first, second = (train_long(long_bert, tmp_path / name, steps=20) for name in "ab")
    assert first == second
