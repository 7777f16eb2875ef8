"""Measures several variants of an A/B comparison together, cell by cell, in random order.

Each variant is a process with its own environment. One cell runs at a time. A turn ends when the variant is
ready for its next cell, so that checks and calibration of one variant never overlap with a cell of another.
A variant is

    .                        the code that runs here, uncommitted changes included
    serde-lab==VERSION       that version from the package index; FILE.whl a wheel
    anything else            a commit, in any form that git understands

Code with the same locked dependencies runs in the current environment, with its own code first on the
path. A commit with another requirements.lock gets its own environment, which the cache keeps. Worktrees
are removed when the comparison ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

import serde_lab
from serde_lab.errors import LabError, RunError, SetupError, UsageError
from serde_lab.files import locked
from serde_lab.lab.ab import variant as variant_script

HERE = "."

_TREE = Path(serde_lab.__file__).resolve().parent.parent
_LOCK = "requirements.lock"
_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")

Message = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class VariantEnvironment:
    """An interpreter, the folders first on its path, and the folder that contains its serde_lab."""

    name: str
    python: str
    path: tuple[Path, ...]
    root: Path


@contextmanager
def variant_environment(
    reference: str, work: Path, cache: Path, message: Message, repository: Path | None = None
) -> Iterator[VariantEnvironment]:
    """Yield the environment of `reference`; on exit all is removed except what the cache keeps.

    Source trees go into the folder `work`. `repository` is the checkout that has the commits, by default
    the one around the current folder. Raises UsageError if `reference` is no commit, version or wheel.
    """
    with ExitStack() as stack:
        if reference == HERE:
            yield VariantEnvironment("the working tree", sys.executable, (_TREE,), _TREE)
        elif reference.endswith(".whl") or reference.startswith("serde-lab=="):
            yield _installed(reference, work)
        else:
            yield _commit(reference, work, cache, message, repository or Path.cwd(), stack)


def _installed(reference: str, work: Path) -> VariantEnvironment:
    """Install the package alone into its own folder; dependencies come from the current environment."""
    if reference.endswith(".whl") and not Path(reference).is_file():
        raise UsageError(f"{reference}: there is no such wheel")
    target = work / "installed"
    pip = [sys.executable, *_PIP]
    _run(
        [*pip, "--no-deps", "--target", str(target), reference], f"{reference} cannot be installed"
    )
    return VariantEnvironment(reference, sys.executable, (target,), target)


def _commit(
    reference: str,
    work: Path,
    cache: Path,
    message: Message,
    repository: Path,
    stack: ExitStack,
) -> VariantEnvironment:
    found = _git(repository, "rev-parse", "--verify", "--quiet", f"{reference}^{{commit}}")
    if found is None:
        raise UsageError(
            f"{reference!r} is not a commit of the repository around {repository}",
            "expected a commit, serde-lab==VERSION, a wheel, or `.` for the code as it is",
        )
    commit = found.strip()
    tree = work / "tree"
    # entries of trees that a killed process left, which `work_folder` removes
    _git(repository, "worktree", "prune")
    # registered first, because an interrupt may come at any time
    stack.callback(_remove_tree, repository, tree)
    if _git(repository, "worktree", "add", "--quiet", "--detach", str(tree), commit) is None:
        raise SetupError(f"git cannot make a worktree of {reference} ({commit[:12]}) at {tree}")
    if not (tree / "serde_lab").is_dir():
        raise UsageError(f"{reference} ({commit[:12]}) has no folder serde_lab")
    python = _python_for(tree, cache, message)
    path = (_metadata(tree, work / "metadata"), tree)
    name = commit[:12] if commit.startswith(reference) else f"{reference} ({commit[:12]})"
    return VariantEnvironment(name, python, path, tree)


def _remove_tree(repository: Path, tree: Path) -> None:
    if _git(repository, "worktree", "remove", "--force", str(tree)) is None:
        shutil.rmtree(tree, ignore_errors=True)
        _git(repository, "worktree", "prune")


def _python_for(tree: Path, cache: Path, message: Message) -> str:
    """The current interpreter if the locked dependencies are the same, else one in a new environment."""
    wanted, here = tree / _LOCK, _TREE / _LOCK
    if not wanted.is_file() or not here.is_file() or wanted.read_bytes() == here.read_bytes():
        return sys.executable
    digest = hashlib.sha256(wanted.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = cache / "environments" / digest
    python = folder / "bin" / "python"
    with locked(folder.parent, "waiting for another process that makes an environment", message):
        if not (folder / "ready").is_file():
            message(
                f"its {_LOCK} differs from the current one: making an environment (takes a few"
                " minutes, once)"
            )
            shutil.rmtree(folder, ignore_errors=True)
            _run(
                [sys.executable, "-m", "venv", str(folder)],
                f"cannot make an environment at {folder}",
            )
            given = ["--require-hashes", "--requirement", str(wanted)]
            _run([str(python), *_PIP, *given], f"{wanted} cannot be installed")
            (folder / "ready").touch()
    return str(python)


def _metadata(tree: Path, folder: Path) -> Path:
    """Write the metadata of the tree's own entry points, so that they hide the installed ones."""
    try:
        project: Mapping[str, Any] = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
        name, version = str(project["name"]), str(project.get("version", "0"))
    except (OSError, ValueError, KeyError) as exc:
        raise UsageError(f"{tree} has no pyproject.toml of serde_lab: {exc}") from exc
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = project.get("entry-points", {})
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{point} = {value}" for point, value in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


