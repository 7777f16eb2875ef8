"""Tells of every fault that these tests made, and of what became of it: on the terminal in a line a
fault, and with `--fault-table FILE` in a table with a line a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.fault_table import Fault, markdown, step_of, title_of
from tests.faults.looks import LOOKS
from tests.peers.conftest import hudi_session as hudi_session
from tests.table.conftest import s3_options as s3_options

_PROPERTY = "fault"
_PROOFS = ("makes these steps", "makes the steps", "would be seen")
"""In the titles of tests that prove the others, and make no fault themselves."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fault-table", metavar="FILE", help="write the faults that were made to FILE"
    )


@pytest.fixture(autouse=True)
def recorded(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keeps what readers saw with the report of the test."""
    LOOKS.clear()
    yield
    item = request.node
    callspec = getattr(item, "callspec", None)
    parameters = {} if callspec is None else callspec.params
    recorded = {
        "title": title_of(item.originalname, parameters),
        "step": step_of(parameters, "" if callspec is None else callspec.id),
        "looks": [look.to_dict() for look in LOOKS],
    }
    item.user_properties.append((_PROPERTY, recorded))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line a fault, with the number of its steps."""
    called = {}
    faults = []
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            if report.when == "call" and report.nodeid.startswith("tests/faults/"):
                called[report.nodeid] = outcome == "passed"
    # what a test noted is on the report of its teardown
    ended = [
        report
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "teardown" and report.nodeid in called
    ]
    # a file's tests come in their order, and files from whichever process was free
    for report in sorted(ended, key=lambda report: str(report.nodeid).partition("::")[0]):
        recorded = dict(report.user_properties).get(_PROPERTY)
        if recorded is not None and not any(proof in recorded["title"] for proof in _PROOFS):
            faults.append(Fault.of(called[report.nodeid], recorded))
    if not faults:
        return
    ran = Counter(fault.title for fault in faults)
    held = Counter(fault.title for fault in faults if fault.held)
    terminalreporter.section("faults: what was done to a table, how often, and how often it held")
    for title, times in ran.items():
        terminalreporter.write_line(f"{held[title]:4} of {times:3}  {title}")
    path = terminalreporter.config.getoption("--fault-table", default=None)
    if path:
        Path(path).write_text(markdown(faults), encoding="utf-8")
        terminalreporter.write_line(f"written to {path}")
