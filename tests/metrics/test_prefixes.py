from __future__ import annotations

import pytest

from softf1.metrics.schemes import (
    ALLOWED,
    CONTINUES,
    ENDS,
    LENIENT,
    SCHEMES,
    STARTS,
    UNKNOWN,
    get_scheme,
    join_tag,
    split_tag,
    steps_of,
)


def test_unknown_scheme_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"BIO, IOB1, .* got 'BIZ'"):
        get_scheme("BIZ")


def test_names_in_any_case_and_their_aliases():
    assert get_scheme("iobes") is get_scheme("BIOES") is SCHEMES["BIOES"]
    assert get_scheme("IOB2") is SCHEMES["BIO"]
    assert get_scheme(LENIENT) is LENIENT


@pytest.mark.parametrize(
    ("tag", "parts"), [("B-PER", ("B", "PER")), ("I-a-b", ("I", "a-b")), ("S", ("S", ""))]
)
def test_tags_come_apart_and_together(tag, parts):
    assert split_tag(tag) == parts
    assert join_tag(*parts) == tag


@pytest.mark.parametrize(
    ("scheme", "pair", "bits"),
    [
        # B-X I-X goes on. (Were it not for B-X, I-X would start nothing; B-X alone is a span.)
        ("BIO", ("B-X", "I-X"), CONTINUES | ENDS | ALLOWED),
        # In BIO another label after B-X breaks the span, and I cannot start one.
        ("BIO", ("B-X", "I-Y"), ENDS),
        ("IOB1", ("O", "I-X"), STARTS | ALLOWED),
        # In IOB1, B only parts a span from one of the same label.
        ("IOB1", ("O", "B-X"), 0),
        ("IOB1", ("I-X", "B-X"), STARTS | ENDS | ALLOWED),
        ("IOB1", ("I-X", "B-Y"), ENDS),
        # B-X wants E-X or I-X in BIOES: alone it is no span.
        ("BIOES", ("B-X", "O"), 0),
        ("BIOES", ("S-X", "S-X"), STARTS | ENDS | ALLOWED),
        # Unknown tags are reported once, where they stand.
        ("BIO", ("O", "S-X"), UNKNOWN),
        ("BIO", ("S-X", "O"), UNKNOWN | ALLOWED),
    ],
)
def test_what_holds_between_two_tags(scheme, pair, bits):
    assert steps_of(SCHEMES[scheme])(pair) == bits


def test_endless_new_tags_are_not_all_kept():
    steps = steps_of(SCHEMES["BIO"])
    for number in range(100_500):
        steps(("O", f"B-{number}"))
    assert steps.cache_info().currsize == steps.cache_info().maxsize < 100_500
    steps.cache_clear()
