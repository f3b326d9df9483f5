import builtins
import time
import warnings
from contextlib import closing
from functools import partial
from threading import Thread

import pytest

from softf1.errors import InputError
from softf1.experiments.compare import compare
from softf1.experiments.on_ray import Cluster
from tests.experiments import fake
from tests.experiments.fake import run_inline

TARGET = f"{fake.__name__}:train_run"
OPTIONS = {"losses": ("ce", "dice"), "seeds": range(3), "tune": "none", "quiet": True}


def test_without_ray_one_line_says_so(monkeypatch):
    found = builtins.__import__

    def refuse(name, *rest):
        if name.startswith("ray"):
            raise ImportError(name)
        return found(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(InputError, match=r"wanted Ray for --on ray: pip install 'softf1\[ray\]'"):
        Cluster()


@pytest.fixture(scope="module")
def nodes():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        ray = pytest.importorskip("ray", reason="needs the extra ray")
        from ray.cluster_utils import Cluster as Nodes

        made = Nodes(initialize_head=True, head_node_args={"num_cpus": 1})
        made.add_node(num_cpus=1)
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.mark.needs_tool
@pytest.mark.filterwarnings("ignore")  # Ray's own: files and processes that it leaves to the end
def test_two_nodes_give_the_same_results(nodes, tmp_path):
    with closing(Cluster(target=TARGET, address=nodes.address)) as cluster:
        found = compare(fake.make_recipe(), tmp_path / "ray", execute=cluster, **OPTIONS)
    assert found["failed"] == {}
    run = partial(run_inline, fake.train_run)
    here = compare(fake.make_recipe(), tmp_path / "here", execute=run, **OPTIONS)
    assert found["rows"] == here["rows"]


@pytest.mark.needs_tool
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_nodes_give_the_same_results_and_a_lost_one_costs_nothing(nodes, tmp_path):
    calls = tmp_path / "calls"
    recipe = fake.make_recipe(pause=4.0, calls=str(calls))  # nodes may start seconds apart
    lost = nodes.add_node(num_cpus=1)

    def lose():
        limit = time.monotonic() + 40
        while not calls.is_file() or len(calls.read_text("utf-8").split()) < 3:
            time.sleep(0.05)
            if time.monotonic() > limit:
                return
        nodes.remove_node(lost, allow_graceful=False)  # three nodes, three cells begun

    thread = Thread(target=lose)
    thread.start()
    with closing(Cluster(target=TARGET, address=nodes.address)) as cluster:
        found = compare(recipe, tmp_path / "ray", execute=cluster, **OPTIONS)
    thread.join()
    assert found["failed"] == {}
    begun = calls.read_text("utf-8").split()
    assert len(set(begun)) == 6
    assert len(begun) > 6  # what the lost node was doing was begun again
    here = compare(
        fake.make_recipe(),
        tmp_path / "here",
        execute=partial(run_inline, fake.train_run),
        **OPTIONS,
    )
    assert found["rows"] == here["rows"]
