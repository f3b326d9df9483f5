"""`python -m softf1` is the same as the `softf1` command."""

import sys

from softf1.cli.main import main

sys.exit(main())
