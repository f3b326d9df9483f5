import pytest

from tests.reports import grids

SCRIPT = "<script>document.title='run'</script>"
"""A label that must be shown and not run."""


@pytest.fixture(scope="session")
def grid(tmp_path_factory):
    """Eight losses, five seeds, one failed cell, a label that is a script."""
    folder = tmp_path_factory.mktemp("grids") / "compare"
    return grids.write_compare(folder, sentences=300, rename={"EVENT": SCRIPT}, missing=("dsc-s4",))


@pytest.fixture(scope="session")
def sweep(tmp_path_factory):
    return grids.write_sweep(tmp_path_factory.mktemp("grids") / "sweep", sentences=160)


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """Three runs of text classification with probabilities."""
    root = tmp_path_factory.mktemp("texts")
    made = [("ce", 0, 2.0), ("ce", 1, 2.0), ("dice", 0, 3.0)]
    return [
        grids.write_texts(root / f"{loss}-{seed}", loss=loss, seed=seed, sharpness=sharpness)
        for loss, seed, sharpness in made
    ]
