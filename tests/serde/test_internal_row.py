"""internal_row keeps the laws of the SerDe interface."""

from pathlib import Path

from serde_lab.serde.conformance import Conformance


class TestInternalRow(Conformance):
    name = "internal_row"
    golden = Path(__file__).parent / "golden"
