"""json_lines keeps the laws of the SerDe interface, up to the types that it declares."""

from pathlib import Path

import pytest

from serde_lab.serde.conformance import Conformance
from serde_lab.serde.conformance.values import KINDS

pytestmark = pytest.mark.slow


class TestJsonLines(Conformance):
    name = "json_lines"
    golden = Path(__file__).parent / "golden"
    kinds = KINDS - {
        *("decimal", "binary", "large_binary", "binary_view"),
        *("date", "timestamp", "timestamp_zone", "map"),
    }
