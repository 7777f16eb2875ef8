"""Where an arm spends its time, function by function: py-spy for Python's processes, JFR for the JVM.

`make profile` runs one round of an arm under both and writes `results/profile.md`. A profile is no
measurement, since the samplers themselves take time: its shares tell where to look, and `ab` whether a change
is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from serde_lab.lab.session.session import find_java

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "results" / "profile.md"
SAMPLES_A_SECOND = 100
MOST = 25
"""Rows of a table."""
_LEAST_SHARE = 0.005
_PLACE = re.compile(r"^(.*) \((.*):\d+\)$")
_FORKS = "daemon.py"
"""The module from which Spark's workers are forked."""


@dataclass
class Profile:
    """Samples by function: those in which it ran itself (`own`), and those in which it was on the stack."""

    own: Counter[str] = field(default_factory=Counter)
    inclusive: Counter[str] = field(default_factory=Counter)

    @property
    def samples(self) -> int:
        return self.own.total()

    def add(self, stack: Sequence[str], count: int) -> None:
        """A stack, the outermost function first."""
        if stack:
            self.own[stack[-1]] += count
            self.inclusive.update(dict.fromkeys(stack, count))

    def table(self, title: str, only: str = "") -> Iterable[str]:
        """Markdown; `only`: of functions whose place begins so, by all of their samples."""
        chosen = self.inclusive if only else self.own
        shown = [(n, name) for name, n in chosen.items() if only in name]
        yield from (f"| {title} | own | with what it calls |", "|---|---:|---:|")
        for count, name in sorted(shown, key=lambda one: (-one[0], one[1]))[:MOST]:
            if count >= _LEAST_SHARE * self.samples:
                shares = (self.own[name], self.inclusive[name])
                cells = " | ".join(f"{100 * share / self.samples:.1f} %" for share in shares)
                yield f"| `{name}` | {cells} |"


def python_profiles(raw: str) -> tuple[Profile, Profile]:
    """Those of the workers and of the driver, from what py-spy writes: a line for each stack."""
    workers, driver = Profile(), Profile()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [frame for frame in stack.split(";") if not frame.startswith("process ")]
        forked = any(_FORKS in frame for frame in frames)
        (workers if forked else driver).add([_named(frame) for frame in frames], int(count))
    return workers, driver


def _named(frame: str) -> str:
    """`function (module)` of a frame, without its line."""
    found = _PLACE.match(frame)
    return frame if found is None else f"{found[1]} ({found[2]})"


def jvm_profiles(events: Iterable[dict[str, object]]) -> dict[str, Profile]:
    """By kind of thread, from the events that JFR prints as JSON."""
    found: dict[str, Profile] = {}
    for event in events:
        values = event["values"]
        assert isinstance(values, dict)
        if values["stackTrace"] is None or values["sampledThread"] is None:
            continue
        thread = str(values["sampledThread"]["javaName"])
        kind = "tasks" if thread.startswith("Executor task") else "other threads"
        stack = [frame["method"] for frame in reversed(values["stackTrace"]["frames"])]
        names = [f"{m['type']['name'].replace('/', '.')}.{m['name']}" for m in stack]
        found.setdefault(kind, Profile()).add(names, 1)
    return found


def _printed(recording: Path, event: str) -> list[dict[str, object]]:
    jfr = find_java().home / "bin" / "jfr"
    asked = [str(jfr), "print", "--json", "--stack-depth", "64", "--events", event, str(recording)]
    text = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    return list(json.loads(text)["recording"]["events"])


def _page(scenario: str, arm: str, folder: Path) -> Iterable[str]:
    workers, driver = python_profiles((folder / "python.txt").read_text(encoding="utf-8"))
    jvm = jvm_profiles(
        event
        for recording in sorted(folder.glob("*.jfr"))
        for event in _printed(recording, "jdk.ExecutionSample")
    )
    commit = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    yield f"""# Where the time goes, function by function

Written by `make profile`; do not edit. `{arm}` in `{scenario}`, its cold round and one more, at commit
{commit}: Python by py-spy, {SAMPLES_A_SECOND} samples a second of each thread that is not idle; the JVM by
Java Flight Recorder, of threads that run Java code. Both samplers take time, so compare the shares with each
other, and not with the times of a run. Time in pyarrow counts for the function that calls it. The driver's
samples include the checks. A thread that waits for a core is not idle. That is most likely why `_Phase.stop`
has samples, although it is called a few hundred times and takes a microsecond: Arrow's reading threads have
the cores then.
"""
    for name, profile in (("Python workers", workers), ("The driver's Python", driver)):
        yield f"## {name}: {profile.samples:,} samples\n"
        yield from profile.table("function")
        yield ""
    yield "## The lab's own functions in the workers, with what they call\n"
    yield from workers.table("function", only="(serde_lab/")
    for kind, profile in sorted(jvm.items(), reverse=True):
        yield f"\n## The JVM, {kind}: {profile.samples:,} samples\n"
        yield from profile.table("method")


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make profile", description=__doc__)
    parser.add_argument("scenario", nargs="?", default="hudi_claims")
    parser.add_argument("--arm", default="internal_row")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("options", nargs="*", help="further options of `run`, after --")
    asked = parser.parse_args(given)
    with tempfile.TemporaryDirectory(prefix="serde_lab-profile-") as name:
        folder = Path(name)
        recorder = (
            f"-XX:StartFlightRecording=settings=profile,dumponexit=true,filename={folder}/%p.jfr"
        )
        py_spy = ["record", "--subprocesses", "--function", "--rate", str(SAMPLES_A_SECOND)]
        py_spy += ["--format", "raw", "--output", str(folder / "python.txt")]
        run = ["run", asked.scenario, "--arm", asked.arm, "--rounds", "1", *asked.options]
        run += ["--results", str(folder / "results")]
        sampled = [sys.executable, "-m", "serde_lab", *run]
        done = subprocess.run(
            [Path(sys.executable).with_name("py-spy"), *py_spy, "--", *sampled],
            env=os.environ | {"SPARK_SUBMIT_OPTS": recorder},
        )
        if done.returncode:
            return done.returncode
        asked.page.write_text("\n".join(_page(asked.scenario, asked.arm, folder)) + "\n", "utf-8")
    sys.stderr.write(f"profile: {asked.page}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
