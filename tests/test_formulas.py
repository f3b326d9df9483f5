"""Formulas of the pages become MathML."""

import importlib.util
import re
from xml.etree import ElementTree as ET

import pytest

from tests.pages import PAGES, ROOT

FORMULA = re.compile(r"^\$\$(.+)\$\$$", re.MULTILINE)


def load():
    spec = importlib.util.spec_from_file_location("mathml", ROOT / "docs/mathml.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mathml = load()


def inside(formula):
    return mathml.convert(formula).partition('"block">')[2].removesuffix("</math></div>")


@pytest.mark.parametrize(
    ("formula", "wanted"),
    [
        ("p_i^2", "<msubsup><mi>p</mi><mi>i</mi><mn>2</mn></msubsup>"),
        (r"\frac{1}{N}", "<mfrac><mrow><mn>1</mn></mrow><mrow><mi>N</mi></mrow></mfrac>"),
        (r"\sum_i x", "<munder><mo>∑</mo><mi>i</mi></munder><mi>x</mi>"),
        (r"\left[x\right]", "<mrow><mo>[</mo><mi>x</mi><mo>]</mo></mrow>"),
        (r"i \in P", "<mi>i</mi><mo>∈</mo><mi>P</mi>"),
        (r"j \ne i", "<mi>j</mi><mo>≠</mo><mi>i</mi>"),
        (r"\bar d", "<mover><mi>d</mi><mo>¯</mo></mover>"),
        ("a - b", "<mi>a</mi><mo>−</mo><mi>b</mi>"),
        (r"\text{ (one word) }", "<mtext>\u00a0(one\u00a0word)\u00a0</mtext>"),
        (r"\mathrm{sd}", '<mrow><mi mathvariant="normal">sd</mi></mrow>'),
    ],
)
def test_elements(formula, wanted):
    assert inside(formula) == wanted


@pytest.mark.parametrize("formula", [r"\infty 1", r"\nonsense", r"\frac{1", "{x", r"\left[x"])
def test_what_is_not_known_stops_the_build(formula):
    with pytest.raises((ValueError, StopIteration)):
        mathml.convert(formula)


def test_every_formula_of_the_pages_is_whole():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    formulas = FORMULA.findall(text)
    assert len(formulas) > 10
    for formula in formulas:
        ET.fromstring(mathml.convert(formula))
