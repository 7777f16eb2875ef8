"""The process that decodes frames in two checks (`stand_alone`, `referee`), forked instead of started.

It is forked from a process that has imported the lab and seen no record, so it knows of the encoding
process only what it is sent, as a started one does. Starting one for each run of a test takes a second
of CPU time, and namespaces for the referee's another. `tests/sabotage` and runs in processes of their own
have both.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "serde_lab.pipeline.write",
        "serde_lab.pipeline.exchange.in_process",
        "serde_lab.table.read_plan",
        "serde_lab.lab.checks.stand_alone",
    ]
)


def run(
    command: Sequence[str], *, env: Mapping[str, str], timeout: float, **_: Any
) -> subprocess.CompletedProcess[bytes]:
    """What `subprocess.run` returns for the same command, but for what the process says."""
    _python, _p, _m, module, request, answer = command
    assert module == "serde_lab.lab.checks.stand_alone"
    place = Path.cwd()
    child = CONTEXT.Process(target=_decode, args=(place / request, place / answer, dict(env)))
    child.start()
    child.join(timeout)
    if child.exitcode is None:
        child.kill()
        child.join()
        raise subprocess.TimeoutExpired(command, timeout)
    return subprocess.CompletedProcess(command, child.exitcode, b"", b"")


def _decode(request: Path, answer: Path, env: Mapping[str, str]) -> None:
    from serde_lab.lab.checks.stand_alone import decode_all

    os.environ.clear()
    os.environ.update(env)
    sys.path[:] = env["PYTHONPATH"].split(os.pathsep)
    decode_all(request, answer)


FORKED = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
"""Takes the place of the module `subprocess` in the check."""


class _Open:
    """An enclosure that hides nothing."""

    without_changes_since = classmethod(lambda cls, _since_s: cls())

    def command(self, command: Sequence[str], _folder: Path) -> list[str]:
        return list(command)

    def obstacle(self, _module: str, _folder: Path) -> str:
        return ""


NO_NAMESPACES = SimpleNamespace(Enclosure=_Open)
"""Takes the place of the module `isolation` in the checks."""
