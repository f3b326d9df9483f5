"""One small case of every registered task and its options, with every encoder that it takes."""

import pytest
import torch

from softf1.data.examples import (
    Answer,
    MrcExample,
    PairExample,
    QAExample,
    SpanSentence,
    TaggedSentence,
    TextExample,
)
from softf1.models.encoders import make_tokenizer
from softf1.tasks import make_task

EXAMPLES = {
    "tagging": [
        TaggedSentence(("Ann", "works"), ("B-PER", "O"), line=1),
        TaggedSentence(("Paris", "Ann", "Bob", "works"), ("B-LOC", "B-PER", "I-PER", "O"), line=4),
    ],
    "classification": [
        TextExample("Ann works", ("work",), line=1),
        TextExample("Bob visits Paris", ("travel",), line=2),
    ],
    "pairs": [
        PairExample("Ann works", "Ann is working", "1", line=1),
        PairExample("Ann", "Bob visits the north", "0", line=2),
    ],
    "qa": [
        QAExample("a", "who?", "Ann works in Paris", (Answer(((0, 3),), ("Ann",)),)),
        QAExample("b", "where?", "Bob works. Ann visits Paris", (Answer(((22, 27),), ("Paris",)),)),
    ],
    "mrc_ner": [
        MrcExample("0.1", "who?", "PER", ("Ann", "works"), ((0, 1),)),
        MrcExample("1.1", "who?", "PER", ("the", "work", "of", "Bob"), ((3, 4),)),
    ],
    "span_ner": [
        SpanSentence(("Ann", "works"), (), 1, spans=((0, 1, "PER"),)),
        SpanSentence(("the", "work", "of", "Bob"), (), 2, spans=((0, 4, "WORK"), (3, 4, "PER"))),
    ],
}
SCRATCH = {"tagging": ["bilstm"], "classification": ["textcnn"], "pairs": ["textcnn"]}
OPTIONS = [
    ("tagging", {}),
    ("tagging", {"unit": "character"}),
    ("classification", {}),
    ("classification", {"multi_label": True}),
    ("pairs", {}),
    ("qa", {}),
    ("qa", {"positions": "sigmoid", "several": True}),
    ("mrc_ner", {}),
    ("mrc_ner", {"match": "biaffine", "answerable": True}),
    ("mrc_ner", {"match": "none"}),
    ("span_ner", {"nested": True}),
    ("span_ner", {"max_span": 2}),
]
CASES = [
    pytest.param((kind, options, encoder), id=f"{kind}-{encoder}-{number}")
    for number, (kind, options) in enumerate(OPTIONS)
    for encoder in ["bert", "xlnet", *SCRATCH.get(kind, [])]
]


def build_case(kind, options, encoder, request):
    """Task, features, tokenizer, model, examples; `encoder` is a fixture or made from scratch."""
    known = encoder in ("bert", "xlnet")
    folder = request.getfixturevalue(encoder) if known else encoder
    examples, task = EXAMPLES[kind], make_task(kind, **options)
    tokenizer = make_tokenizer(folder, task.texts(examples))
    features = task.encode(iter(examples), tokenizer)
    task = task.fit(features)
    torch.manual_seed(0)
    return task, features, tokenizer, task.build_model(folder, tokenizer), examples
