"""Takes the picture of the report page, images/report.png.

    softf1 demo --out FOLDER               # three minutes; FOLDER/report.html is its page
    python docs/screenshot.py FOLDER

Needs Playwright for Python and Chromium (`pip install playwright`, the system's `chromium`).
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FILE = Path(__file__).parent / "images/report.png"
WIDTH, HEIGHT = 1100, 745


def take(page: Path, picture: Path) -> None:
    """Writes the top of a report as a picture, as it looks on a light screen."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        opened = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", device_scale_factor=1
        )
        opened.goto(page.resolve().as_uri())
        opened.wait_for_selector("html[data-ready]", state="attached")
        opened.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("wanted the folder of a comparison with its report.html")
    take(Path(sys.argv[1]) / "report.html", FILE)
    print(FILE)
