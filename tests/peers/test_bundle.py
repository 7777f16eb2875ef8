"""Finding and fetching the bundle, and the options of a write; no Spark session is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from serde_lab.errors import SetupError
from serde_lab.peers.apache_hudi import (
    COORDINATES,
    JAR_VARIABLE,
    fetch_bundle,
    find_bundle,
    root_cause,
    session_conf,
)
from serde_lab.peers.hudi_options import HudiTable, HudiWrite, write_options

JAR = "hudi-spark3.5-bundle_2.12-1.2.0.jar"
IN_MAVEN = f".m2/repository/org/apache/hudi/hudi-spark3.5-bundle_2.12/1.2.0/{JAR}"
IN_IVY = f".ivy2/jars/org.apache.hudi_{JAR}"


def jar(home: Path, where: str) -> Path:
    path = home / where
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"PK")
    return path


def test_places_are_searched_in_order(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert find_bundle(environ=environ) is None
    ivy = jar(tmp_path, IN_IVY)
    assert find_bundle(environ=environ) == ivy
    maven = jar(tmp_path, IN_MAVEN)
    assert find_bundle(environ=environ) == maven
    named = jar(tmp_path, "elsewhere/named.jar")
    assert find_bundle(environ={**environ, JAR_VARIABLE: str(named)}) == named
    given = jar(tmp_path, "elsewhere/given.jar")
    assert find_bundle(str(given), {**environ, JAR_VARIABLE: str(named)}) == given


def test_a_stated_path_without_a_file_is_refused(tmp_path: Path) -> None:
    jar(tmp_path, IN_MAVEN)
    missing = str(tmp_path / "missing.jar")
    with pytest.raises(
        SetupError, match=r"--hudi-jar names .*missing\.jar, where there is no file"
    ):
        find_bundle(missing, {"HOME": str(tmp_path)})
    with pytest.raises(SetupError, match=f"{JAR_VARIABLE} names"):
        find_bundle(environ={"HOME": str(tmp_path), JAR_VARIABLE: missing})


def maven_client(folder: Path, script: str) -> dict[str, str]:
    """An environment whose only program is a Maven client that runs `script`."""
    client = folder / "bin" / "mvn"
    client.parent.mkdir()
    client.write_text(f"#!/bin/sh\n{script}\n")
    client.chmod(0o755)
    return {"HOME": str(folder), "PATH": str(client.parent)}


def test_the_maven_client_fetches_what_is_not_there(tmp_path: Path) -> None:
    target = tmp_path / IN_MAVEN
    target.parent.mkdir(parents=True)
    environ = maven_client(tmp_path, f'echo "$@" > {tmp_path}/asked; echo PK > {target}')
    assert fetch_bundle(environ) == target
    assert f"-Dartifact={COORDINATES}" in (tmp_path / "asked").read_text()
    (tmp_path / "asked").unlink()
    assert fetch_bundle(environ) == target
    assert not (tmp_path / "asked").exists()


def test_a_failing_maven_client_is_quoted(tmp_path: Path) -> None:
    environ = maven_client(tmp_path, "echo no route; exit 1")
    with pytest.raises(SetupError, match=r"could not fetch .*1\.2\.0; it said: no route"):
        fetch_bundle(environ)


def test_without_a_maven_client_the_ways_out_are_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"no Maven client \(give its path by --hudi-jar"):
        fetch_bundle({"HOME": str(tmp_path), "PATH": str(tmp_path)})


def test_the_session_gets_the_jar_or_its_coordinates() -> None:
    with_jar = session_conf(Path("/jars/hudi.jar"))
    assert with_jar["spark.jars"] == "/jars/hudi.jar"
    assert with_jar["spark.serializer"].endswith("KryoSerializer")
    assert session_conf(None)["spark.jars.packages"] == COORDINATES


def test_options_of_a_table_and_a_write() -> None:
    table = HudiTable("t", ("a", "b"), ("ts",), ("p",), "MERGE_ON_READ", hive_style=True)
    options = write_options(
        table, HudiWrite(record_type="SPARK", compact_after=2, retain_commits=1)
    )
    assert options["hoodie.datasource.write.keygenerator.class"].endswith(".ComplexKeyGenerator")
    assert options["hoodie.bucket.index.hash.field"] == "a,b"
    assert options["hoodie.table.ordering.fields"] == "ts"
    assert options["hoodie.compact.inline.max.delta.commits"] == "2"
    assert options["hoodie.clean.commits.retained"] == "1"
    assert options["hoodie.archive.automatic"] == "false"
    assert options["hoodie.write.record.merge.custom.implementation.classes"].endswith(
        ".DefaultSparkRecordMerger"
    )


@pytest.mark.parametrize(
    ("keys", "partition", "kind"),
    [
        (("a",), (), "NonpartitionedKeyGenerator"),
        (("a", "b"), (), "NonpartitionedKeyGenerator"),
        (("a",), ("p",), "SimpleKeyGenerator"),
        (("a",), ("p", "q"), "ComplexKeyGenerator"),
        (("a", "b"), ("p",), "ComplexKeyGenerator"),
    ],
)
def test_key_generators(keys: tuple[str, ...], partition: tuple[str, ...], kind: str) -> None:
    assert HudiTable("t", keys, (), partition).key_generator.endswith(f".{kind}")


def test_the_innermost_cause_is_what_is_said() -> None:
    trace = "An error occurred.\n: A: one\n\tat x\nCaused by: B: two\n\tat y\nCaused by: C: three\n"
    assert root_cause(trace) == "C: three"
    assert root_cause("only this\nand more") == "only this"
    assert root_cause("") == "it did not say why"
