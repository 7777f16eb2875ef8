"""Shows RFC-84's own figures beside those of a run of its workload."""

from __future__ import annotations

from serde_lab.analysis.rfc84 import SOURCE, Claim, claims, percentage, rounds_said
from serde_lab.report import notation
from serde_lab.report.page import Cell, Column, Section, Sentence, Table
from serde_lab.report.run.facts import RunFacts

_NOT_ALIKE = (
    "What differs: the RFC's prototype ran on Flink, where Avro records went through Kryo one by one;"
    " here both arms are vectorised Python beside Spark, and Avro carries a fingerprint of its schema, not"
    " the schema. So the signs and the order of the figures can be compared, their sizes hardly."
)


def rfc84_section(facts: RunFacts) -> Section | None:
    """The section, or None for other workloads."""
    found = claims(facts.summary, facts.content)
    if not found:
        return None
    settings = facts.run.header.settings
    rows = sum(int(n) for n in (settings.get("rows") or {}).values())
    keys = sum(int(n or 0) for n in (settings.get("different_keys") or {}).values())
    lead = (
        f"{notation.count(rows)} rows with {notation.count(keys)} different keys;"
        f" {rounds_said(facts.summary)}. RFC-84's figures: {SOURCE}."
    )
    single = rounds_said(facts.summary) == "a single sample"
    columns = (
        Column("quantity", "quantity", numeric=False),
        Column("before", "avro"),
        Column("after", "internal_row"),
        Column("change", "change"),
        Column("rfc_change", "RFC-84"),
    )
    table = Table(
        "rfc84",
        "The typed row beside Avro, here and in RFC-84",
        columns,
        tuple(_row(claim) for claim in found),
        sortable=False,
    )
    blocks = (Sentence(lead, "warn" if single else ""), table, Sentence(_NOT_ALIKE, "muted"))
    return Section("rfc84", "Beside RFC-84", blocks)


def _row(claim: Claim) -> tuple[Cell, ...]:
    if claim.unit == "MB":
        before, after = (notation.size(value * 1e6) for value in (claim.before, claim.after))
    else:
        before, after = (notation.seconds(value) for value in (claim.before, claim.after))
    same_sign = (claim.change < 0) == (claim.rfc_change < 0)
    return (
        Cell(claim.quantity, claim.quantity, header=True),
        Cell(before, claim.before),
        Cell(after, claim.after),
        Cell(percentage(claim.change), claim.change, tone="good" if same_sign else "warn"),
        Cell(percentage(claim.rfc_change), claim.rfc_change),
    )
