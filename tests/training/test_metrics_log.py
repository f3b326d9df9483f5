"""`metrics.jsonl`: whole lines, and nothing twice."""

import json

from softf1.training.progress import MetricsLog


def test_every_event_is_a_line_at_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    journal = MetricsLog(path)
    journal.write("step", step=1, loss=0.5)
    assert json.loads(path.read_text()) == {"event": "step", "step": 1, "loss": 0.5}
    journal.write("warning", message="größer")
    journal.close()
    assert "größer" in path.read_text("utf-8").splitlines()[1]


def test_going_on_forgets_what_will_be_done_again(tmp_path):
    path = tmp_path / "metrics.jsonl"
    journal = MetricsLog(path)
    journal.write("step", step=1)
    size = journal.size
    journal.write("step", step=2)
    journal.close()
    path.write_bytes(path.read_bytes() + b'{"event": "st')  # killed in a line
    journal = MetricsLog(path, size=size)
    journal.write("step", step=20)
    assert journal.size == len(path.read_bytes())
    journal.close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 20]


def test_a_new_run_begins_a_new_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("of another run\n")
    MetricsLog(path).close()
    assert path.read_text() == ""


def test_less_than_was_remembered_is_no_trouble(tmp_path):
    path = tmp_path / "metrics.jsonl"
    journal = MetricsLog(path, size=100)
    assert journal.size == 0
    journal.write("end")
    journal.close()
    assert path.read_text() == '{"event": "end"}\n'


def test_other_processes_write_nothing():
    journal = MetricsLog(None, size=10)
    journal.write("step", step=1)
    assert journal.size == 0
    journal.close()