def _git(repository: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=repository, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def _run(command: list[str], what: str) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
    except OSError as exc:
        raise SetupError(f"{what}: {exc}") from exc
    except subprocess.CalledProcessError as exc:
        lines = (exc.stderr or exc.stdout or "").strip().splitlines() or ["no message"]
        raise SetupError(f"{what}: {lines[-1]}") from exc


_GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class Variant:
    """What one variant measures: its label, its code, and its changes to the scenario."""

    label: str
    environment: VariantEnvironment
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """What all variants measure; `scenario` is a file, `folder` receives the runs and logs."""

    scenario: Path
    folder: Path
    cache: Path | None = None
    seed: int = 7


OnEvent = Callable[[str, Mapping[str, Any]], None]
"""Receives each event of a variant: the variant's label and the event."""


class Variants:
    """The running variants. A context manager that leaves no process behind, whatever happens."""

    def __init__(
        self, variants: Sequence[Variant], shared: SharedSettings, on_event: OnEvent
    ) -> None:
        self.shared = shared
        self._order = random.Random(shared.seed)
        self._workers = [_Worker(variant, shared, on_event) for variant in variants]

    def __enter__(self) -> Self:
        try:
            for worker in self._workers:
                worker.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def measure(self, rounds: int, arms: tuple[str, ...]) -> dict[str, Path]:
        """Extend the runs to `rounds` rounds of `arms` (() for all); returns each variant's run by label.

        Raises LabError with the message of a variant that failed.
        """
        for worker in self._workers:
            worker.send({"rounds": rounds, "arms": list(arms)})
            # one at a time: the first variant makes the input that the others reuse
            worker.wait()
        while waiting := [worker for worker in self._workers if worker.at is not None]:
            # a variant without its failed arms is ahead, and waits for the others to finish the round
            first = min(worker.round for worker in waiting)
            turn = [worker for worker in waiting if worker.round == first]
            self._order.shuffle(turn)
            for worker in turn:
                worker.send({})
                worker.wait()
        return {worker.variant.label: worker.done() for worker in self._workers}

    def _end(self) -> None:
        for worker in self._workers:
            worker.ask_to_end()
        for worker in self._workers:
            worker.end()


@dataclass
class _Worker:
    variant: Variant
    shared: SharedSettings
    on_event: OnEvent
    at: Mapping[str, Any] | None = None
    """The cell that the variant is ready to measure; None before the first and after the last."""
    path: Path | None = None
    _process: subprocess.Popen[str] | None = None
    _log: IO[str] | None = field(default=None, repr=False)

    @property
    def round(self) -> int:
        return int(self.at["round"]) if self.at else 0

    @property
    def folder(self) -> Path:
        return self.shared.folder / self.variant.label

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = (self.folder / "messages.log").open("w", encoding="utf-8")
        environment = self.variant.environment
        path = os.pathsep.join(map(str, environment.path))
        self._process = subprocess.Popen(
            [environment.python, "-P", str(Path(variant_script.__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            # measuring must not leave compiled files in the tree
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            # ctrl-C goes to the parent process, which then ends the variants
            start_new_session=True,
        )
        self.send(
            {
                "scenario": str(self.shared.scenario.resolve()),
                "overrides": list(self.variant.overrides),
                "results": str(self.folder),
                "cache": None if self.shared.cache is None else str(self.shared.cache.resolve()),
            }
        )
        package = Path(self._receive("hello")["package"])
        if not package.is_relative_to(environment.root.resolve()):
            raise RunError(
                f"{self.variant.label} imports serde_lab from {package}, expected {environment.root}"
            )

    def send(self, message: Mapping[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the variant's last event gives the reason
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def wait(self) -> None:
        """Wait until the variant is ready for a cell, or has finished."""
        event = self._receive("ready", "done")
        if event["event"] == "ready":
            self.at = event
        else:
            self.at, self.path = None, Path(event["path"])

    def done(self) -> Path:
        assert self.path is not None
        return self.path

    def ask_to_end(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        if self.at is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
        if self._log is not None:
            self._log.close()

    def _receive(self, *wanted: str) -> Mapping[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event: Mapping[str, Any] = json.loads(line)
            if event["event"] in wanted:
                return event
            if event["event"] == "error":
                raise self._failed(event["text"])
            self.on_event(self.variant.label, event)
        raise self._failed(f"it ended with status {self._process.wait()}; {self._last_message()}")

    def _failed(self, text: str) -> LabError:
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        kind = UsageError if self._process.returncode == UsageError.exit_status else RunError
        return kind(f"{self.variant.label} ({self.variant.environment.name}): {text}")

    def _last_message(self) -> str:
        lines = (self.folder / "messages.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote no message"
