"""The code of the pages for GLiNER, SetFit and SpanMarker, on stand-ins with their interfaces.

The pages themselves run where the packages are installed (`tests/test_docs.py`). Here the first
block of a page meets a stand-in with the signatures of GLiNER 0.2.29, SetFit 1.2.0 and
SpanMarker 1.8.1.
"""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from softf1.losses import make_loss
from tests.pages import ROOT, read_blocks


def run_first_block(page, monkeypatch, **stand_ins):
    """The names that the first block of a page defines, its package being a stand-in."""
    for name, values in stand_ins.items():
        module = ModuleType(name.replace("__", "."))
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    text = (ROOT / "docs/integrations" / f"{page}.md").read_text(encoding="utf-8")
    namespace = {"__name__": "page"}
    exec(next(read_blocks(text)).code, namespace)
    return namespace


@pytest.fixture
def gliner(monkeypatch):
    """The page's Trainer, which inherits from nothing."""
    stand_ins = {"gliner": {}, "gliner__training": {"Trainer": object}}
    return run_first_block("gliner", monkeypatch, **stand_ins)["SpanTrainer"]()


def make_spans(texts=2, words=3, widths=2, labels=2):
    """What GLiNER's collator and span model make: the second text asks for one label only."""
    torch.manual_seed(0)
    logits = torch.randn(texts, words, widths, labels, requires_grad=True)
    span_mask = torch.ones(texts, words * widths, dtype=torch.long)
    span_mask[:, -1] = 0  # a span that goes beyond the text
    gold = torch.zeros(texts, words * widths, labels)
    gold[0, 0, 0] = gold[0, 3, 1] = gold[1, 2, 0] = 1
    asked = torch.tensor([[1, 1], [1, 0]])
    inputs = {"span_mask": span_mask, "labels": gold}
    return logits, inputs, SimpleNamespace(logits=logits, prompts_embedding_mask=asked)


def test_gliner_learns_from_spans_and_labels_that_are_there(gliner):
    logits, inputs, outputs = make_spans()
    value, same = gliner.compute_loss(lambda **_: outputs, inputs, return_outputs=True)
    assert same is outputs
    value.backward()
    there = torch.ones_like(logits, dtype=torch.bool)
    there[:, -1, -1] = False
    there[1, ..., 1] = False
    assert torch.equal(logits.grad != 0, there)


def test_gliner_with_cross_entropy_is_the_mean_of_its_own_loss(gliner):
    logits, inputs, outputs = make_spans()
    gliner.loss = make_loss("ce")
    value = gliner.compute_loss(lambda **_: outputs, inputs)
    there = (outputs.prompts_embedding_mask[:, None] * inputs["span_mask"][..., None]).bool()
    theirs = torch.nn.functional.binary_cross_entropy_with_logits(
        logits.view(2, -1, 2)[there], inputs["labels"][there]
    )
    torch.testing.assert_close(value, theirs)


class Head(torch.nn.Linear):
    """SetFit's torch head, as far as training asks it."""

    def get_loss_fn(self):
        return torch.nn.CrossEntropyLoss()


@pytest.mark.parametrize("several", [False, True])
def test_setfit_takes_the_loss_of_its_head(several, monkeypatch):
    head = run_first_block("setfit", monkeypatch, setfit={"SetFitHead": Head})["SoftF1Head"](4, 2)
    torch.manual_seed(0)
    labels = (
        torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]) if several else torch.tensor([0, 1, 1])
    )
    criterion = head.get_loss_fn()
    before = criterion(head(torch.eye(3, 4)), labels)
    before.backward()
    with torch.no_grad():
        head.weight -= head.weight.grad
    assert criterion(head(torch.eye(3, 4)), labels) < before


def test_span_marker_takes_a_loss_as_it_calls_its_own():
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 5, 4, requires_grad=True), torch.randint(4, (2, 5))
    labels[1, 3:] = -100  # padding

    def call(loss_func):  # as the model's forward does
        return loss_func(logits.view(-1, 4), labels.view(-1))

    torch.testing.assert_close(call(make_loss("ce")), call(torch.nn.CrossEntropyLoss()))
    call(make_loss("ce+dice", dice={"over": "batch", "exclude": (0,)})).backward()
    assert torch.equal(logits.grad.any(-1), labels != -100)
