import os
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path):
    """Writes text or bytes to a file and returns its path."""

    def make(content, name="data.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


@pytest.fixture(scope="session")
def shared():
    """The folder of real corpora, which is not part of the project."""
    beside = Path(__file__).parents[2] / ".." / "shared"
    folder = Path(os.environ.get("SOFTF1_SHARED", beside)) / "data"
    if not folder.is_dir():
        pytest.skip("the shared corpora are not on this machine (SOFTF1_SHARED)")
    return folder
