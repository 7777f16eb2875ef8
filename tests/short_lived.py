"""Options of a JVM that lives for minutes: the tests' Spark sessions, in whichever process they start.

Such a JVM spends most of its time on loading, verifying and compiling Spark's classes. So it compiles
with the quick compiler alone, in room for all that it compiles, does not verify the bytecode of released
jars once more, maps Spark's classes from an archive where `make test` made one, and Apache Hudi's JOL does
not start another JVM to look into this one. Hadoop starts a `chmod` for each local file, without the
helper program between. Its Python workers are forked with the lab imported (`tests/spark_daemon.py`).
"""

from __future__ import annotations

from tests.class_archive import archive_options

_FOR_MINUTES = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SHORT_LIVED = (
    f"{_FOR_MINUTES} -XX:ReservedCodeCacheSize=240m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    " -Djdk.lang.Process.launchMechanism=VFORK"
    " -Djol.skipHotspotSAAttach=true -Djol.skipDynamicAttach=true"
)

OWN_DAEMON = {
    "SPARK_SUBMIT_OPTS": SHORT_LIVED + archive_options(),
    "SPARK_LAUNCHER_OPTS": _FOR_MINUTES,
}
"""Where Spark's launcher looks for options of the JVM that it starts, and of its own. Spark's own daemon
forks the workers, for tests whose subject is workers or an environment without these tests."""

ENVIRONMENT = OWN_DAEMON | {
    "SPARK_SUBMIT_OPTS": "-Dspark.python.daemon.module=tests.spark_daemon "
    + OWN_DAEMON["SPARK_SUBMIT_OPTS"]
}
"""The same for all other tests, whose workers need not import the lab."""

NO_JVM = {"SPARK_LAUNCHER_OPTS": "-XX:TestWithoutTheMarkerSparkStartsAJVM"}
"""Java refuses to start with it, and names it."""
