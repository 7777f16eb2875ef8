"""avro keeps the laws of the SerDe interface, by row and by batch."""

from pathlib import Path

from serde_lab.serde.conformance import Conformance


class TestAvro(Conformance):
    name = "avro"
    golden = Path(__file__).parent / "golden"
