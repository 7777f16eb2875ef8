"""Identifies the code that measured and the code that was measured.

The measuring code has a hash: if it changes, earlier and later figures answer different questions and are not
compared. The git commit is recorded beside it, since the judged code may change freely.
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

# they describe a measurement without changing its figures
_DESCRIBING = frozenset({"__init__.py", "code_version.py", "environment.py"})


def code_version(package: Path = _PACKAGE) -> dict[str, Any]:
    """Package version, git commit (None outside a checkout), and the hash under `measuring`."""
    return {
        "package": _package_version(),
        **_git(package),
        "measuring": measuring_hash(package / "measure"),
    }


def measuring_hash(folder: Path) -> str:
    """A hash of the modules that define phases, clocks, metrics and how these are joined.

    Comments, docstrings and blank lines are left out: they do not change a figure.
    """
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        if file.name not in _DESCRIBING:
            digest.update(f"{file.name}\n{substance(file.read_text(encoding='utf-8'))}\n".encode())
    return digest.hexdigest()[:16]


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
