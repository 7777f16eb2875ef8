"""Describes problems of a scenario in sentences that name the key, what was found and what was expected.

Errors from pydantic get their wording here. Batches and arms are counted from 1, as in the results; a key
has the form that `--set` takes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from serde_lab.errors import ScenarioError, did_you_mean
from serde_lab.scenario.model import Scenario

Loc = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: the dotted key, and a clause that describes it."""

    key: str
    clause: str


def refuse(source: str, problems: Sequence[Problem]) -> ScenarioError:
    """The error to raise for one or more `problems`."""
    lines = [
        f"{problem.key}: {problem.clause}" if problem.key else problem.clause
        for problem in problems
    ]
    if len(lines) == 1:
        return ScenarioError(f"{source}: {lines[0]}")
    return ScenarioError(f"{source}: {len(lines)} problems:\n  " + "\n  ".join(lines))


def of_validation(error: ValidationError, raw: Mapping[str, Any]) -> list[Problem]:
    """The problems that pydantic found, in the order of the file's keys."""
    details = error.errors(include_url=False)
    return [
        Problem(dotted(_real(detail["loc"]), raw), _clause(detail))
        for detail in details
        if not _is_shadow(detail, details)
    ]


def dotted(loc: Loc, raw: Mapping[str, Any]) -> str:
    """A position in the file as a dotted key: `arm.pickle.options.layout`, `commit.1.rows`."""
    words: list[str] = []
    at: Any = raw
    for step in loc:
        at = at[step] if _has(at, step) else None
        if isinstance(step, int):
            name = at.get("name") if isinstance(at, Mapping) else None
            words.append(name if isinstance(name, str) and name else str(step + 1))
        else:
            words.append(step)
    return ".".join(words)


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` if a known name is close, else ""."""
    hint = did_you_mean(name, known)
    return "" if hint is None else f"; {hint}"


def comma_separated(names: Iterable[str]) -> str:
    """Names separated by commas, or `none`."""
    return ", ".join(names) or "none"


def a(operation: str) -> str:
    """`operation` with its indefinite article."""
    return f"{'an' if operation[0] in 'aeiu' else 'a'} {operation}"


def repeated(names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The names that occur more than once, and how often."""
    return ((name, times) for name, times in Counter(names).items() if times > 1)


def unknown_arm(key: str, name: str, known: list[str]) -> Iterator[Problem]:
    """A problem if there is no arm of that name."""
    if name not in known:
        yield Problem(
            key,
            f"there is no arm {name!r}; arms are {comma_separated(known)}{suggestion(name, known)}",
        )


def _has(at: object, step: int | str) -> bool:
    if isinstance(step, int):
        return isinstance(at, list) and step < len(at)
    return isinstance(at, Mapping) and step in at


def _real(loc: Loc) -> Loc:
    """`loc` without the tag that pydantic adds behind `data` for the kind of data."""
    before, _ = _parted(loc)
    return (*before, *loc[len(before) + 1 :])


def _parted(loc: Loc) -> tuple[Loc, Loc]:
    """`loc` up to its `data` (all of it if it has none), and the tag behind that, if there is one."""
    at = loc.index("data") + 1 if "data" in loc else len(loc)
    return loc[:at], loc[at : at + 1]


def _is_shadow(detail: ErrorDetails, details: Sequence[ErrorDetails]) -> bool:
    """Whether a "too short" error is misleading: pydantic adds one if all items of a list are refused."""
    loc = detail["loc"]
    return detail["type"] == "too_short" and any(
        other["loc"][: len(loc)] == loc and len(other["loc"]) > len(loc) for other in details
    )


_SOURCES = '"tpch", "parquet" or "shapes"'
_ARRAYS = ("setup", "commit", "dataset", "arm", "limit", "factor")
_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text in quotes",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "list_type": "an array",
    "tuple_type": "an array",
    "finite_number": "a finite number",
}


def _clause(detail: ErrorDetails) -> str:
    kind, found, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return _unknown(detail["loc"])
    if kind in ("literal_error", "enum"):
        known = [word.strip("'") for word in re.split(r", | or ", context["expected"])]
        near = suggestion(found, known) if isinstance(found, str) else ""
        return f"found {found!r}, expected one of {comma_separated(known)}{near}"
    if kind == "union_tag_not_found":
        return f"has no `source`, expected source = {_SOURCES}"
    if kind == "union_tag_invalid":
        return f"has source = {context['tag']!r}, expected {_SOURCES}"
    if kind == "string_pattern_mismatch":
        return f"found {found!r}, expected letters, digits, - and _, not beginning with a digit"
    if kind == "too_short":
        if found:
            return f"has {len(found)}, expected at least {context['min_length']}"
        return "is empty, expected at least one"
    if kind == "string_too_short":
        return "is empty"
    if kind == "string_too_long":
        return f"has {len(found):,} characters, expected {context['max_length']} at most"
    for bound, words in (
        ("ge", "from"), ("gt", "above"), ("le", "up to"), ("lt", "below"),
    ):  # fmt: skip
        if bound in context:
            return f"found {found!r}, expected a number {words} {context[bound]:g}"
    if kind in _EXPECTED:
        expected = _EXPECTED[kind]
        if kind == "tuple_type" and detail["loc"][-1] in _ARRAYS:
            expected = f"an array of tables, [[{detail['loc'][-1]}]]"
        return f"found {found!r}, expected {expected}"
    return f"found {found!r}: {detail['msg']}"


def _unknown(loc: Loc) -> str:
    """The clause for an unknown key: known names, and the table to which the name belongs, if any."""
    name = str(loc[-1])
    model = _model_at(loc[:-1])
    known = keys_of(model) if model else ()
    near = suggestion(name, known)
    if not near:
        homes = [path for path, key in all_keys() if key == name]
        if homes:
            where = [f"in [{home}]" if home else "outside of any table" for home in homes]
            near = f"; {name!r} belongs {' or '.join(where)}"
    return f"is an unknown key; known keys are {comma_separated(known)}{near}"


def keys_of(model: type[BaseModel]) -> tuple[str, ...]:
    """The keys of one table, by their names in the file."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


def all_keys() -> Iterator[tuple[str, str]]:
    """Every (table, key) of a scenario file; `data` has the keys of both kinds of data."""
    seen = set()
    for place, model in sections():
        for key in keys_of(model):
            if (place, key) not in seen:
                seen.add((place, key))
                yield place, key


def sections(
    model: type[BaseModel] = Scenario, place: str = ""
) -> Iterator[tuple[str, type[BaseModel]]]:
    """Every table of the file with its model; "" is the top of the file."""
    yield place, model
    for name, field in model.model_fields.items():
        key = field.alias or name
        for inner in _models(field.annotation):
            yield from sections(inner, f"{place}.{key}".lstrip("."))


def _model_at(loc: Loc) -> type[BaseModel] | None:
    """The model of the table at a pydantic location, which includes the tag of `data`."""
    place = ".".join(step for step in _real(loc) if isinstance(step, str))
    models = [model for found, model in sections() if found == place]
    _, tag = _parted(loc)
    tagged = [model for model in models if tag == get_args(_annotation(model, "source"))]
    return next(iter(tagged or models), None)


def _annotation(model: type[BaseModel], name: str) -> Any:
    return model.model_fields[name].annotation if name in model.model_fields else None


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in an annotation: in a tuple, in a union or alone."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for inner in get_args(annotation):
        yield from _models(inner)
