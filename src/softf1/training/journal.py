"""`metrics.jsonl`: a line for every event, and nothing of what a resumed run does again."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from softf1.files import sync

if TYPE_CHECKING:
    from pathlib import Path


class Journal:
    """Appends lines; goes back to where a checkpoint was written.

    Args:
        path: The file; None writes nothing, as on processes other than the first.
        size: Bytes that are kept of what is there.
    """

    def __init__(self, path: Path | None, *, size: int = 0) -> None:
        self.file = None
        if path is not None:
            self.file = path.open("ab")
            self.file.truncate(min(size, path.stat().st_size))
            self.file.seek(0, os.SEEK_END)

    def write(self, event: str, **values: Any) -> None:
        """Appends a line."""
        if self.file is not None:
            line = json.dumps({"event": event, **values}, ensure_ascii=False)
            self.file.write(line.encode() + b"\n")
            self.file.flush()

    @property
    def size(self) -> int:
        """Bytes written so far, on the disk."""
        if self.file is None:
            return 0
        sync(self.file)
        return self.file.tell()

    def close(self) -> None:
        """Closes the file, whose lines are then on the disk."""
        if self.file is not None:
            sync(self.file)
            self.file.close()
