"""`tests/readers.toml` says what the tests show: every entry is whole, and every test it names exists."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.differential.made import history
from tests.peers.interop.cells import DIMENSIONS, Cell

TESTS = Path(__file__).parent.parent
CONTENT = tomllib.loads((TESTS / "readers.toml").read_text(encoding="utf-8"))


def functions(path: Path) -> set[str]:
    """Names of the tests in a file, without importing it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def node_ids() -> list[str]:
    named = [test for feature in CONTENT["feature"] for test in feature["tests"]]
    return sorted({*named, *(exception["test"] for exception in CONTENT["exception"])})


@pytest.mark.parametrize("node_id", node_ids())
def test_named_tests_exist(node_id: str) -> None:
    file, _, function = node_id.partition("::")
    found = functions(TESTS / file)
    assert function in found if function else any(name.startswith("test_") for name in found)


@pytest.mark.parametrize("kind", ["feature", "exception"])
def test_entries_are_whole(kind: str) -> None:
    readers = set(CONTENT["readers"])
    names = [entry["name"] for entry in CONTENT[kind]]
    assert len(names) == len(set(names))
    for entry in CONTENT[kind]:
        check(kind, entry, readers)


def check(kind: str, entry: dict[str, Any], readers: set[str]) -> None:
    entry = dict(entry)
    for wanted in entry.pop("cells", []):
        values = [v for column in DIMENSIONS for v in column]
        assert wanted.keys() <= Cell.__dataclass_fields__.keys(), entry["name"]
        assert all(any(v.startswith(value) for v in values) for value in wanted.values())
    for wanted in entry.pop("kinds", []) if kind == "exception" else []:
        assert wanted.keys() <= history(0).facts().keys(), entry["name"]
    entry.pop("begins", None)
    if kind == "feature":
        assert entry.keys() == {"name", "judges", "tests"}, entry["name"]
        assert entry["judges"]
        assert set(entry["judges"]) <= readers
        assert entry["tests"]
        return
    assert entry.keys() == {"name", "who", "as", "fault", "smallest_case", "test"}, entry["name"]
    assert entry["who"] in readers
    assert entry["as"] in ("reader", "writer")
    assert entry["fault"] in ("loud", "silent")
    assert len(entry["smallest_case"]) > 20


def test_every_case_of_an_exception_is_listed() -> None:
    listed = {exception["test"] for exception in CONTENT["exception"]}
    written = {
        f"peers/test_exceptions.py::{name}"
        for name in functions(TESTS / "peers" / "test_exceptions.py")
        if name.startswith("test_")
    }
    assert written <= listed
