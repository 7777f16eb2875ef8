"""The judge shares no code with what it judges."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import serde_lab.verify

MODULES = sorted(Path(serde_lab.verify.__file__).parent.glob("*.py"))
# types, schemas with the places of their fields, and the names of operations may be shared; keys, ordering
# and merging are implemented again. A verdict is what a run stores
ALLOWED = {
    *("errors", "verify", "runs.model"),
    *("records.fields", "records.operation", "records.schema", "records.types"),
}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_module_imports_what_it_judges(path: Path) -> None:
    ours = {
        name.removeprefix("serde_lab.") for name in imported(path) if name.startswith("serde_lab")
    }
    shared = {name for name in ours if name not in ALLOWED and not name.startswith("verify.")}
    assert not shared
    assert not {name for name in imported(path) if name.split(".")[0] in ("pyspark", "py4j")}
