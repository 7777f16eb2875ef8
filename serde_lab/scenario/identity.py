"""What a scenario asks, apart from how it is worded, where its files lie and how often it is run.

Owns the rule when two scenarios ask the same. Must not know runs or baselines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from serde_lab.scenario.model import Scenario

# words, limits of the gate, and how often and in what order: none of it is asked of an arm
_NOT_ASKED = ("name", "title", "question", "reference", "gate")
_NOT_ASKED_OF_MEASURING = ("rounds", "seed")
_NOT_ASKED_OF_AN_ARM = ("changes", "note")


def asked(scenario: Scenario) -> dict[str, Any]:
    """The scenario's content as far as it decides what is measured."""
    return asked_of(scenario.to_json())


def asked_of(scenario_content: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a scenario as `to_json` gave it, perhaps in an older version with other keys.

    The paths of a user's files are left out: their checksums say what they hold, on any machine.
    """
    content = _without(scenario_content, _NOT_ASKED)
    content["measure"] = _without(content.get("measure", {}), _NOT_ASKED_OF_MEASURING)
    content["data"] = _data(_without(content.get("data", {}), ("path",)))
    for batches in ("setup", "commit"):
        content[batches] = [
            _without(batch, ("path",)) | {"own_file": batch.get("path") is not None}
            for batch in content.get(batches, ())
        ]
    content["arm"] = [_without(arm, _NOT_ASKED_OF_AN_ARM) for arm in content.get("arm", ())]
    # scenarios of before there was a choice ask for what is the default now
    content["table"] = {
        key: value
        for key, value in content.get("table", {}).items()
        if (key != "log_blocks" or value is not None) and (key != "time_folders" or value)
    }
    if content.get("sweep") is None:
        content.pop("sweep", None)
    if content["measure"].get("exchange") != "none":
        content.pop("codec", None)
    return content


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
    content["data"] = _data(content["data"])
    return _digest({key: content[key] for key in ("data", "setup", "commit")})


def _data(content: Mapping[str, Any]) -> dict[str, Any]:
    """`[data]` without what every scenario of before there was a choice asks for."""
    return {k: v for k, v in content.items() if (k, v) != ("key_range", "whole")}


def _without(content: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key not in keys}


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
