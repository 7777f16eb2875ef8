"""The table of faults in Markdown, from the tests that ran: what was done, where, and what was seen.

Owns the wording of faults and the form of the table. Must not know how a test makes its fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from tests.faults.killed_driver import KillPoint
from tests.faults.looks import Look

READERS = ("hudi-rs", "serde_lab", "Apache Hudi")

_HEAD = """# What was done to tables, and what readers saw

Written by `make faults`, which runs `tests/faults`; do not edit. Each line is one fault at one step, made
to a table that holds known rows. After it, readers look at the table: before anybody touched it, after the
next write recovered it, and in most tests again after further commits and archiving have passed the fault.
`3/3` means: in 3 of 3 looks the reader saw exactly the rows of the last commit, none more and none less.
**lost** and **doubled** are rows, over all looks of all readers. Lines without looks are faults whose
outcome shows in files or in a refusal, which the test compares.

"""
_MODES = {
    "once": "refused once",
    "full": "and every later put refused",
    "down": "and everything later refused",
}


@dataclass
class Fault:
    """One test that ran."""

    title: str
    step: str
    held: bool
    looks: list[Look] = field(default_factory=list)

    @classmethod
    def of(cls, held: bool, recorded: Mapping[str, Any]) -> Fault:
        looks = [Look(**one) for one in recorded["looks"]]
        return cls(recorded["title"], recorded["step"], held, looks)


def title_of(function: str, parameters: Mapping[str, Any]) -> str:
    """The fault in words, with the work that it hit."""
    title = function.removeprefix("test_").replace("_", " ")
    course = parameters.get("course")
    return f"{title}: {course.name}" if course is not None else title


def step_of(parameters: Mapping[str, Any], case: str) -> str:
    """Where in the work the fault was made; of tests without steps, their case."""
    course, point = parameters.get("course"), parameters.get("point")
    number = parameters.get("number")
    if course is not None and isinstance(point, KillPoint):
        place = "halfway through" if point.halfway else "after"
        return f"{place} {point.number + 1}: {course.steps[point.number]}"
    if course is not None and isinstance(number, int):
        mode = _MODES.get(parameters.get("mode", ""), "")
        return f"at {number + 1}: {course.steps[number]}{', ' if mode else ''}{mode}"
    return f"step {number + 1}" if isinstance(number, int) else "" if course is not None else case


def markdown(faults: Iterable[Fault]) -> str:
    """The whole document."""
    faults = list(faults)
    lines = []
    for title in dict.fromkeys(fault.title for fault in faults):
        lines += _section(title, [fault for fault in faults if fault.title == title])
    return _summed(_HEAD + "\n".join(lines) + "\n")


def with_section(document: str, title: str, faults: Iterable[Fault]) -> str:
    """The document with the faults of one title, whose earlier section they replace."""
    before, _, after = document.partition(f"\n## {_heading(title)}\n")
    _, mark, rest = after.partition("\n## ")
    lines = "\n".join(_section(title, list(faults)))
    return _summed(f"{before}{lines}\n{mark}{rest}")


def _summed(document: str) -> str:
    """The document with the sums of all its lines before its first section."""
    _, *sections = document.partition("\n## ")
    text = "".join(sections)
    lines = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    faults = [cells for cells in lines if cells[0] != "| step"]
    named = ", ".join(f"{n} {version(n)}" for n in ("hudi", "obstore", "pyarrow", "pyspark"))
    looks = []
    for place, reader in enumerate(READERS, 1):
        counts = [cells[place].partition("/") for cells in faults]
        right, all_ = (sum(int(one[end] or 0) for one in counts) for end in (0, 2))
        looks.append(f"{reader} {right} of {all_}")
    lost, doubled = (sum(int(cells[place] or 0) for cells in faults) for place in (-3, -2))
    held = sum(cells[-1] == "yes |" for cells in faults)
    summary = (
        f"Faults made: {len(faults)}, of which {held} held. Right looks: {', '.join(looks)}."
        f" Rows lost: {lost}; doubled: {doubled}. With {named}."
    )
    return f"{_HEAD}{summary}\n{text}"


def _heading(title: str) -> str:
    return title[0].upper() + title[1:]


def _section(title: str, faults: list[Fault]) -> list[str]:
    return [
        f"\n## {_heading(title)}\n",
        f"| step | {' | '.join(READERS)} | lost | doubled | held |",
        f"|---|{'---|' * len(READERS)}---|---|---|",
        *(_line(fault) for fault in faults),
    ]


def _line(fault: Fault) -> str:
    cells = []
    for reader in READERS:
        mine = [look for look in fault.looks if look.reader == reader]
        cells.append(f"{sum(look.is_right for look in mine)}/{len(mine)}" if mine else "")
    looked = bool(fault.looks)
    cells.append(str(sum(look.lost for look in fault.looks)) if looked else "")
    cells.append(str(sum(look.doubled for look in fault.looks)) if looked else "")
    cells.append("yes" if fault.held else "**NO**")
    return f"| {fault.step.replace('|', '/')} | {' | '.join(cells)} |"
