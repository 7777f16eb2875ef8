"""Which code measured, and which was measured.

Owns the hash of the measuring code: when it changes, figures of before and after answer different
questions and are not compared. The commit is a fact beside it, since what is judged may change
freely. Must not know runs.
"""

from __future__ import annotations

import ast
import hashlib
import io
import subprocess
import tokenize
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeGuard

_PACKAGE = Path(__file__).resolve().parent.parent

# what decides a figure's value; the environment, its limits and this module only describe
_DESCRIBING = frozenset({"__init__.py", "code_version.py", "container.py", "environment.py"})


def code_version(package: Path = _PACKAGE) -> dict[str, Any]:
    """Package version, git commit (None outside a checkout), and the hash under `measuring`."""
    return {
        "package": _package_version(),
        **_git(package),
        "measuring": measuring_hash(package / "measure"),
    }


def measuring_hash(folder: Path) -> str:
    """A hash of the modules that define phases, clocks, metrics and their joining.

    Comments, docstrings and blank lines are left out: words do not change a figure.
    """
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        if file.name not in _DESCRIBING:
            digest.update(f"{file.name}\n{substance(file.read_text(encoding='utf-8'))}\n".encode())
    return digest.hexdigest()[:16]


def substance(source: str) -> str:
    """Python source without comments, docstrings and blank lines.

    On text, not on the syntax tree, whose printed form differs between versions of Python.
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
    """Whether a statement is nothing but a string: of a module, a class, a function or a name."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _package_version() -> str | None:
    try:
        return version("serde-lab")
    except PackageNotFoundError:
        return None


def _git(package: Path) -> dict[str, Any]:
    """Commit and cleanliness of the checkout that tracks `package`; a wheel has neither."""
    # a virtual environment may lie inside another project's checkout: ask for our own file
    if _run(package, "ls-files", "--error-unmatch", "errors.py") is None:
        return {"git_commit": None, "git_dirty": None}
    changed = _run(package.parent, "status", "--porcelain", "--", package.name, "tpch", "scenarios")
    return {
        "git_commit": (_run(package, "rev-parse", "HEAD") or "").strip() or None,
        "git_dirty": None if changed is None else bool(changed.strip()),
    }


def _run(folder: Path, *arguments: str) -> str | None:
    """What git prints; None when it fails, is not there, or does not answer."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
