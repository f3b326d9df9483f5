"""`hf:NAME` through the `datasets` library, when it is installed; folders on disk too.

`hf:NAME`, `hf:NAME:CONFIG`, `hf:NAME:CONFIG:SPLIT` (an empty CONFIG is the default one).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from softf1.data.columns import USUAL, find_columns
from softf1.data.examples import (
    Answer,
    Example,
    PairExample,
    QAExample,
    TaggedSentence,
    TextExample,
)
from softf1.data.problems import Problems, RecordError
from softf1.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
