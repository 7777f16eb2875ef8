"""One side of a sitting: measures cells when it is told to. Run as a script, by its path.

So the same loop measures code of any commit: of that code it needs no more than `load_scenario`,
`run_scenario` and `RunSettings`. Lines of JSON come in on standard input: first what to measure, then
`{"rounds", "arms"}`, and an empty object for each turn. Lines go out on standard output: `ready` before
each cell, `cell` after it, `done` with the run's path, `error` with one sentence. Must know nothing of
the other sides.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn, TextIO


class SideProgress:
    """What the runner tells, sent on; each cell waits here for its turn."""

    def __init__(self, said: TextIO) -> None:
        self.said = said

    def send(self, event: str, **fields: Any) -> None:
        """One line out."""
        self.said.write(json.dumps({"event": event, **fields}) + "\n")
        self.said.flush()

    def receive(self) -> dict[str, Any]:
        """One line in; nobody there any more is as good as ctrl-C."""
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
    """Raises KeyboardInterrupt once: whoever ends a side closes its input and sends a signal, and the
    second of the two must not break into what the first one has ended in good order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    """Serve until standard input ends."""
    # whatever else writes to standard output must not be taken for an answer
    progress = SideProgress(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        _serve(progress)
    except KeyboardInterrupt:
        return 130
    except Exception as exc:  # the edge of a process: whoever waits gets one sentence
        text = getattr(exc, "message", None) or f"{type(exc).__name__}: {exc}"
        progress.send("error", text=" ".join(str(text).split())[:500])
        return int(getattr(exc, "exit_status", 1))
    return 0


def _serve(progress: SideProgress) -> None:
    import serde_lab
    from serde_lab.lab.runner import RunSettings, run_scenario
    from serde_lab.scenario.loading import load_scenario

    asked = progress.receive()
    progress.send("hello", package=str(Path(serde_lab.__file__ or "").resolve().parent))
    cache = asked["cache"]
    path: Path | None = None
    while True:
        try:
            turn = progress.receive()
        except KeyboardInterrupt:  # told to go, between two rounds
            return
        overrides = [*asked["overrides"], f"measure.rounds={turn['rounds']}"]
        scenario = load_scenario(asked["scenario"], overrides=overrides)
        settings = RunSettings(
            results=Path(asked["results"]),
            cache=None if cache is None else Path(cache),
            arms=tuple(turn["arms"]),
            overrides=tuple(overrides),
        )
        path = run_scenario(scenario, settings, progress, path).path
        progress.send("done", path=str(path.resolve()))


if __name__ == "__main__":
    sys.exit(main())
