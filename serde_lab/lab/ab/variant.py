"""Measures the cells of one variant of an A/B comparison, one at a time, on request.

The comparison runs this file as a script, by its path, so that the same loop measures the code of any
commit. Of that code it uses only `load_scenario`, `run_scenario` and `RunSettings`. Messages are lines
of JSON. Standard input gives first what to measure, then `{"rounds", "arms"}`, then an empty object for
each turn. Standard output gets `ready` before each cell, `cell` after it, `done` with the run's path, or
`error` with one sentence.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn, TextIO


class VariantProgress:
    """Forwards the runner's progress as events; each cell waits here for its turn."""

    def __init__(self, output: TextIO) -> None:
        self.output = output

    def send(self, event: str, **fields: Any) -> None:
        """Write one event as a line."""
        self.output.write(json.dumps({"event": event, **fields}) + "\n")
        self.output.flush()

    def receive(self) -> dict[str, Any]:
        """Read one line; the end of the input counts as ctrl-C."""
        line = sys.stdin.readline()
        if not line:
            _interrupt()
        read: dict[str, Any] = json.loads(line)
        return read

    def message(self, text: str) -> None:
        self.send("message", text=text)

    def plan(self, cells: int, done: int) -> None: ...

    def cell_started(self, arm: str, round: int, warmup: bool) -> None:
        self.send("ready", arm=arm, round=round, warmup=warmup)
        self.receive()

    def cell_ended(self, arm: str, round: int, seconds: float | None, note: str) -> None:
        self.send("cell", arm=arm, round=round, seconds=seconds, note=note)


def _interrupt(*_: object) -> NoReturn:
    """Raise KeyboardInterrupt, once only.

    The comparison ends a variant by closing its input and by a signal. The second of the two must not
    interrupt the orderly end that the first one started.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    """Serve requests until standard input ends; returns the exit status."""
    # anything else that prints must not be read as an event
    progress = VariantProgress(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        _serve(progress)
    except KeyboardInterrupt:
        return 130
    except Exception as exc:  # the process edge: report one sentence
        text = getattr(exc, "message", None) or f"{type(exc).__name__}: {exc}"
        progress.send("error", text=" ".join(str(text).split())[:500])
        return int(getattr(exc, "exit_status", 1))
    return 0


def _serve(progress: VariantProgress) -> None:
    import serde_lab
    from serde_lab.lab.runner import RunSettings, run_scenario
    from serde_lab.scenario.loading import load_scenario

    request = progress.receive()
    progress.send("hello", package=str(Path(serde_lab.__file__ or "").resolve().parent))
    cache = request["cache"]
    path: Path | None = None
    while True:
        try:
            turn = progress.receive()
        except KeyboardInterrupt:  # the comparison ends between two rounds
            return
        overrides = [*request["overrides"], f"measure.rounds={turn['rounds']}"]
        scenario = load_scenario(request["scenario"], overrides=overrides)
        settings = RunSettings(
            results=Path(request["results"]),
            cache=None if cache is None else Path(cache),
            arms=tuple(turn["arms"]),
            overrides=tuple(overrides),
        )
        path = run_scenario(scenario, settings, progress, path).path
        progress.send("done", path=str(path.resolve()))


if __name__ == "__main__":
    sys.exit(main())
