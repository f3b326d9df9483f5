"""Where Triton is not installed, the kernels cannot be imported, nor their doctests collected."""

import importlib.util

if importlib.util.find_spec("triton") is None:
    files = ("_[!_]*", "fused.py", "ops.py")
    collect_ignore_glob = [f"src/softf1/kernels/{name}" for name in files]
