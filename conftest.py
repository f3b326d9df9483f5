"""Where Triton is not installed, the kernels cannot be imported, nor their doctests collected."""

import importlib.util

if importlib.util.find_spec("triton") is None:
    collect_ignore_glob = ["src/softf1/kernels/*"]
