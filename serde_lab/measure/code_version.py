"""Identifies the code that measured, instrument by instrument, and the code that was measured.

The git commit names the code that is judged, which may change freely. An instrument is a set of modules and
definitions. Its hash is over their contents without comments, docstrings and blank lines: a file that is
renamed or moved keeps the hash, and so does a file that is only described better. A run records the hashes of
the instruments that it used. Two figures are compared if the instruments of their metric are the same; a run
that records none is of unknown, older measuring code.
"""

from __future__ import annotations

import ast
import hashlib
import io
import subprocess
import tokenize
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeGuard

_PACKAGE = Path(__file__).resolve().parent.parent

CLOCK, TASKS, SLOTS = "clock of a commit", "clock of tasks", "split of slot time"
EVENTS, PROCESSES, SAMPLES = "event log", "process tree", "samples of a commit"
CALIBRATION, OTHER_WORK, CODEC = "calibration", "other work", "loop of verbs"

INSTRUMENTS: Mapping[str, tuple[str, ...]] = {
    CLOCK: (
        "lab/cells/bench.py#Bench.measured",
        "lab/cells/table_cells.py#InProcessCell.write",
        "lab/cells/cell.py#CommitsCell.measure",
    ),
    TASKS: (
        "measure/timeline.py",
        "measure/identity.py#_Ledger._add_spine",
        "measure/identity.py#_part",
    ),
    SLOTS: ("measure/identity.py", "measure/slots.py", "measure/phases.py"),
    EVENTS: ("measure/event_log.py",),
    PROCESSES: ("measure/process_tree.py",),
    SAMPLES: ("measure/commit.py",),
    CALIBRATION: tuple(
        f"measure/environment.py#{name}"
        for name in (
            *("calibrate", "numpy_work", "disk_work", "_median_s"),
            *("_REPEATS", "_NUMBERS", "_FILE_BYTES"),
        )
    ),
    OTHER_WORK: ("measure/other_work.py",),
    CODEC: (
        "lab/cells/codec_cells.py#measure_verbs",
        "lab/cells/codec_cells.py#least",
        "lab/cells/verb_times.py",
        "lab/cells/record_cells.py#measure_loops",
        "lab/cells/record_cells.py#_least",
    ),
}
"""By instrument its parts: a module, or a function, class or constant in one."""

_OF_EXCHANGE = {
    "none": (CODEC, CALIBRATION, OTHER_WORK),
    "inprocess": (CLOCK, TASKS, SLOTS, PROCESSES, SAMPLES, CALIBRATION, OTHER_WORK),
    "spark": (CLOCK, TASKS, SLOTS, EVENTS, PROCESSES, SAMPLES, CALIBRATION, OTHER_WORK),
}
_OF_METRIC: Mapping[str, tuple[str, ...]] = {
    "seconds": (CLOCK, CODEC),
    "rows_per_s": (CLOCK, SAMPLES, CODEC),
    "phase_wall_s": (TASKS, SLOTS, EVENTS, SAMPLES, CODEC),
    "phase_cpu_s": (TASKS, SLOTS, EVENTS, SAMPLES, CODEC),
    "serde_cpu_s": (TASKS, SAMPLES, CODEC),
    "index_cpu_s": (TASKS, SAMPLES),
    "serde_share": (TASKS, SLOTS, EVENTS, SAMPLES, CODEC),
    "unattributed_share": (TASKS, SLOTS, EVENTS, SAMPLES, CODEC),
    "shuffle_records": (EVENTS, SAMPLES),
    "shuffle_bytes": (EVENTS, SAMPLES),
    "shuffle_read_bytes": (EVENTS, SAMPLES),
    "tree_cpu_s": (CLOCK, PROCESSES, SAMPLES),
    "tree_peak_bytes": (CLOCK, PROCESSES, SAMPLES),
    "peak_worker_rss_bytes": (TASKS, SAMPLES),
    "spin_s": (OTHER_WORK,),
    "others_share": (OTHER_WORK, PROCESSES),
    # listed in the table itself, or asked for
    "files": (),
    "table_bytes": (),
    "hops": (),
    "slots": (),
}
_OF_PREFIX = {"spark.": (EVENTS, SAMPLES), "driver.": (TASKS, SAMPLES)}


