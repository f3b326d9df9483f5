"""`python -m softf1` is the same as the `softf1` command."""

import sys
from pathlib import Path


def leave_current_folder() -> None:
    """Removes the current folder from `sys.path`, where `python -m` puts it and `softf1` does not.

    Otherwise a user's accelerate.py, say, would be imported instead of the package.
    """
    here = Path.cwd()
    ours = here == Path(__file__).parents[1]  # started from the source itself
    if not sys.flags.safe_path and sys.path[:1] == [str(here)] and not ours:
        del sys.path[0]


if __name__ == "__main__":
    leave_current_folder()
    from softf1.cli.main import main

    sys.exit(main())
