import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def little_garbage() -> Iterator[None]:
    """The Trainer collects garbage at every start, which takes 0.4 s over all that is imported."""
    gc.freeze()
    yield
    gc.unfreeze()
