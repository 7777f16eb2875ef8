"""How wide and how long the code may be: modules in all, modules side by side, lines, import circles, names.

What is beyond a limit today stands beside it with its present number; a number here may fall, and is
raised only with a reason beside it.
"""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.architecture.following import PACKAGES, ROOT

MOST_MODULES = 300
"""A module costs every reader a name and a place to remember, so a new one takes the place of another. A
module with a single importer stands alone only where both together are too long or are two things. The last
three to come hold the signs of other work on the machine; how Parquet is written, which base files and log
blocks need; and the command that remakes quoted runs, which shared nothing with those that print runs."""
SIDE_BY_SIDE = 20
WIDER: dict[str, int] = {}
"""Folders with more modules side by side, each with its reason; there is none."""
MOST_LINES = 400
LONGER: dict[str, int] = {}
"""Modules with more lines, each with its reason; there is none."""
CIRCLES: set[frozenset[str]] = set()
"""Modules that import each other, be it for types alone; there are none."""


@cache
def modules() -> tuple[Path, ...]:
    """Every module of the packages, by its path in the project; a folder's own `__init__` is none."""
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return tuple(sorted(p.relative_to(ROOT) for p in found if p.name != "__init__.py"))


def test_there_are_no_more_modules_than_before() -> None:
    assert len(modules()) <= MOST_MODULES


def test_no_folder_has_more_than_20_modules_side_by_side() -> None:
    counts = Counter(str(module.parent) for module in modules())
    wide = {folder: n for folder, n in counts.items() if n > WIDER.get(folder, SIDE_BY_SIDE)}
    assert not wide


def test_no_module_has_more_than_400_lines() -> None:
    lines = {str(m): len((ROOT / m).read_text().splitlines()) for m in modules()}
    assert not {m: n for m, n in lines.items() if n > LONGER.get(m, MOST_LINES)}


def test_no_exception_stands_longer_than_it_is_needed() -> None:
    counts = Counter(str(module.parent) for module in modules())
    assert not [folder for folder in WIDER if counts[folder] <= SIDE_BY_SIDE]
    lines = {str(m): len((ROOT / m).read_text().splitlines()) for m in modules()}
    assert not [module for module in LONGER if lines.get(module, 0) <= MOST_LINES]


def imports() -> dict[str, set[str]]:
    """By module, the modules that it names in an import anywhere in it, for types too."""
    names = {".".join(module.with_suffix("").parts): module for module in modules()}
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        asked: set[str] = set()
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.Import):
                asked |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                asked |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        found[name] = (asked & names.keys()) - {name}
    return found


def test_no_modules_import_each_other() -> None:
    graph, found = imports(), set()
    while True:
        try:
            TopologicalSorter(graph).prepare()
            break
        except CycleError as circle:
            around = circle.args[1]
            found.add(frozenset(around))
            # an edge of the circle is taken away, to find the next one
            graph[around[1]].discard(around[0])
    assert found == CIRCLES


def test_a_name_stands_for_one_class() -> None:
    classes: dict[str, list[str]] = {}
    for module in modules():
        for node in ast.parse((ROOT / module).read_text()).body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(str(module))
    assert not {name: found for name, found in classes.items() if len(found) > 1}
