"""Options of a JVM that lives for minutes: the tests' Spark sessions, in whichever process they start.

Such a JVM spends most of its time on loading, verifying and compiling Spark's classes. So it compiles
with the quick compiler alone, does not verify the bytecode of released jars once more, and Apache Hudi's
JOL does not start another JVM to look into this one.
"""

from __future__ import annotations

_FOR_MINUTES = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SHORT_LIVED = (
    f"{_FOR_MINUTES} -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    " -Djol.skipHotspotSAAttach=true -Djol.skipDynamicAttach=true"
)

ENVIRONMENT = {"SPARK_SUBMIT_OPTS": SHORT_LIVED, "SPARK_LAUNCHER_OPTS": _FOR_MINUTES}
"""Where Spark's launcher looks for options of the JVM that it starts, and of its own."""

NO_JVM = {"SPARK_LAUNCHER_OPTS": "-XX:TestWithoutTheMarkerSparkStartsAJVM"}
"""Java refuses to start with it, and names it."""
