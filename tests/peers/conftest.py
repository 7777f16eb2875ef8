"""The session with Apache Hudi in it, for tests marked `hudi`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def hudi_session(hudi_bundle: Path, spark: SparkSession) -> SparkSession:
    """The test run's session; a test that needs Hudi does not pass where Hudi is not to be had."""
    return spark
