"""The tiny encoder of the tests of tasks."""

from tests.tasks.conftest import bert

__all__ = ["bert"]
