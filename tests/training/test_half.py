"""Half precision: weights cast once give what autocast gives; a training stays close to float32."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from softf1.training.graphs import Cast, CastOnce

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("half")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [sys.executable, "-m", "tests.training.half", str(folder), str(bert)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=300)
    return json.loads((folder / "found.json").read_text())


def test_weights_cast_once_give_the_logits_of_autocast(found):
    casts = found["casts"]
    assert casts["same"]
    assert casts["float32"]
    assert casts["error"] < 0.02  # gradients are rounded in another place


def test_only_linear_layers_are_cast(found):
    names = found["casts"]["cast"]
    assert "classifier.weight" in names
    assert not [name for name in names if "LayerNorm" in name or "embeddings" in name]
    assert len(names) == 2 * (2 * 6 + 1)  # weight and bias of six layers twice, and of the head


def test_bf16_on_the_cpu_trains_to_about_the_same(found):
    runs = found["runs"]
    assert [runs[name]["precision"] for name in ("fp32", "bf16")] == ["fp32", "bf16"]
    assert runs["bf16"]["losses"] != runs["fp32"]["losses"]
    assert runs["bf16"]["losses"] == pytest.approx(runs["fp32"]["losses"], rel=0.02)


def test_gradients_come_back_in_the_type_of_the_tensors():
    first, second = (torch.ones(2, requires_grad=True) for _ in range(2))
    half, unused = Cast.apply(torch.bfloat16, first, second)
    assert half.dtype == unused.dtype == torch.bfloat16
    (3 * half.float()).sum().backward()
    assert first.grad.dtype == torch.float32
    assert first.grad.tolist() == [3, 3]


def test_the_model_keeps_its_own_weights():
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    half = CastOnce(model, torch.float64)
    assert half.names == ["0.weight", "0.bias"]
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert set(half.parameters()) == set(model.parameters())
