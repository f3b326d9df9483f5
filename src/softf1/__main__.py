"""`python -m softf1` is the same as the `softf1` command."""

import sys
from pathlib import Path


def leave_current_folder() -> None:
    """Takes the current folder off the path of modules, where `-m` puts it and `softf1` does not.

    Otherwise a file there that is called accelerate.py, say, would be run.
    """
    here = Path.cwd()
    ours = here == Path(__file__).parents[1]  # started from the source itself
    if not sys.flags.safe_path and sys.path[:1] == [str(here)] and not ours:
        del sys.path[0]


if __name__ == "__main__":
    leave_current_folder()
    from softf1.cli.main import main

    sys.exit(main())