def instruments(exchange: str, package: Path = _PACKAGE) -> dict[str, str]:
    """The hash of each instrument that a run with this `measure.exchange` uses, by name."""
    return {name: _hash(INSTRUMENTS[name], package) for name in _OF_EXCHANGE[exchange]}


def measured_by(metric: str) -> tuple[str, ...]:
    """The instruments that may measure a metric; counts that workers report by default."""
    prefix = f"{metric.partition('.')[0]}."
    return _OF_METRIC.get(metric, _OF_PREFIX.get(prefix, (SAMPLES,)))


def differing_instruments(
    before: Mapping[str, str], after: Mapping[str, str], metric: str
) -> tuple[str, ...]:
    """The instruments of a metric that differ, or that one side alone has; both sides record some."""
    return tuple(name for name in measured_by(metric) if before.get(name) != after.get(name))


def _hash(parts: tuple[str, ...], package: Path) -> str:
    digest = hashlib.sha256()
    for contents in sorted(_contents(part, package) for part in parts):
        digest.update(f"{contents}\n\n".encode())
    return digest.hexdigest()[:16]


def _contents(part: str, package: Path) -> str:
    """What a module or a definition says, without words about it."""
    name, _, definition = part.partition("#")
    lines = (package / name).read_text(encoding="utf-8").splitlines()
    if definition:
        node: ast.AST = ast.parse("\n".join(lines))
        for step in definition.split("."):
            node = _defined(node, step, part)
        assert isinstance(node, ast.stmt)
        above = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(one.lineno for one in above)])
        lines = lines[first - 1 : node.end_lineno]
        indent = len(lines[0]) - len(lines[0].lstrip())
        lines = [line[indent:] for line in lines]
    return substance("\n".join(lines))


def _defined(scope: ast.AST, name: str, part: str) -> ast.AST:
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
        if isinstance(node, ast.Assign) and name in _names(node):
            return node
    raise LookupError(f"internal error: the instrument's part {part} does not exist")


def _names(node: ast.Assign) -> set[str]:
    found = (name for target in node.targets for name in ast.walk(target))
    return {name.id for name in found if isinstance(name, ast.Name)}


def substance(source: str) -> str:
    """Python source without comments, docstrings and blank lines.

    Works on text, since the printed form of the syntax tree differs between versions of Python.
    """
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if _is_docstring(node):
            for row in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[row] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _is_docstring(node: ast.AST) -> TypeGuard[ast.Expr]:
    """Whether a statement is a docstring: of a module, a class, a function or a name."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def code_version(exchange: str = "spark", package: Path = _PACKAGE) -> dict[str, Any]:
    """Package version, git commit (None outside a checkout), and the instruments of a run.

    `exchange` is the scenario's `measure.exchange`. `instruments` has the hash of each instrument that such a
    run uses, `measuring` one of them all, for readers that compare the measuring code as a whole.
    """
    used = instruments(exchange, package)
    whole = hashlib.sha256("\n".join(sorted(used.values())).encode()).hexdigest()[:16]
    return {
        "package": _package_version(),
        **_git(package),
        "measuring": whole,
        "instruments": used,
    }


def _package_version() -> str | None:
    try:
        return version("serde-lab")
    except PackageNotFoundError:
        return None


def _git(package: Path) -> dict[str, Any]:
    """Commit and cleanliness of the checkout that tracks `package`; empty for a wheel."""
    # a virtual environment may lie inside another project's checkout: ask for our own file
    if _run(package, "ls-files", "--error-unmatch", "errors.py") is None:
        return {"git_commit": None, "git_dirty": None}
    changed = _run(package.parent, "status", "--porcelain", "--", package.name, "tpch", "scenarios")
    return {
        "git_commit": (_run(package, "rev-parse", "HEAD") or "").strip() or None,
        "git_dirty": None if changed is None else bool(changed.strip()),
    }


def _run(folder: Path, *arguments: str) -> str | None:
    """The output of git; None if git fails, is missing or does not answer."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
