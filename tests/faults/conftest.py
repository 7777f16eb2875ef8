"""Prints the fault table of a run: every fault that these tests made, and what became of it."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.peers.conftest import hudi_session as hudi_session
from tests.table.conftest import s3_options as s3_options


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line a fault; of kill points and refused steps, how many there were."""
    ran: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            path, _, test = report.nodeid.partition("::")
            if report.when != "call" or not path.startswith("tests/faults/"):
                continue
            name, _, case = test.partition("[")
            # of a case its name, without the numbers of steps and modes
            words = [w for w in case.rstrip("]").split("-") if w.isalpha() and w != "halfway"]
            fault = name.removeprefix("test_").replace("_", " ")
            fault += f" ({' '.join(words)})" if words else ""
            ran[fault] += 1
            held[fault] += outcome == "passed"
    if not ran:
        return
    terminalreporter.section("faults: what was done to a table, how often, and how often it held")
    for fault, times in ran.items():
        terminalreporter.write_line(f"{held[fault]:4} of {times:3}  {fault}")
