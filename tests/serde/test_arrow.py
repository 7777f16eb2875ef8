"""arrow keeps the laws of the SerDe interface."""

from pathlib import Path

import pytest

from serde_lab.serde.conformance import Conformance

pytestmark = pytest.mark.slow


class TestArrow(Conformance):
    name = "arrow"
    golden = Path(__file__).parent / "golden"
    own_options = ({}, {"compression": "lz4"}, {"compression": "zstd"})
