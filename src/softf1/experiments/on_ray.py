"""Runs on a Ray cluster: an existing one, or one of this machine alone. `pip install softf1[ray]`.

The grid folder must be on a file system that all nodes share, as Ray's own results are. The nodes
need the same environment. They work in the current folder, so relative paths of data files hold.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from softf1.errors import InputError
from softf1.experiments.grid import TRAIN, Done, Job
from softf1.experiments.workers import find_target, run_job

RETRIES = 3
"""Retries of a run whose worker or node was lost; it continues from its checkpoint."""


class Cluster:
    """Runs jobs as Ray tasks.

    Args:
        at_once: Jobs that share the cores and the GPU of one node.
        target: The function to call, as `module:name`.
        address: Address of a running cluster; by default the one that Ray finds (`RAY_ADDRESS`), or
            else a local one that lives as long as this object.
    """

    def __init__(
        self, at_once: int = 1, *, target: str = TRAIN, address: str | None = None
    ) -> None:
        ray = _import_ray()
        self.ray, self.target, self.own = ray, target, not ray.is_initialized()
        if self.own:
            self._connect(address)
        cores = max((node["Resources"].get("CPU", 0) for node in ray.nodes()), default=1)
        gpus = max((node["Resources"].get("GPU", 0) for node in ray.nodes()), default=0)
        self.share: dict[str, float] = {"num_cpus": max(1, int(cores) // at_once)}
        if gpus:
            self.share["num_gpus"] = min(1.0, gpus / at_once)

    def _connect(self, address: str | None) -> None:
        options: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
        where = address or os.environ.get("RAY_ADDRESS")
        try:
            self.ray.init(address=where or "local", configure_logging=False, **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError(
                f"wanted a Ray cluster at {where or 'this machine'}: {error}"
            ) from error

    def __call__(self, jobs: Sequence[Job]) -> Iterator[Done]:
        """Runs all jobs; yields each one when it is done."""
        environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(added_paths())}}
        remote = self.ray.remote(max_retries=RETRIES, runtime_env=environment, **self.share)
        train, folder = remote(_train), str(Path.cwd())
        waiting = {train.remote(self.target, folder, *job): job for job in jobs}
        try:
            while waiting:
                ready, _ = self.ray.wait(list(waiting), num_returns=1)
                job = waiting.pop(ready[0])
                yield self._get(ready[0], job)
        finally:
            for task in waiting:
                self.ray.cancel(task, force=True)

    def _get(self, task: Any, job: Job) -> Done:
        try:
            return Done(*self.ray.get(task))
        except self.ray.exceptions.RayError as error:  # such as a node lost too often
            first = str(error).strip().partition("\n")[0]
            return Done(job.id, None, f"{type(error).__name__}: {first}")

    def close(self) -> None:
        """Disconnects from the cluster, and stops it if it is ours."""
        if self.own:
            self.ray.shutdown()


def added_paths() -> list[str]:
    """Returns the folders of `sys.path` outside the installation, which all nodes have anyway."""
    installed = (sys.prefix, sys.base_prefix)
    return [path for path in sys.path if path and not path.startswith(installed)]


def _train(
    target: str, folder: str, name: str, recipe: dict[str, Any], out: str
) -> tuple[Any, ...]:
    """Trains one run on this node."""
    os.chdir(folder)
    return tuple(run_job(Job(name, recipe, out), find_target(target)))


def _import_ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise InputError("wanted Ray for --on ray: pip install 'softf1[ray]'") from error
    return ray
