"""Extracts the part of a scenario that decides what is measured, and hashes it.

Two scenarios measure the same thing if these parts are equal. Texts, the location of files and the number
of rounds do not count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from serde_lab.scenario.model import (
    Arm,
    ParquetData,
    Scenario,
    TableSection,
    TopologySection,
    TpchData,
)
from serde_lab.scenario.sections import Batch, Codec, Measure, ShapesData

# texts, limits of the gate, and how often and in which order arms run do not change what is measured
_NOT_ASKED = ("name", "title", "question", "reference", "gate")
_NOT_ASKED_OF_MEASURING = ("rounds", "seed")
_NOT_ASKED_OF_AN_ARM = ("changes", "note")
# a path differs between machines; checksums identify the contents
_PATH = ("path",)


def asked(scenario: Scenario) -> dict[str, Any]:
    """The part of the scenario's content that decides what is measured."""
    return asked_of(scenario.to_json())


def asked_of(scenario_content: Mapping[str, Any]) -> dict[str, Any]:
    """Like `asked`, for the result of `to_json`, perhaps of an older version with other keys."""
    content = _without(scenario_content, _NOT_ASKED)
    measure = content.get("measure", {})
    found = {
        "data": _without(content.get("data", {}), _PATH),
        "table": content.get("table", {}),
        "topology": content.get("topology", {}),
        "measure": _without(measure, _NOT_ASKED_OF_MEASURING),
        "arm": [_without(arm, _NOT_ASKED_OF_AN_ARM) for arm in content.get("arm", ())],
    }
    found |= _writes(content)
    if content.get("dataset"):
        found["dataset"] = [
            {**one, "data": _without(one["data"], _PATH), **_writes(one)}
            for one in content["dataset"]
        ]
    if content.get("queries"):
        found["queries"] = content["queries"]
    if content.get("stream") is not None:
        found["stream"] = content["stream"]
    if content.get("sweep") is not None:
        # older sweeps have no `also`
        found["sweep"] = _without_defaults(content["sweep"], {"also": {}})
    for name in ("shapes", "search"):
        if content.get(name) is not None:
            found[name] = content[name]
    if measure.get("exchange") == "none":
        found["codec"] = content.get("codec", {})
    return with_defaults(found)


def _writes(content: Mapping[str, Any]) -> dict[str, Any]:
    """The untimed and the timed writes of one table."""
    return {
        batches: [
            _without(batch, _PATH) | {"own_file": batch.get("path") is not None}
            for batch in content.get(batches, ())
        ]
        for batches in ("setup", "commit")
    }


def with_defaults(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A result of `asked_of`, perhaps of an older version, with the defaults of keys that it lacks.

    Present values are kept even if they equal the default, because defaults may change.
    """
    sources: dict[object, type[BaseModel]] = {"parquet": ParquetData, "shapes": ShapesData}
    data = sources.get(asked.get("data", {}).get("source"), TpchData)
    sections = {
        "data": _defaults(data, _PATH),
        "table": _defaults(TableSection),
        "topology": _defaults(TopologySection),
        "measure": _defaults(Measure, _NOT_ASKED_OF_MEASURING),
    }
    whole = dict(asked)
    for name, defaults in sections.items():
        whole[name] = defaults | asked.get(name, {})
    if "codec" in asked:
        whole["codec"] = _defaults(Codec) | asked["codec"]
    for batches in ("setup", "commit"):
        whole[batches] = [_defaults(Batch, _PATH) | batch for batch in asked.get(batches, ())]
    if "arm" in asked:
        whole["arm"] = [arm_with_defaults(arm) for arm in asked["arm"]]
    return whole


def arm_with_defaults(arm: Mapping[str, Any]) -> dict[str, Any]:
    """Like `with_defaults`, for one arm; options without a value are left out."""
    whole = _defaults(Arm, _NOT_ASKED_OF_AN_ARM) | dict(arm)
    options = whole.get("options") or {}
    return whole | {"options": {key: v for key, v in options.items() if v is not None}}


def arm_hash(scenario: Scenario, arm: str) -> str:
    """A hash of `asked` in 16 hex digits, with only one arm: the others may be added, changed or removed."""
    content = asked(scenario)
    content["arm"] = [one for one in content["arm"] if one["name"] == arm]
    return _digest(content)


def data_hash(scenario: Scenario) -> str:
    """A hash, in 16 hex digits, of what decides the input batches: `[data]`, `[[setup]]`, `[[commit]]`."""
    content = scenario.to_json()
    # leave out defaults of keys that were added later, so that data made before them stays valid
    later = {
        "key_range": "whole",
        "keyless": False,
        "refresh": False,
        "partitions": [],
        "since": 1,
        "while_writing": False,
    }
    content["data"] = _without_defaults(content["data"], later)
    for batches in ("setup", "commit"):
        content[batches] = [_without_defaults(batch, later) for batch in content[batches]]
    found = {key: content[key] for key in ("data", "setup", "commit")}
    if scenario.stream is not None:
        found["batches"] = scenario.stream.batches
    return _digest(found)


@cache
def _defaults(section: type[BaseModel], left_out: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        name: to_jsonable_python(field.get_default(call_default_factory=True))
        for name, field in section.model_fields.items()
        if name not in left_out and not field.is_required()
    }


def _without(content: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key not in keys}


def _without_defaults(content: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in content.items() if k not in defaults or v != defaults[k]}


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
