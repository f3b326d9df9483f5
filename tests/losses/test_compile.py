"""torch.compile: one graph, no recompilation for each batch size, the same numbers."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from tests.losses.cases import WEIGHT, batch, build, every_case, every_mode

SIZES = (7, 9, 12, 31)


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()


@pytest.mark.slow
@every_mode
@every_case()
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_one_graph_for_all_batch_sizes_in_every_case(name, options, mode):
    check_one_graph(build(name, options), mode)


@every_mode
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ce", {}),
        ("focal", {"gamma": 0.3}),
        ("dice", {"over": "batch", "ohem_ratio": 1.0}),
        ("tversky", {"squared": True, "weight": WEIGHT}),
        ("dsc", {"alpha": 0.01, "decay": "paper", "exclude": (0,)}),
        ("ce+dice", {"schedule": "cosine", "schedule_steps": 10}),
        ("smooth_ap", {"exclude": (0,)}),
        ("pauc", {"max_fpr": 0.5}),
    ],
)
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_one_graph_for_all_batch_sizes(name, options, mode):
    check_one_graph(build(name, options), mode)


def check_one_graph(loss, mode):
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(loss, fullgraph=True, backend=counter)
    for n in SIZES:
        logits, target = batch(mode, n=n, seed=n)
        plain, traced = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        expected, value = loss(plain, target), compiled(traced, target)
        (3 * expected).backward()
        (3 * value).backward()
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(traced.grad, plain.grad)
    assert counter.frame_count <= 2  # the first size, then any size


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_labels_are_checked_in_a_compiled_loss_when_asked():
    loss = build("dice", {"check_labels": True})
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    with pytest.raises(RuntimeError, match="wanted labels from 0 to 3"):
        compiled(torch.zeros(2, 4), torch.tensor([0, 3 + 1]))
