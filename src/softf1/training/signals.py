"""Ctrl-C and a polite kill: finish the step, save, stop."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether somebody asked to stop."""

    asked = False


@contextmanager
def watch_signals() -> Iterator[Stop]:
    """Inside, the first SIGINT or SIGTERM only asks to stop; the second of any acts as ever."""
    stop = Stop()
    before: dict[int, Any] = {}

    def ask(number: int, frame: Any) -> None:  # noqa: ARG001 - what a handler is given
        stop.asked = True
        for known, handler in before.items():
            signal.signal(known, handler)

    if current_thread() is main_thread():  # only there Python takes handlers
        before.update({number: signal.signal(number, ask) for number in SIGNALS})
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
