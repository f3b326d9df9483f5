"""Registers of the kernels' layouts are counted without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="wants Triton")
FOLDER = Path(__file__).parents[2] / "benchmarks"
PROGRAM = """
import kernel_layouts as script

how = {"warps": 4, "together": 8, "many": 1}
tiles = [script._launch.choose_tile(64, 9, 1, entries=entries, **how) for entries in (16, 4)]
script.layouts = lambda *_: [
    *(("both", "ready_tile", tile) for tile in (*tiles, *tiles)),
    ("forward", "forward_tile", tiles[0]),
]
script.show_registers(64, 9)
"""


@pytest.mark.needs_tool
@pytest.mark.slow
def test_fewer_entries_a_thread_take_fewer_registers(tmp_path):
    settings = {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    paths = os.pathsep.join([str(FOLDER), *sys.path])
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | settings | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    many, few = (line.split() for line in said.splitlines())  # each layout once, and `both` only
    assert "s=16," in many[7]
    assert "s=4," in few[7]
    for _, registers, _, stack, _, warps, *_ in (many, few):
        assert 16 <= int(registers) <= 255
        assert int(stack) >= 0
        assert int(warps) in range(4, 65, 4)
    assert int(many[1]) > int(few[1])
