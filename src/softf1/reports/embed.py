"""Text from data on its way into the page: as JSON in a script element, and in Plotly's text.

Jinja escapes what stands in the HTML itself. Two places need their own rules: a JSON block must
not be able to end its script element, and Plotly reads a few tags (`<b>`, `<a href>`) in names.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from typing import Any

_HIDDEN = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}
_HIDDEN |= {0x2028: "\\u2028", 0x2029: "\\u2029"}


def to_json(value: Any) -> str:
    r"""JSON that may stand inside a script element.

    >>> print(to_json({"label": "</script>", "f1": float("nan")}))
    {"label":"\u003c/script\u003e","f1":null}
    """
    text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return clean(text).translate(_HIDDEN)


def clean(text: str) -> str:
    """The text with half surrogate pairs and NUL replaced, which no file of UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd")


def plain(text: object, *, limit: int = 32, end: int = 0) -> str:
    """Text for Plotly, which shows it as it is: nothing in it is a tag or an entity.

    >>> plain("<script>")
    '&lt;script&gt;'
    """
    line = " ".join(str(text).split())
    return html.escape(shorten(line, limit, end=end), quote=False)


def shorten(text: str, limit: int, *, end: int = 0) -> str:
    """The text cut at `limit` characters, of which `end` are its last ones.

    >>> shorten("ordinary", 5), shorten("ordinary", 5, end=2)
    ('ordi…', 'or…ry')
    """
    return text if len(text) <= limit else text[: limit - 1 - end] + "…" + text[len(text) - end :]


def policy_hash(script: str) -> str:
    """What a Content-Security-Policy allows this one inline script by."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _finite(value: Any) -> Any:
    """The value with short numbers, and null for those that JSON has not."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
