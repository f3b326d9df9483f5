"""What is shown of a training (lines in a pipe, a bar on a terminal), and `metrics.jsonl`."""

import io
import json
import sys

import pytest
import torch

from softf1.training import progress
from softf1.training.progress import (
    Bar,
    Display,
    MetricsLog,
    Plain,
    choose_display,
    format_values,
    peak_memory,
)

VALUES = {
    "step": 10,
    "epoch": 0.5,
    "loss": 0.25,
    "score": None,
    "metric": "f1",
    "tokens_per_second": 1000.0,
    "left": 90.0,
    "memory": 2**30,
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_one_process_speaks_and_only_if_it_may(monkeypatch):
    assert type(choose_display(quiet=True, main=True)) is Display
    assert type(choose_display(quiet=False, main=False)) is Display
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(choose_display(quiet=False, main=True), Plain)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert isinstance(choose_display(quiet=False, main=True), Bar)


def test_plain_lines_come_now_and_then_on_standard_error(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    display = Plain()
    display.start(step=0, steps=40, about="a training")
    for seconds in (1, 10, 16, 17, 31.5):
        now[0] = 100.0 + seconds
        display.advance(VALUES)
    display.say("epoch 1.00 · dev f1 50.00")
    display.stop()
    out, err = capsys.readouterr()
    assert out == ""
    line = "step 10/40 · epoch 0.50 · loss 0.2500 · 1,000 tokens/s · 90 s left · 1.0 GiB"
    assert err.splitlines() == ["a training", line, line, "epoch 1.00 · dev f1 50.00"]


def test_a_resumed_training_says_where_it_goes_on(capsys):
    Plain().start(step=1234, steps=4000, about="a training")
    assert capsys.readouterr().err == "a training; continuing at step 1,234\n"


def test_a_bar_shows_the_numbers(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("TERM", "xterm")
    display = Bar()
    display.start(step=0, steps=40, about="a training [of brackets]")
    display.advance(VALUES | {"score": 0.5})
    display.progress.refresh()
    display.say("a line [above] the bar")
    display.stop()
    shown = screen.getvalue()
    assert "a training [of brackets]" in shown
    assert "a line [above] the bar" in shown
    assert "10/40" in shown
    assert "loss 0.2500 · dev f1 50.00 · 1,000 tokens/s · 90 s left" in shown


def test_silence_is_silent(capsys):
    display = Display()
    display.start(step=0, steps=1, about="x")
    display.advance(VALUES)
    display.say("x")
    display.stop()
    assert capsys.readouterr() == ("", "")


def test_scores_are_shown_in_percent():
    assert "dev f1 12.35" in format_values(VALUES | {"score": 0.12345})


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_memory_of_this_process_is_in_bytes():
    with open("/proc/self/status") as file:  # noqa: PTH123 - no file of ours
        peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    assert peak_memory(torch.device("cpu")) == pytest.approx(1024 * peak, rel=0.05)


def test_every_event_is_a_line_at_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    log.write("step", step=1, loss=0.5)
    assert json.loads(path.read_text()) == {"event": "step", "step": 1, "loss": 0.5}
    log.write("warning", message="größer")
    log.close()
    assert "größer" in path.read_text("utf-8").splitlines()[1]


def test_going_on_forgets_what_will_be_done_again(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    log.write("step", step=1)
    size = log.size
    log.write("step", step=2)
    log.close()
    path.write_bytes(path.read_bytes() + b'{"event": "st')  # killed in a line
    log = MetricsLog(path, size=size)
    log.write("step", step=20)
    assert log.size == len(path.read_bytes())
    log.close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 20]


def test_a_new_run_begins_a_new_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("of another run\n")
    MetricsLog(path).close()
    assert path.read_text() == ""


def test_less_than_was_remembered_is_no_trouble(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path, size=100)
    assert log.size == 0
    log.write("end")
    log.close()
    assert path.read_text() == '{"event": "end"}\n'


def test_other_processes_write_nothing():
    log = MetricsLog(None, size=10)
    log.write("step", step=1)
    assert log.size == 0
    log.close()
