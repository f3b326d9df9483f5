"""The tiny encoders of the tests of tasks."""

from tests.tasks.conftest import bert, xlnet

__all__ = ["bert", "xlnet"]
