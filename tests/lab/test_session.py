"""The settings of a Spark session that no cell may change for the next."""

from __future__ import annotations

import pytest

from serde_lab.lab.session import SessionSettings, spark_conf


@pytest.mark.parametrize(
    ("settings", "memory"),
    [
        (SessionSettings(driver_memory="6g"), "6g"),
        (SessionSettings(driver_memory="6g", conf={"spark.driver.memory": "700m"}), "700m"),
    ],
)
def test_the_heap_has_one_size_from_the_start(settings: SessionSettings, memory: str) -> None:
    conf = spark_conf(settings)
    assert conf["spark.driver.memory"] == memory
    assert f"-Xms{memory}" in conf["spark.driver.extraJavaOptions"].split()
