"""The tiny encoders of the tests of tasks."""

import pytest
import torch

from tests.tasks.cases import build_case
from tests.tasks.conftest import bert, xlnet

__all__ = ["bert", "xlnet"]


def strengthen(case):
    """Moves all weights far: those of a new head give much the same for any text."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in case[3].parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.3)
    return case


@pytest.fixture
def case(request):
    """Task, features, tokenizer, model and examples of a (kind, options, encoder)."""
    return strengthen(build_case(*request.param, request))
