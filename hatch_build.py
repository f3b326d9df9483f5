"""The README as the package index shows it: there, paths of the repository lead nowhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

IMAGE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)[^)]*\)")


def for_index(text: str) -> str:
    """The text without images and links to files of the repository; links to sites stay.

    >>> for_index("See [the page](docs/a.md) and [the site](https://example.org).")
    'See the page and [the site](https://example.org).'
    """
    text = re.sub(r"<!-- .*? -->\n", "", text)
    return LINK.sub(r"\1", IMAGE.sub("", text))


class ReadmeHook(MetadataHookInterface):
    """Gives the project its description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_index(text)}
