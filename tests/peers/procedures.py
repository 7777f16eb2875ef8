"""Apache Hudi's procedures, as its SQL calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONF = {
    "hoodie.metadata.enable": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.embed.timeline.server": "false",
}


def call(session: SparkSession, path: str, version: int, procedure: str, **arguments: str) -> None:
    """Call a procedure, which takes further options from the session, on the table at `path`."""
    conf = {**_CONF, "hoodie.write.table.version": str(version)}
    for key, value in conf.items():
        session.conf.set(key, value)
    said = {"path": path, **arguments}
    given = ", ".join(f"{name} => '{value}'" for name, value in said.items())
    try:
        session.sql(f"CALL {procedure}({given})").collect()
    finally:
        for key in conf:
            session.conf.unset(key)
