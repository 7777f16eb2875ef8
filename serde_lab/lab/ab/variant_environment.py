"""Prepares the Python environment in which one variant of an A/B comparison runs.

    .                        the code that runs here, uncommitted changes included
    serde-lab==VERSION       that version from the package index; FILE.whl a wheel
    anything else            a commit, in any form that git understands

Code with the same locked dependencies runs in the current environment, with its own code first on the
path. A commit with another requirements.lock gets its own environment, which the cache keeps. Worktrees
are removed when the comparison ends.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import serde_lab
from serde_lab.errors import SetupError, UsageError

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
    if (folder / "ready").is_file():
        return str(python)
    message(
        f"its {_LOCK} differs from the current one: making an environment (takes a few minutes, once)"
    )
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)], f"cannot make an environment at {folder}")
    locked = [str(python), *_PIP, "--require-hashes", "--requirement", str(wanted)]
    _run(locked, f"{wanted} cannot be installed")
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
