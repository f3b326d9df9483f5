import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from softf1.experiments.grid import Job
from softf1.experiments.workers import Pool, find_target, run_job, share_machine
from softf1.recipe import describe_recipe
from softf1.training.trainer import InterruptedRunError
from tests.experiments import fake


def job(folder, name="one", **encoder):
    return Job(name, describe_recipe(fake.make_recipe(**encoder)), str(folder / name))


def test_errors_are_answers_and_their_notes_go_with_success(tmp_path):
    failing = job(tmp_path, fail="ce")
    done = run_job(failing, fake.train_run)
    assert (done.result, done.error) == (None, "RuntimeError: no memory for ce")
    note = tmp_path / "one/error.txt"
    assert "Traceback" in note.read_text("utf-8")
    again = run_job(job(tmp_path), fake.train_run)
    assert again.result["loss"] == "ce"
    assert not note.exists()


def test_a_wish_to_stop_is_no_failure(tmp_path):
    def stop(*_, **__):
        raise InterruptedRunError("saved")

    with pytest.raises(KeyboardInterrupt):
        run_job(job(tmp_path), stop)


def test_targets_are_found_by_name():
    assert find_target(f"{fake.__name__}:train_run") is fake.train_run


def test_a_worker_ends_with_the_one_who_started_it():
    """The end of its input is all a worker sees of a parent that was killed."""
    command = [sys.executable, "-m", "softf1.experiments.workers", f"{fake.__name__}:train_run"]
    environment = share_machine(os.environ, 0, 1)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    process.stdin.close()
    assert process.wait(timeout=60) == 0


def test_a_pool_that_is_closed_stops_what_it_does(tmp_path):
    pool = Pool(1, logs=tmp_path, target=f"{fake.__name__}:train_run", devices=())
    calls = tmp_path / "calls"
    slow = [job(tmp_path, str(n), pause=30.0, calls=str(calls)) for n in range(2)]

    def work():
        with pytest.raises(KeyboardInterrupt):
            list(pool(slow))

    thread = threading.Thread(target=work)
    with closing(pool):
        thread.start()
        while not (calls.is_file() and calls.read_text("utf-8")):  # it is there before its line
            time.sleep(0.02)
        process = pool.workers[0].process
    thread.join()
    assert process.wait(timeout=10) == -signal.SIGTERM
    assert calls.read_text("utf-8").split() == ["0"]


def test_cores_are_shared(monkeypatch):
    monkeypatch.setattr("softf1.experiments.workers.count_cores", lambda: 8)
    assert share_machine({}, 0, 3)["OMP_NUM_THREADS"] == "2"
    assert share_machine({}, 0, 20)["OMP_NUM_THREADS"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in share_machine({}, 0, 3)


@pytest.mark.parametrize(
    ("given", "threads"), [("1", "1"), ("2", "2"), ("8", "4"), ("0", "4"), ("2,3", "4"), ("", "4")]
)
def test_a_smaller_number_of_threads_stays(given, threads, monkeypatch):
    monkeypatch.setattr("softf1.experiments.workers.count_cores", lambda: 8)
    assert share_machine({"OMP_NUM_THREADS": given}, 0, 2)["OMP_NUM_THREADS"] == threads


def test_threads_share_a_pool(tmp_path):
    target = f"{fake.__name__}:train_run"
    with closing(Pool(2, logs=tmp_path / "logs", target=target, devices=())) as pool:
        found = {}

        def work(name):
            jobs = [job(tmp_path / name, f"{name}{n}") for n in range(4)]
            found[name] = [done.id for done in pool(jobs)]

        threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {name: sorted(ids) for name, ids in found.items()} == {
        name: [f"{name}{n}" for n in range(4)] for name in "ab"
    }


def test_a_closed_pool_leaves_no_threads(tmp_path):
    before = threading.active_count()
    pool = Pool(3, logs=tmp_path, target=f"{fake.__name__}:train_run", devices=())
    assert threading.active_count() == before + 3
    pool.close()
    end = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() == before
    with pytest.raises(KeyboardInterrupt):
        list(pool([job(tmp_path)]))


def test_a_target_may_remember():
    target = find_target("softf1.training.run:CachingTrainer")
    assert target is not find_target("softf1.training.run:CachingTrainer")
    assert target.held is None


def test_runs_of_a_worker_share_one_process(tmp_path):
    jobs = [job(tmp_path, f"run{n}") for n in range(3)]
    target = f"{fake.__name__}:train_run"
    with closing(Pool(1, logs=tmp_path / "logs", target=target, devices=())) as pool:
        rounds = (jobs[:2], jobs[2:])
        started = [pool.workers[0].process.pid for some in rounds for _ in pool(some)]
    assert len(started) == 3
    assert len(set(started)) == 1
