"""Renders a gate's result as text, Markdown for a job summary, JUnit XML, CSV or JSON.

The words are the gate's own: failed, wrong answer, regression, undecided, passed. The worst findings come
first; passed cells appear as a count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from xml.etree import ElementTree

from serde_lab.gate.decision import WORST_FIRST, Finding, GateResult
from serde_lab.gate.output.comparison import outliers, short_table
from serde_lab.gate.output.documents import as_json, gate_document
from serde_lab.gate.output.tables import TextTable, comma_separated, markdown, markdown_text
from serde_lab.runs.plain_text import plain, plain_line

GateFormat = Literal["table", "md", "junit", "csv", "json"]

_ORDER = WORST_FIRST[:-1]
_MARKS = dict(zip(WORST_FIRST, "x!-?=", strict=True))

_HEADLINES = {
    0: "passed",
    1: "failed: something could not be judged at all",
    3: "regression",
    4: "wrong answer",
    5: "undecided: nothing is wrong, but not everything could be told",
}


def render_gate(result: GateResult, format: GateFormat = "table") -> str:
    """The result in one of five formats."""
    if format == "json":
        return as_json(gate_document(result))
    if format == "junit":
        return _junit(result)
    if format == "csv":
        return comma_separated(_findings_table(result.findings))
    return _markdown(result) if format == "md" else _text(result)


def headline(result: GateResult) -> str:
    """One line: the gate's verdict, the two sides, and the exit status."""
    comparison = result.comparison
    undecided = result.exit_status == 0 and result.of_level("undecided")
    word = _HEADLINES[5 if undecided else result.exit_status]
    return (
        f"gate {comparison.scenario}: {word} (exit {result.exit_status}); {comparison.after}"
        f" against {comparison.before}"
    )


def summary_line(result: GateResult) -> str:
    """The number of findings of each level that occurs, the worst first."""
    counts = [f"{len(result.of_level(one))} {one}" for one in WORST_FIRST if result.of_level(one)]
    return f"{', '.join(counts) or 'nothing'} of {len(result.findings)} judged"


def cells(result: GateResult) -> TextTable:
    """Every compared cell with the gate's verdict."""
    rows = result.comparison.rows
    levels = [result.level_of(row) for row in rows]
    return short_table(rows, [(_MARKS[level], level) for level in levels])


def _text(result: GateResult) -> str:
    lines = [headline(result)]
    for level in _ORDER:
        lines += [f"  {level}: {_where(found)}{found.text}" for found in result.of_level(level)]
    lines.append(f"  {summary_line(result)}")
    lines += [f"  note: {note}" for note in _notes(result)]
    return "\n".join(map(plain_line, lines)) + "\n"


def _markdown(result: GateResult) -> str:
    parts = [f"### {markdown_text(headline(result))}"]
    told = [found for level in _ORDER for found in result.of_level(level)]
    if told:
        parts.append(markdown(_findings_table(told)))
    rows = markdown(cells(result))
    parts.append(
        f"<details><summary>{summary_line(result)}; all cells</summary>\n\n{rows}\n\n</details>"
    )
    parts.append("\n".join(f"- {markdown_text(note)}" for note in _notes(result)))
    return "\n\n".join(parts) + "\n"


def _notes(result: GateResult) -> list[str]:
    comparison = result.comparison
    told = [note for note in comparison.notes if note not in comparison.raised]
    notes = [*told, *outliers(comparison.rows)]
    if result.confirmed:
        notes.insert(0, "what failed by its times was measured a second time")
    return notes


def _findings_table(findings: Sequence[Finding]) -> TextTable:
    return TextTable(
        ("level", "arm", "quantity", "why", "evaluated"),
        tuple(
            (
                found.level,
                found.row.arm if found.row else "",
                found.row.quantity.label if found.row else "",
                found.text,
                "; ".join(one.text for one in found.inequalities),
            )
            for found in findings
        ),
    )


def _where(finding: Finding) -> str:
    row = finding.row
    return "" if row is None else f"{row.arm} {row.quantity.label}: "


def _junit(result: GateResult) -> str:
    """One test case per finding: regressions and wrong answers fail, undecided cells are skipped."""
    counts = {level: len(result.of_level(level)) for level in (*_ORDER, "passed")}
    undecided_fails = result.strict
    suite = ElementTree.Element(
        "testsuite",
        name=plain(f"serde_lab gate {result.comparison.scenario}"),
        tests=str(len(result.findings)),
        failures=str(
            counts["regression"]
            + counts["wrong answer"]
            + (counts["undecided"] if undecided_fails else 0)
        ),
        errors=str(counts["failed"]),
        skipped=str(0 if undecided_fails else counts["undecided"]),
    )
    for found in result.findings:
        _test_case(suite, found, undecided_fails)
    output = ElementTree.SubElement(suite, "system-out")
    output.text = plain(_text(result))
    ElementTree.indent(suite)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"{ElementTree.tostring(suite, encoding='unicode')}\n"
    )


def _test_case(suite: ElementTree.Element, found: Finding, undecided_fails: bool) -> None:
    row = found.row
    scenario = (suite.get("name") or "").removeprefix("serde_lab gate ")
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=plain(f"{scenario}.{row.arm if row else 'gate'}"),
        name=plain(row.quantity.label if row else "gate"),
    )
    if found.level == "passed":
        return
    tag = {"failed": "error", "undecided": "failure" if undecided_fails else "skipped"}
    problem = ElementTree.SubElement(
        case, tag.get(found.level, "failure"), message=plain(found.text), type=found.level
    )
    problem.text = plain("\n".join(one.text for one in found.inequalities))
