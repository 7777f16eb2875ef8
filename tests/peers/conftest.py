"""The session with Apache Hudi in it, for tests marked `hudi`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from serde_lab.peers.apache_hudi import COORDINATES, JAR_VARIABLE, is_loaded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def hudi_session(spark: SparkSession) -> SparkSession:
    """The test run's session; a test that needs Hudi does not pass where Hudi is not to be had."""
    if not is_loaded(spark):
        pytest.fail(
            f"Apache Hudi ({COORDINATES}) could not be fetched; name its jar in {JAR_VARIABLE}"
        )
    return spark
