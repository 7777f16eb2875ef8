"""The tables of version 8 that histories make are those that Apache Hudi makes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from serde_lab.table.config_properties import from_properties
from serde_lab.table.properties import parse_properties
from tests.differential.history import Step
from tests.differential.kind import MODES, Kind
from tests.differential.version_8 import make_table
from tests.differential.writers import ByHudi

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACE = ".hoodie/hoodie.properties"
DRAWN = sorted(name for name, rules in MODES.items() if not rules.deletes)


def properties(folder: Path) -> dict[str, str]:
    return parse_properties((folder / PLACE).read_text(encoding="utf-8"))


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("mode", DRAWN)
def test_the_lab_knows_how_such_a_table_merges(mode: str, table_type: str, tmp_path: Path) -> None:
    kind = Kind(mode, table_type, ordering="long", version=8)
    make_table(str(tmp_path), kind)
    config = from_properties(properties(tmp_path), "")
    assert config.version == 8
    assert (config.merge_mode == "CUSTOM") == kind.by_class
    assert config.merge_rules.deletes_late == kind.by_class
    assert bool(config.merge_ordering) == kind.ordered


@pytest.mark.spark
@pytest.mark.hudi
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("mode", DRAWN)
def test_apache_hudi_makes_the_same(
    mode: str, table_type: str, hudi_session: SparkSession, tmp_path: Path
) -> None:
    partitioning = "hive" if mode.endswith("payload") else "none"
    kind = Kind(mode, table_type, ordering="long", partitioning=partitioning, version=8)
    row = {"h": "A", "k": "a", "o": 1, "int": 1} | ({"p": "x"} if partitioning == "hive" else {})
    ByHudi(hudi_session).do(str(tmp_path / "hudi"), kind, Step("upsert", (row,), (("int", "int"),)))
    make_table(str(tmp_path / "ours"), kind)
    theirs, ours = properties(tmp_path / "hudi"), properties(tmp_path / "ours")
    assert {name: theirs.get(name) for name in ours} == ours
