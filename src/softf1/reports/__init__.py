"""One HTML page of what runs measured: `softf1 report RUN…|GRID`.

It reads the files that runs and grids leave behind, and nothing else. The page opens from disk
without a network.
"""

from softf1.reports.page import write_report

__all__ = ["write_report"]
