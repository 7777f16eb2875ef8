"""Classes of the user's, named as package.module:Class.

Owns the way from such a name to the class, and what is said where there is none. Must not know what the
class is for.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TypeVar

from serde_lab.errors import OptionError

Kind = TypeVar("Kind")


def named_class(name: str, kind: type[Kind], where: str, known: Iterable[str]) -> type[Kind]:
    """The class at `name`, which derives from `kind`.

    `where` begins what is said otherwise; `known` are names that would have done as they are. Raises
    OptionError.
    """
    module_name, _, class_name = name.partition(":")
    if not class_name:
        raise OptionError(f"{where}, expected package.module:Class or one of {', '.join(known)}")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as exc:
        raise OptionError(f"{where}, which is not there: {exc}") from exc
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise OptionError(f"{where}, which is no {kind.__name__}")
    return found
