from __future__ import annotations

import random

import pytest

from softf1.metrics.schemes import (
    SCHEMES,
    convert_tags,
    decode_lenient,
    decode_strict,
    detect_scheme,
    encode_spans,
    find_invalid,
    repair_tags,
)

from .seqeval_figures import (
    STRICT,
    TO_CONLLEVAL,
    ask_seqeval,
    digest,
    read_figures,
    rename,
    sequences,
)
from .sequences import random_spans


def conlleval_spans(tags):
    """The rules of conlleval.pl (with E and S), as two questions about a tag and the one before."""
    spans, start = [], None
    before, label_before = "O", ""
    for index, tag in enumerate([*tags, "O"]):
        letter, _, label = tag.partition("-")
        ended = (
            before in "ES"
            or (before in "BI" and letter in "BSO")
            or (before != "O" and label != label_before)
        )
        started = (
            letter in "BS"
            or (before in "ESO" and letter in "EI")
            or (letter != "O" and label != label_before)
        )
        if ended and before != "O":
            spans.append((start, index, label_before))
        if started:
            start = index
        before, label_before = letter, label
    return spans


@pytest.mark.parametrize("scheme", SCHEMES)
def test_strict_is_seqeval_strict_on_random_sequences(scheme):
    found = [decode_strict(tags, scheme) for tags in sequences(scheme)]
    assert digest(found) == read_figures()[scheme]["strict_spans"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_lenient_is_conlleval_and_seqeval_on_random_sequences(scheme):
    tagged = sequences(scheme)
    found = [decode_lenient(tags) for tags in tagged]
    for tags, spans in zip(tagged, found, strict=True):
        assert spans == conlleval_spans(rename(tags, TO_CONLLEVAL)), tags
    assert digest(found) == read_figures()[scheme]["lenient_spans"]


@pytest.mark.needs_tool
@pytest.mark.filterwarnings("ignore")  # seqeval's own
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_figures_kept_are_what_seqeval_says(scheme):
    seqeval = pytest.importorskip("seqeval.scheme", reason="seqeval is not installed")
    name, letters = STRICT[scheme]
    for tags in sequences(scheme, 1_000):  # first one by one: a hash names no sequence
        entities = seqeval.Tokens(rename(tags, letters), getattr(seqeval, name)).entities
        assert decode_strict(tags, scheme) == [(e.start, e.end, e.tag) for e in entities], tags
    assert ask_seqeval(scheme) == read_figures()[scheme]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_valid_means_that_decoding_and_encoding_give_it_back(scheme):
    seen = set()
    for tags in sequences(scheme, 3_000, seed=1):
        spans = decode_strict(tags, scheme)
        valid = encode_spans(spans, length=len(tags), scheme=scheme) == tags
        assert valid == (find_invalid(tags, scheme) == []), tags
        seen.add(valid)
    assert seen == {True, False}


@pytest.mark.parametrize("target", SCHEMES)
@pytest.mark.parametrize("source", SCHEMES)
def test_conversion_keeps_spans(source, target):
    rng = random.Random(2)
    for _ in range(100):
        length = rng.randint(0, 12)
        spans = random_spans(rng, length)
        tags = encode_spans(spans, length=length, scheme=source)
        converted = convert_tags(tags, source, target)
        assert decode_strict(converted, target) == spans
        assert decode_lenient(converted) == spans
        assert convert_tags(converted, target, source) == tags


@pytest.mark.parametrize("scheme", SCHEMES)
def test_repair_leaves_valid_tags_and_keeps_lenient_spans(scheme):
    for tags in sequences(scheme, 1_000, seed=3):
        repaired = repair_tags(tags, scheme)
        assert find_invalid(repaired, scheme) == []
        assert decode_strict(repaired, scheme) == decode_lenient(tags)
        assert find_invalid(tags, scheme) or repaired == tags


@pytest.mark.parametrize("scheme", SCHEMES)
def test_detects_every_scheme_also_with_a_few_errors(scheme):
    rng = random.Random(4)
    sentences = [encode_spans(random_spans(rng, 15), length=15, scheme=scheme) for _ in range(200)]
    assert detect_scheme(sentences) is SCHEMES[scheme]
    sentences[3] = ["I-PER" if scheme == "BIO" else sentences[3][-1], *sentences[3][1:]]
    assert detect_scheme(sentences) is SCHEMES[scheme]


@pytest.mark.parametrize(
    ("sentences", "name"),
    [
        ([], "BIO"),
        ([["O", "O"], []], "BIO"),
        ([["B-X", "O"]], "BIO"),
        ([["I-X", "O"]], "IOB1"),  # not BIO, in which a span begins with B
        ([["O", "S-X"]], "BIOES"),  # BMES as well: the first in order
        ([["B-X", "M-X", "E-X"]], "BMES"),
        ([["W-X"]], "BMEWO"),
        ([["B", "I", "O", "B"]], "BIO"),
    ],
)
def test_detects_from_little(sentences, name):
    assert detect_scheme(sentences).name == name


def test_detection_names_letters_it_cannot_place():
    with pytest.raises(ValueError, match=r"wanted the prefixes .* got B, E, L, O"):
        detect_scheme([["B-X", "L-X", "E-X"]])


def test_invalid_tags_are_named_with_their_index():
    invalid = find_invalid(["O", "I-X", "B-X", "Q-X", "I-Y"], "BIO")
    assert [(x.index, x.message) for x in invalid] == [
        (1, "wanted a tag that can follow 'O' in BIO, got 'I-X'"),
        (3, "wanted O or a tag of BIO (B-, I-), got 'Q-X'"),
    ]
    invalid = find_invalid(["B-X", "I-X"], "BIOES")
    assert [(x.index, x.message) for x in invalid] == [
        (1, "wanted the span of 'I-X' to be closed (BIOES), got the end of the sentence")
    ]


def test_conversion_refuses_invalid_tags():
    with pytest.raises(ValueError, match="tag 1: wanted a tag that can follow 'B-X'"):
        convert_tags(["B-X", "I-Y"], "BIO", "BIOES")


@pytest.mark.parametrize("tag", ["", "X", "Q-PER", "BI-PER", "O-PER", "-PER", "PER"])
def test_unknown_tags_are_refused(tag):
    for decode in (decode_lenient, lambda tags: decode_strict(tags, "BIO")):
        with pytest.raises(ValueError, match=r"tag 1: wanted O or a tag of"):
            decode(["O", tag])


@pytest.mark.parametrize(
    "spans", [[(0, 2, "X"), (1, 3, "X")], [(2, 5, "X")], [(1, 1, "X")], [(-1, 1, "X")]]
)
def test_encoding_refuses_what_tags_cannot_say(spans):
    with pytest.raises(ValueError, match=r"wanted spans apart from each other within 4 tokens"):
        encode_spans(spans, length=4, scheme="BIO")


def test_labels_with_hyphens_and_without():
    tags = ["B-a-b", "I-a-b", "B", "I", "O"]
    assert decode_strict(tags, "BIO") == [(0, 2, "a-b"), (2, 4, "")]
    assert encode_spans(decode_strict(tags, "BIO"), length=5, scheme="BIO") == tags
