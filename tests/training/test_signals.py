"""Ctrl-C and a polite kill: the first asks, the second acts."""

import os
import signal
from threading import Thread

import pytest

from softf1.training.trainer import watch_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_only_asks(number):
    before = signal.getsignal(number)
    with watch_signals() as stop:
        assert not stop.asked
        os.kill(os.getpid(), number)
        assert stop.asked
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_the_second_acts_as_ever_whichever_was_the_first(first):
    before = signal.getsignal(signal.SIGTERM)
    with watch_signals() as stop:
        os.kill(os.getpid(), first)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGTERM) == before


def test_handlers_come_back_after_an_error():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), watch_signals():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before


def test_in_another_thread_nothing_is_watched():
    """Python takes handlers in the main thread only; a training may run in any."""
    found = []

    def work():
        with watch_signals() as stop:
            found.append(stop.asked)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]
