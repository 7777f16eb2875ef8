"""A JVM that lives for a minute: less work at its start, since code compiled well comes too late for it.

Owns the JVM's options of the tests' Spark sessions. Must not know what runs in them.
"""

from __future__ import annotations

from dataclasses import replace

from serde_lab.lab.session import SessionSettings, spark_conf

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def short_lived(settings: SessionSettings) -> SessionSettings:
    """The same session in such a JVM."""
    java = f"{spark_conf(settings)[_JAVA_OPTIONS]} {SHORT_LIVED}"
    return replace(settings, conf={**settings.conf, _JAVA_OPTIONS: java})
