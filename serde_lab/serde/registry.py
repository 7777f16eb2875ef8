"""Strategies by name: those that come with the package, and plug-ins of installed distributions.

Owns the lookup through entry points of the group `serde_lab.strategies` (name -> `module:Class`). The
package's own strategies are known without entry points too, so that a checkout works that was never
installed. Must not know what a strategy does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from serde_lab.errors import OptionError, SetupError
from serde_lab.records.schema import RecordSchema
from serde_lab.serde.interface import BoundSerde, SerdeOptions, Strategy

GROUP = "serde_lab.strategies"

BUILT_IN: Mapping[str, str] = {
    "pickle": "serde_lab.serde.pickle.records:PickleStrategy",
    "avro": "serde_lab.serde.avro.records:AvroStrategy",
    "internal_row": "serde_lab.serde.internal_row.strategy:InternalRowStrategy",
    "arrow": "serde_lab.serde.arrow.records:ArrowStrategy",
}


def names() -> tuple[str, ...]:
    """The names of all known strategies: the package's own, then plug-ins by name."""
    plugins = {point.name for point in entry_points(group=GROUP)}
    return (*BUILT_IN, *sorted(plugins - set(BUILT_IN)))


def strategy(name: str) -> Strategy:
    """The strategy called `name`.

    Raises OptionError for an unknown name or one that two distributions claim, SetupError where the
    strategy's module cannot be imported or does not hold what its entry point says.
    """
    target = _target(name)
    module_name, _, class_name = target.partition(":")
    try:
        found = getattr(import_module(module_name), class_name)
    except (ImportError, AttributeError) as exc:
        raise SetupError(f"strategy {name!r} cannot be loaded from {target}: {exc}") from exc
    if not (isinstance(found, type) and issubclass(found, Strategy)):
        raise SetupError(f"strategy {name!r}: {target} is no subclass of {Strategy.__name__}")
    if found.name != name:
        raise SetupError(f"strategy {name!r}: {target} calls itself {found.name!r}")
    return found()


def _target(name: str) -> str:
    return _target_on(name, tuple(sys.path))


@lru_cache(maxsize=256)
def _target_on(name: str, path: tuple[str, ...]) -> str:
    """Looked up once a process: reading every distribution's entry points takes tens of milliseconds,
    and a worker binds its strategy once a task. `path` is what the answer depends on."""
    targets = {point.value for point in _points(name)}
    if name in BUILT_IN:
        targets.add(BUILT_IN[name])
    if not targets:
        raise OptionError(f"unknown strategy {name!r}, expected one of {', '.join(names())}")
    if len(targets) > 1:
        raise OptionError(f"strategy {name!r} is claimed by {' and by '.join(sorted(targets))}")
    return targets.pop()


def _points(name: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP, name=name))


def bind(name: str, schema: RecordSchema, options: SerdeOptions) -> BoundSerde:
    """The strategy called `name`, bound to `schema` and `options`."""
    return strategy(name).bind(schema, options)
