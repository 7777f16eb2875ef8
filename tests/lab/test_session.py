"""The settings of a Spark session that no cell may change for the next."""

from __future__ import annotations

import subprocess
import sys

import pytest

from serde_lab.errors import SetupError
from serde_lab.lab.session.session import SessionSettings, spark_conf, start_session


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


@pytest.mark.parametrize("memory", ["900t", "999999999m"])
def test_a_heap_that_the_machine_does_not_have_is_refused(memory: str) -> None:
    with pytest.raises(SetupError, match=f"a heap of {memory} does not fit this machine's memory"):
        start_session(SessionSettings(driver_memory=memory))


_SAYS = """
from serde_lab.lab.session.session import SessionSettings, start_session, stop_session
spark = start_session(SessionSettings(cores=1, driver_memory="512m"))
spark._jvm.System.out.println("a notice of the JVM")
print("the result")
stop_session(spark)
"""


@pytest.mark.spark
def test_what_the_jvm_prints_is_no_result() -> None:
    done = subprocess.run([sys.executable, "-c", _SAYS], capture_output=True, text=True, check=True)
    assert done.stdout == "the result\n"
    assert "a notice of the JVM\n" in done.stderr
