"""The page in a browser: it draws, sorts, searches, downloads, and asks no network for anything."""

import csv
import json
import shutil

import pytest

from softf1.reports import write_report
from softf1.reports.suspects import write_suspects
from tests.reports import grids
from tests.reports.conftest import SCRIPT

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

pytestmark = [
    pytest.mark.needs_tool,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as player:
        running = player.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


class Opened:
    """A page that is open, with all that it complained of and asked for."""

    def __init__(self, browser, path):
        self.page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        self.page.set_default_timeout(120_000)  # other tests may keep the cores busy
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        # wait_for_function would evaluate a text, which the page's policy forbids
        self.page.wait_for_selector("html[data-ready]", state="attached")


@pytest.fixture(scope="module")
def opened(browser, grid, tmp_path_factory):
    path = write_report([grid], tmp_path_factory.mktemp("page") / "page.html")
    one = Opened(browser, path)
    yield one
    one.page.close()


@pytest.fixture
def page(opened):
    """The open page as a reader finds it, on a wide light screen."""
    opened.page.set_viewport_size({"width": 1280, "height": 900})
    opened.page.emulate_media(color_scheme="light")
    # A change of the scheme is noticed when a frame is drawn: two changes within one are none.
    opened.page.evaluate("() => new Promise(done => requestAnimationFrame(() => done()))")
    return opened.page


def becomes(page, value, wanted):
    """Whether a value is, within some seconds, what is wanted: plots are drawn in turns."""
    for _ in range(100):
        if value() == wanted:
            return True
        page.wait_for_timeout(100)
    return False


def test_every_plot_is_drawn(page):
    canvases = page.locator(".canvas")
    assert canvases.count() == 9
    for canvas in canvases.all():
        assert canvas.locator("svg.main-svg").first.bounding_box()["height"] > 200
    assert page.locator("#plot-differences .errorbars path.xerror").count() == 8
    assert page.locator("#plot-confusion-left .hm image, #plot-confusion-left .hm path").count()


def test_a_label_that_is_a_script_is_text(page):
    assert page.title() != "run"
    assert page.locator("#changes").get_by_text(SCRIPT).count()
    ticks = page.locator("#plot-labels .ytick text").all_text_contents()
    assert any(tick.startswith("<script>") for tick in ticks)


def column(page, table, place):
    """The texts of one column, from the first row to the last."""
    rows = page.locator(f'table[data-table="{table}"] tbody tr')
    return rows.evaluate_all("(rows, n) => rows.map(row => row.children[n].textContent)", place)


def test_headers_sort_by_mouse_and_keyboard(page):
    header = page.locator('table[data-table="comparison"] th').nth(2)
    header.locator("button").click()
    falling = [float(text) for text in column(page, "comparison", 2)]
    assert header.get_attribute("aria-sort") == "descending"
    assert falling == sorted(falling, reverse=True)
    header.locator("button").press("Enter")
    rising = [float(text) for text in column(page, "comparison", 2)]
    assert header.get_attribute("aria-sort") == "ascending"
    assert rising == falling[::-1]
    other = page.locator('table[data-table="comparison"] th').nth(4)
    other.locator("button").click()
    assert header.get_attribute("aria-sort") is None
    assert column(page, "comparison", 4)[-1] == "–"  # the baseline has none


def visible(page):
    return page.locator("#changes > li:visible")


def test_search_and_direction(page):
    total = page.locator("#changes > li").count()
    assert 25 == visible(page).count() < total
    page.locator("#more").click()
    assert visible(page).count() == min(50, total)
    page.fill("#query", "calder LOC")
    shown = visible(page).all_text_contents()
    assert 0 < len(shown) < total
    assert all("calder" in text.lower() and "loc" in text.lower() for text in shown)
    page.fill("#query", "")
    page.select_option("#direction", "worse")
    assert visible(page).count()
    assert all(
        "more errors" in " ".join(text.split()) for text in visible(page).all_text_contents()
    )
    page.fill("#query", "no such words anywhere")
    assert visible(page).count() == 0
    assert page.locator("#matches").text_content() == "0 of 0 shown"
    page.fill("#query", "")
    page.select_option("#direction", "")
    assert page.locator("#matches").text_content() == f"25 of {total} shown"


def test_legend_shows_and_hides_by_keyboard(page):
    key = page.locator("#plot-trade ~ .keys, .keys:has(+ #plot-trade)").get_by_text("dice").first
    points = page.locator("#plot-trade .scatterlayer .trace .points path")
    before = points.count()
    assert key.get_attribute("aria-pressed") == "true"
    key.press("Space")
    assert key.get_attribute("aria-pressed") == "false"
    assert becomes(page, points.count, before - 6)  # five seeds and their mean
    key.press("Space")
    assert becomes(page, points.count, before)


def test_another_loss_can_be_chosen_in_the_confusion(page):
    texts = page.locator("#plot-confusion-left .heatmap-label")
    before = texts.all_text_contents()
    page.select_option('[data-view="plot-confusion-left"]', label="dsc")
    assert becomes(page, lambda: texts.all_text_contents() != before, wanted=True)
    page.select_option('[data-view="plot-confusion-left"]', label="ce")
    assert becomes(page, texts.all_text_contents, before)


def test_numbers_behind_a_plot_come_as_table_and_csv(page, tmp_path):
    details = page.locator("figure:has(#plot-frequency) details")
    details.locator("summary").click()
    rows = details.locator("tbody tr")
    assert becomes(page, rows.count, 5 * 9)  # the browser tells the script a moment later
    assert details.locator("caption").count() == 1
    with page.expect_download() as waiting:
        details.locator(".csv").click()
    path = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(path)
    assert path.name == "labels.csv"
    with path.open(encoding="utf-8-sig", newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == 45
    assert {row["label"] for row in read} == {"PER", "LOC", "ORG", SCRIPT, "LAW"}
    assert 0 < float(read[0]["f1"]) < 1


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_dark_and_light(page):
    ink = page.locator("#plot-scores .ytick text").first
    light = background(page), ink.evaluate("node => getComputedStyle(node).fill")
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector('html[data-theme="dark"]')
    dark = background(page)
    assert light[0] == "rgb(255, 255, 255)"
    assert sum(map(int, dark[4:-1].split(","))) < 150
    fill = "node => getComputedStyle(node).fill"
    assert becomes(page, lambda: ink.evaluate(fill) != light[1], wanted=True)  # plots follow
    page.locator("#theme").click()
    assert background(page) == light[0]
    assert page.locator("#theme").get_attribute("aria-pressed") == "false"


@pytest.mark.parametrize("width", [390, 768])
def test_nothing_sticks_out_of_a_narrow_screen(page, width):
    page.set_viewport_size({"width": width, "height": 844})
    svgs = page.locator(".canvas svg.main-svg")

    def widest():
        edges = [svg.bounding_box() for svg in svgs.all()]
        page_width = page.evaluate("document.documentElement.scrollWidth")
        return max(page_width, *(edge["x"] + edge["width"] for edge in edges)) <= width + 1

    assert becomes(page, widest, wanted=True)


def test_paper_is_light_and_plots_fit(page):
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector('html[data-theme="dark"]')
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert background(page) == "rgb(255, 255, 255)"
    svgs = page.locator(".canvas svg.main-svg")
    assert becomes(page, lambda: {svg.bounding_box()["width"] for svg in svgs.all()}, {640})
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("html").get_attribute("data-theme") == "dark"


@pytest.mark.slow
def test_print_to_pdf(page):
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert page.locator("html").get_attribute("data-theme") == "light"


def test_no_plot_offers_to_leave_the_page(page):
    names = page.locator(".modebar-btn").evaluate_all("nodes => nodes.map(n => n.dataset.title)")
    assert set(names) == {"Download plot", "Zoom", "Pan", "Reset axes"}
    assert page.locator("a[href^=http]").count() == 0


def test_no_complaint_and_no_request_but_the_file(opened):
    """Last: all that the tests above did is in these lists."""
    assert opened.complaints == []
    assert opened.requests
    assert all(url.startswith(("file:", "blob:")) for url in opened.requests)


def test_curves_of_texts_with_probabilities(browser, texts, tmp_path):
    one = Opened(browser, write_report(texts, tmp_path / "page.html"))
    assert one.page.locator("#plot-recall .scatterlayer .trace").count() == 2
    one.page.select_option('[data-view="plot-recall"]', label="complaint")
    keys = one.page.locator(".keys:has(+ #plot-recall)").all_text_contents()
    assert "dice · " in keys[0]
    assert one.complaints == []
    assert len(one.requests) == 1
    one.page.close()


PAYLOADS = (
    "<script>window.hit=1</script>",
    "</script><script>window.hit=1</script>",
    "<img src=x onerror='window.hit=1'>",
    "<svg onload=window.hit=1>",
    "\"' onmouseover='window.hit=1' autofocus onfocus='window.hit=1' x='",
    "<a href='javascript:window.hit=1'>click</a>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "<style>@import url(http://127.0.0.1:9/x)</style><link rel=stylesheet href=http://127.0.0.1:9>",
    "<!--<script>window.hit=1//--></script>",
    "]]></script><base href=http://127.0.0.1:9/>",
)


def poison(value, payload):
    """All texts of a JSON value, but for those that the page goes by, with a payload behind."""
    if isinstance(value, dict):
        return {key: one if key in KNOWN else poison(one, payload) for key, one in value.items()}
    if isinstance(value, list):
        return [poison(one, payload) for one in value]
    return value + payload if isinstance(value, str) and value != "O" else value


KNOWN = {"event", "split", "id", "folder", "task", "headline", "metric", "kind", "hash", "finished"}


@pytest.mark.attack
def test_no_payload_in_any_text_of_a_study_is_run(browser, tmp_path, attacked):
    for number, payload in enumerate(PAYLOADS):
        folder = tmp_path / str(number)
        grids.write_compare(folder, losses=("ce", "dice"), seeds=2, sentences=40)
        cells = [path for path in folder.rglob("*.json*") if path.parent != folder]
        for path in cells:
            lines = path.read_text("utf-8").splitlines() if path.suffix == ".jsonl" else None
            read = [json.loads(one) for one in lines or [path.read_text("utf-8")]]
            text = "\n".join(json.dumps(poison(one, payload)) for one in read)
            path.write_text(text + "\n", "utf-8")
        made = write_report([folder], tmp_path / f"{number}.html")
        opened = Opened(browser, made)
        shown = opened.page.locator("main").evaluate("main => main.textContent")
        assert payload in shown
        opened.page.mouse.move(300, 300)
        assert opened.page.evaluate("() => window.hit === undefined"), payload
        assert all(url.startswith(("file:", "blob:")) for url in opened.requests), payload
        assert opened.page.locator("iframe, img, base, link").count() == 0
        opened.page.close()
    attacked(
        "scripts in the texts of a study, in Chromium", len(PAYLOADS), used=len(PAYLOADS), refused=0
    )


def test_the_page_of_suspects_searches_sorts_and_asks_no_network(browser, tmp_path):
    label = [{"label": "no"}], [{"label": "<i>yes</i>"}]
    span = [{"label": "PER", "start": 0, "end": 1, "text": "Ann"}]
    about = {"file": "a.csv", "id": "", "score": 0.9}
    suspects = [
        {**about, "line": 2, "kind": "wrong label", "given": label[0], "suggested": label[1]},
        {**about, "line": 3, "kind": "missing span", "given": [], "suggested": span},
    ]
    for one, pieces in zip(
        suspects, (["a <b>fine</b> day", "", ""], ["", "Ann", "ran"]), strict=True
    ):
        one["pieces"] = pieces
    content = {
        "name": "toy", "task": "tagging", "encoder": "bilstm", "loss": "ce", "seed": 0, "folds": 2,
        "files": ["a.csv"], "examples": 9, "headline": "f1", "score": 0.8, "found": 2, "unknown": 1,
        "versions": {"softf1": "0"}, "kinds": {"wrong label": 1, "missing span": 1},
        "suspects": suspects,
    }  # fmt: skip
    (tmp_path / "suspects.json").write_text(json.dumps(content), "utf-8")
    path = write_suspects(tmp_path)
    one = Opened(browser, path)
    rows = one.page.locator("#changes > li")
    assert rows.count() == 2
    assert "a <b>fine</b> day" in rows.nth(0).inner_text()
    one.page.fill("#query", "ann")
    assert one.page.locator("#changes > li:visible").count() == 1
    one.page.fill("#query", "")
    one.page.select_option("#direction", "wrong-label")
    assert one.page.locator("#changes > li:visible").all_inner_texts()[0].startswith("0.9")
    one.page.click("table[data-table=confusions] th:first-child .sort")
    first = one.page.locator("table[data-table=confusions] tbody tr").first
    assert first.inner_text().startswith("no\t")
    assert (one.complaints, one.requests) == ([], [path.as_uri()])
    one.page.close()
