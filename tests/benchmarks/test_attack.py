"""The figures of the page about reliability are those of their files."""

import sys

import pytest

from tests.pages import ROOT

REPORT = """<testsuites><testsuite>
<testcase name="test_a[1]"><properties><property name="attack" value="kills"/>
<property name="tried" value="7"/><property name="used" value="5"/>
<property name="refused" value="2"/></properties></testcase>
<testcase name="test_a[2]"><properties><property name="attack" value="kills"/>
<property name="tried" value="3"/><property name="used" value="3"/>
<property name="refused" value="0"/></properties></testcase>
<testcase name="test_b[1]"><failure message="AssertionError"/></testcase>
<testcase name="test_c"><skipped message="no browser"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def attack(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import attack

    yield attack
    sys.modules.pop("attack")


@pytest.mark.parametrize("name", ["attacks", "sides", "reading"])
def test_the_table_is_that_of_the_file(attack, name):
    _, inside, _ = attack.split_page(attack.PAGE.read_text("utf-8"), name)
    assert inside.strip() == attack.TABLES[name]().strip()


def test_a_report_is_added_up(attack, tmp_path):
    (tmp_path / "report.xml").write_text(REPORT, "utf-8")
    found = attack.count(tmp_path / "report.xml")
    wanted = {"tests": 2, "tried": 10, "used": 8, "refused": 2, "failed": 0, "skipped": 0}
    assert found["kills"] == wanted
    assert (found["test_b"]["failed"], found["test_c"]["skipped"]) == (1, 1)


def test_large_files_are_read_in_bounds(attack):
    rows = attack.read(attack.READING)
    assert {row["command"] for row in rows} == {"stats", "new"}
    assert all(int(row["peak_mib"]) < 1024 for row in rows)
    assert max(int(row["megabytes"]) for row in rows) > 1_000
