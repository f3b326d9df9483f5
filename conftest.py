"""Where Triton is not installed, the kernels cannot be imported, nor their doctests collected.

Without a GPU its interpreter runs them, which has to be said before anything imports Triton.
"""

import importlib.util
import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

if importlib.util.find_spec("triton") is None:
    files = ("_[!_]*", "attention.py", "autograd.py", "embedding.py", "*_level.py", "encoder.py")
    more = ("fused.py", "operators.py", "row_sums.py")
    collect_ignore_glob = [f"src/softf1/kernels/{name}" for name in (*files, *more)]
    collect_ignore_glob += [f"src/softf1/training/{name}.py" for name in ("fusing", "recognise")]
