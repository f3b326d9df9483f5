import json

from hypothesis import given
from hypothesis import strategies as st

from softf1.reports.figures import plain, policy_hash, to_script_json

TEXT = st.text(st.characters(codec="utf-8")) | st.sampled_from(
    ["</script>", "<!--", "]]>", "\u2028", "&lt;", "<b>", "-->", "<script"]
)


@given(st.recursive(TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)))
def test_json_means_the_same_and_cannot_end_its_element(value):
    text = to_script_json(value)
    assert not set(text) & {"<", ">", "&", "\u2028", "\u2029"}
    assert json.loads(text) == value


def test_numbers_that_json_has_not_are_null():
    assert to_script_json([float("nan"), float("inf"), 1 / 3]) == "[null,null,0.333333]"


def test_half_a_surrogate_pair_does_not_stop_the_page():
    assert json.loads(to_script_json("a\ud800")) == "a?"


@given(TEXT)
def test_plotly_gets_no_tags(text):
    assert "<" not in plain(text)


def test_long_names_are_cut_before_they_are_escaped():
    assert plain("&" * 100, limit=3) == "&amp;&amp;…"


def test_policy_hash_as_browsers_compute_it():
    # echo -n "alert(1)" | openssl dgst -sha256 -binary | base64
    assert policy_hash("alert(1)") == "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"
