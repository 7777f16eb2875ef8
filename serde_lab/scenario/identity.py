"""What a scenario asks, apart from how it is worded, where its files lie and how often it is run.

Owns the rule when two scenarios ask the same. Must not know runs or baselines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from serde_lab.scenario.model import (
    Arm,
    Batch,
    Codec,
    Measure,
    ParquetData,
    Scenario,
    Table,
    Topology,
    TpchData,
)

# words, limits of the gate, and how often and in what order: none of it is asked of an arm
_NOT_ASKED = ("name", "title", "question", "reference", "gate")
_NOT_ASKED_OF_MEASURING = ("rounds", "seed")
_NOT_ASKED_OF_AN_ARM = ("changes", "note")


def asked(scenario: Scenario) -> dict[str, Any]:
    """The scenario's content as far as it decides what is measured."""
    return asked_of(scenario.to_json())


def asked_of(scenario_content: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a scenario as `to_json` gave it, perhaps in an older version with other keys.

    A key with its default asks for nothing that scenarios of before there was the key did not ask
    for, and is left out. So are the paths of a user's files: their checksums say what they hold.
    """
    content = _without(scenario_content, _NOT_ASKED)
    measure = content.get("measure", {})
    asked = {
        "data": _data(content.get("data", {})),
        "table": _stated(content.get("table", {}), Table),
        "topology": _stated(content.get("topology", {}), Topology),
        "measure": _stated(_without(measure, _NOT_ASKED_OF_MEASURING), Measure),
        "arm": [_arm(arm) for arm in content.get("arm", ())],
    }
    for batches in ("setup", "commit"):
        asked[batches] = [
            _stated(_without(batch, ("path",)), Batch) | {"own_file": batch.get("path") is not None}
            for batch in content.get(batches, ())
        ]
    if content.get("sweep") is not None:
        asked["sweep"] = content["sweep"]
    if measure.get("exchange") == "none":
        asked["codec"] = _stated(content.get("codec", {}), Codec)
    return asked


def content_hash(scenario: Scenario) -> str:
    """16 hex digits that are equal where `asked` is."""
    return _digest(asked(scenario))


def arm_hash(scenario: Scenario, arm: str) -> str:
    """The same for one arm: stays equal when other arms are added, changed or taken away."""
    content = asked(scenario)
    content["arm"] = [one for one in content["arm"] if one["name"] == arm]
    return _digest(content)


def data_hash(scenario: Scenario) -> str:
    """16 hex digits of what decides the input batches: the data, `[[setup]]` and `[[commit]]`."""
    content = scenario.to_json()
    content["data"] = {k: v for k, v in content["data"].items() if (k, v) != ("key_range", "whole")}
    return _digest({key: content[key] for key in ("data", "setup", "commit")})


def _data(content: Mapping[str, Any]) -> dict[str, Any]:
    section = ParquetData if content.get("source") == "parquet" else TpchData
    return _stated(_without(content, ("path",)), section)


def _arm(content: Mapping[str, Any]) -> dict[str, Any]:
    options = {k: v for k, v in content.get("options", {}).items() if v is not None}
    return _stated(_without(content, _NOT_ASKED_OF_AN_ARM), Arm) | {"options": options}


def _stated(content: Mapping[str, Any], section: type[BaseModel]) -> dict[str, Any]:
    """The keys of a section whose values are not their defaults."""
    defaults = {
        name: to_jsonable_python(field.get_default(call_default_factory=True))
        for name, field in section.model_fields.items()
        if not field.is_required()
    }
    return {k: v for k, v in content.items() if k not in defaults or v != defaults[k]}


def _without(content: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key not in keys}


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
