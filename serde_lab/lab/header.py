"""Makes the header of a run: scenario, arms, machine, code and settings, as known before it measures.

For each strategy it also estimates how many bytes each column takes in frames.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa

import serde_lab
from serde_lab.errors import RunError
from serde_lab.lab.cells.codec_cases import codec_cases, first_rows, frame_bytes
from serde_lab.lab.cells.peer_arms import handed, recorded_jars, session_settings
from serde_lab.lab.inputs.prepared import PreparedInputs
from serde_lab.lab.plan import (
    Write,
    fairness_of,
    options_of,
    serde_options,
    set_up_options,
    topologies_of,
)
from serde_lab.lab.run_points import PreparedPoint
from serde_lab.lab.run_settings import RunSettings
from serde_lab.lab.session.run_session import recorded_conf
from serde_lab.lab.session.session import find_java
from serde_lab.measure.code_version import code_version
from serde_lab.measure.environment import capture_environment, machine_class
from serde_lab.peers.likeness import as_records
from serde_lab.peers.table_formats import format_aspects_for, ways_of
from serde_lab.pipeline.plan import key_generator
from serde_lab.records.keys import NOWHERE, KeyGenerator
from serde_lab.records.schema import ENVELOPE, RecordSchema
from serde_lab.runs.model import ArmEntry, RunHeader
from serde_lab.runs.writer import new_run_id
from serde_lab.scenario.identity import asked_of
from serde_lab.scenario.model import Arm, Scenario
from serde_lab.scenario.sweep import writes_several
from serde_lab.serde.interface import Bounds, SerdeOptions
from serde_lab.serde.prediction import predict
from serde_lab.serde.registry import named, strategy

ENVELOPE_AND_FRAMING = "envelope and framing"
_LEAST_ROWS = 1000
_PACKAGES = Path(serde_lab.__file__).parents[1]


def run_header(point: PreparedPoint, settings: RunSettings) -> RunHeader:
    scenario, arms, inputs = point.scenario, point.arms, point.inputs
    sessions, isolated = point.peers.sessions, point.peers.isolated
    several = writes_several(scenario)
    # record classes write no tables, so nothing is to be said of options and likeness
    with_peers = point.peers.with_peers and not scenario.codec_only
    # these are of one table's records; leaving out one of hundreds of columns after the other takes minutes
    apart = not several and not point.at.of_shapes
    columns = columns_of_arms(scenario, arms, inputs, point.schema) if apart else {}
    commits = list(enumerate(((t.name, c) for t in point.tables for c in t.inputs.commits), 1))
    java = find_java()
    seen = capture_environment(settings.results, {"version": java.version, "origin": java.origin})
    return RunHeader(
        run=new_run_id(settings.results / scenario.name),
        scenario=scenario.name,
        arms=tuple(
            arm_entry(
                scenario,
                arm,
                None if several else inputs.record_schema.data,
                columns.get(arm.name),
                point.peers.missing.get(arm.name),
            )
            for arm in arms
        ),
        scenario_content=scenario.to_json(),
        environment=seen,
        machine_class=machine_class(seen),
        code_version=code_version(scenario.measure.exchange),
        data_checksums=_checksums(point),
        seed=scenario.measure.seed,
        spark_conf=_placeless(recorded_conf(scenario, settings, sessions[0])),
        settings={
            "rows": {str(n): c.rows for n, (_, c) in commits},
            "operations": {str(n): c.operation for n, (_, c) in commits},
            **({"tables": {str(n): table for n, (table, _) in commits}} if several else {}),
            "local_mode": not settings.master,
            **({"master": settings.master} if settings.master else {}),
            **({"conf": dict(settings.conf)} if settings.conf else {}),
            "overrides": dict(text.split("=", 1) for text in settings.overrides),
            "python": platform.python_version(),
            **({"isolate_peers": True} if isolated else {}),
            **_sessions(point),
            **_topologies(scenario, arms),
            **_different_keys(inputs),
            **_cases(scenario, point.schema),
            **(_options_of_strategies(scenario, arms) if with_peers else {}),
        },
        likeness=as_records() if with_peers else (),
        peer_spark_conf=_placeless(recorded_conf(scenario, settings, sessions[-1]))
        if isolated
        else {},
        ways=ways_of(arms),
        format_likeness=format_aspects_for(arms),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def swept_header(
    scenario: Scenario, chosen: Sequence[str], points: Sequence[tuple[PreparedPoint, RunHeader]]
) -> RunHeader:
    """Merge the headers of all points into one: arms in the scenario's order, then by point.

    `chosen`: names of the arms that are measured, () for all.
    """
    first = points[0][1]
    names = [arm.name for arm in scenario.arms if not chosen or arm.name in chosen]
    entries = {entry.arm: entry for _, header in points for entry in header.arms}
    arms = tuple(
        entries[here].model_copy(update={"swept": point.at.swept(name)})
        for name in names
        for point, _ in points
        # an arm may not be measured at every point
        if (here := point.at.arm_name(name)) in entries
    )
    return first.model_copy(
        update={
            "arms": arms,
            "scenario_content": scenario.to_json(),
            "data_checksums": {point.at.mark: header.data_checksums for point, header in points},
            "settings": {
                **first.settings,
                "points": [
                    {
                        "value": point.at.value,
                        **{k: header.settings[k] for k in ("rows", "operations")},
                        **_sizes(point),
                    }
                    for point, header in points
                ],
            },
        }
    )


def check_resumed(path: Path, begun: RunHeader, now: RunHeader) -> None:
    """Raise RunError if the run at `path` began with another scenario, data, code or settings, or elsewhere.

    All cells of a run are set against each other, and its header speaks for all of them.
    """
    for (name, hint), old, new in zip(_OF_ONE_RUN, _stated(begun), _stated(now), strict=True):
        for key in sorted(k for k in {*old, *new} if old.get(k) != new.get(k)):
            both = [str(one.get(key)) for one in (old, new)]
            alike = next((i for i, (a, b) in enumerate(zip_longest(*both)) if a != b), 0)
            was, is_now = (text[max(0, alike - 20) :][:60] for text in both)
            raise RunError(
                f"{path} cannot be resumed, since its {name} changed: {key} was {was}, and is {is_now}",
                f"{hint}, or begin a new run",
            )


_OF_ONE_RUN = (
    ("scenario", "undo the changes"),
    ("input data", "take the same files"),
    ("code", "check out the commit of the run"),
    ("machine", "go back to that machine"),
    ("Spark settings", "give the options of the run's first command, in the same folder"),
    ("missing arms", "give the options of the run's first command"),
)


def _stated(header: RunHeader) -> tuple[Mapping[str, Any], ...]:
    """What a header says of each part of `_OF_ONE_RUN`."""
    peers = {f"peers: {key}": value for key, value in header.peer_spark_conf.items()}
    return (
        asked_of(header.scenario_content),
        header.data_checksums,
        header.code_version,
        {"machine_class": header.machine_class},
        {**header.spark_conf, **peers, "sessions": header.settings.get("sessions")},
        {entry.arm: entry.missing for entry in header.arms if entry.missing},
    )


def _sizes(point: PreparedPoint) -> dict[str, Any]:
    """For a point of `[shapes]`, its factor, and the values and bytes of its timed rows."""
    if not point.at.of_shapes:
        return {}
    return {
        "factor": point.at.factor,
        "values": sum(commit.values or 0 for commit in point.inputs.commits),
        "bytes": sum(commit.arrow_bytes or 0 for commit in point.inputs.commits),
    }


def _checksums(point: PreparedPoint) -> dict[str, str]:
    """The checksums of all batches; those of a `[[dataset]]` after its name."""
    first, *further = point.tables
    return dict(first.inputs.checksums) | {
        f"{table.name}/{batch}": checksum
        for table in further
        for batch, checksum in table.inputs.checksums.items()
    }


def _sessions(point: PreparedPoint) -> dict[str, Any]:
    """The arms of each session and the settings that are its own, if arms have such settings."""
    own = {arm.name: session_settings(arm) for arm in point.arms}
    if not any(own.values()):
        return {}
    return {
        "sessions": [
            {
                "arms": sorted(plan.arms),
                "settings": own[min(plan.arms)],
                **({"jars": list(recorded_jars(plan))} if plan.jars else {}),
            }
            for plan in point.peers.sessions
            if plan.arms
        ]
    }


def _topologies(scenario: Scenario, arms: Sequence[Arm]) -> dict[str, Any]:
    """Stages and hops of each topology at the time of the run."""
    if scenario.measure.exchange == "none":
        return {}
    return {
        "topologies": {
            name: {"about": topology.about, "steps": [list(step) for step in topology.steps()]}
            for name, topology in topologies_of(scenario, arms).items()
        }
    }


def _different_keys(inputs: PreparedInputs) -> dict[str, Any]:
    """The number of different keys of each commit, if rows were made to share keys."""
    counted = {str(n): c.different_keys for n, c in enumerate(inputs.commits, start=1)}
    return {"different_keys": counted} if any(n is not None for n in counted.values()) else {}


def _cases(scenario: Scenario, schema: RecordSchema) -> dict[str, Any]:
    """The cases of a codec run, to which the commit numbers of its samples refer."""
    if not scenario.codec_only:
        return {}
    return {"cases": [case.to_json() for case in codec_cases(scenario, len(schema.data))]}


def _options_of_strategies(scenario: Scenario, arms: Sequence[Arm]) -> dict[str, Any]:
    """The options of each strategy arm's first commit; entries of peers have their own."""
    first = scenario.commits[0]
    write = Write(first.write_operation, first.partitions)
    return {
        "write_options": {
            arm.name: {key: str(value) for key, value in options_of(scenario, arm, write).items()}
            | arm.session_settings
            for arm in arms
            if arm.strategy is not None
        }
    }


def _placeless(conf: Mapping[str, str]) -> dict[str, str]:
    """The settings without this machine's paths, since runs are read elsewhere and may be committed."""
    places = {_PACKAGES: "<packages>", Path.cwd(): "."}
    with suppress(RuntimeError):  # a user without an account may have no home
        places[Path.home()] = "~"
    found = dict(conf)
    for place, name in places.items():
        if place.name:  # a container's home or folder may be "/"
            texts = "|".join(map(re.escape, (str(place), place.as_uri().removeprefix("file://"))))
            whole = re.compile(rf"(?<![\w.-])({texts})(?![^/,;\s\"'])")
            found = {key: whole.sub(name, value) for key, value in found.items()}
    return found


def arm_entry(
    scenario: Scenario,
    arm: Arm,
    data: pa.Schema | None,
    columns: Mapping[str, float] | None = None,
    missing: str | None = None,
) -> ArmEntry:
    """The arm as the run stores it, of whatever kind; for a search, with what it tries."""
    if arm.peer:
        entry = ArmEntry(arm=arm.name, kind="peer", options=dict(handed(scenario, arm)))
    else:
        entry = _own_entry(arm, data, columns)
    entry = entry.model_copy(update={"missing": missing})
    candidates = () if scenario.search is None else scenario.search.candidates
    tried = next((one for one in candidates if one.arm_name == arm.name), None)
    if tried is None:
        return entry
    changed = {key: arm.stated_settings[key] for key in tried.settings}
    stated = {"start": tried.arm, "name": tried.name, "factor": tried.changed_factor}
    return entry.model_copy(update={"candidate": {**stated, "settings": changed}})


def _own_entry(arm: Arm, data: pa.Schema | None, columns: Mapping[str, float] | None) -> ArmEntry:
    """The arm as the run stores it: options with all defaults, fairness card, the author's prediction.

    There is no prediction without `data`, the one schema of all records.
    """
    options: dict[str, Any] = dict(arm.options.given)
    prediction = None
    if arm.strategy is not None:
        with named(f"arm {arm.name!r}"):
            known, bound = strategy(arm.strategy), serde_options(arm)
            execution = bound.execution or known.executions[0]
            expected = None if data is None else predict(known, execution, data)
        prediction = None if expected is None else asdict(expected)
        options = {
            "execution": bound.execution,
            "rows_per_frame": bound.rows_per_frame,
            "max_frame_bytes": bound.max_frame_bytes,
            "integrity": bound.integrity,
            **bound.own,
            **({} if arm.topology is None else {"topology": arm.topology.name}),
            **({} if arm.source_reader == "auto" else {"source_reader": arm.source_reader}),
            **({} if arm.shuffle == "dataframe" else {"shuffle": arm.shuffle}),
            **arm.stated_settings,
        }
    return ArmEntry(
        arm=arm.name,
        kind=arm.kind,
        strategy=arm.strategy,
        options=options,
        fairness=fairness_of(arm),
        prediction=prediction,
        column_bytes=None if columns is None else dict(columns),
    )


def columns_of_arms(
    scenario: Scenario, arms: Sequence[Arm], inputs: PreparedInputs, schema: RecordSchema
) -> dict[str, dict[str, float]]:
    """Bytes per record by column for each strategy among `arms`, from the first rows of the first batch.

    The rows are encoded whole, and again without each column: the difference is the column's size. The rest
    belongs to envelope and framing. Nothing here is timed.
    """
    keys = key_generator(schema, set_up_options(scenario, None, Write()))
    found = {}
    for arm in arms:
        if arm.strategy is None:
            continue
        options = serde_options(arm)
        rows = first_rows(inputs, schema, max(_LEAST_ROWS, options.rows_per_frame))
        taken = column_bytes(arm.strategy, options, schema, keys, rows)
        if taken is not None:
            found[arm.name] = taken
    return found


def column_bytes(
    subject: str,
    options: SerdeOptions,
    schema: RecordSchema,
    keys: KeyGenerator,
    rows: pa.RecordBatch,
) -> dict[str, float] | None:
    """Bytes per record by column, in the schema's order, then the bytes of envelope and framing.

    `rows` has the schema's data columns. None if no column can be left out: without rows, with one
    column only, or if the strategy refuses the rows.
    """
    if not len(rows) or len(schema.data) < 2:
        return None
    enveloped = keys.envelop(rows, NOWHERE)
    try:
        whole = _frame_bytes(subject, options, schema, enveloped)
        taken = {
            field.name: (whole - _frame_bytes(subject, options, _without(schema, i), enveloped))
            / len(rows)
            for i, field in enumerate(schema.data)
        }
    except Exception:  # a plug-in may raise anything; the check of its frames reports it
        return None
    return {**taken, ENVELOPE_AND_FRAMING: whole / len(rows) - sum(taken.values())}


def _without(schema: RecordSchema, column: int) -> RecordSchema:
    """The schema without a column. Its first column is the key, since strategies do not look at keys."""
    data = schema.data.remove(column)
    return RecordSchema(data, record_key=(data[0].name,))


def _frame_bytes(
    subject: str, options: SerdeOptions, schema: RecordSchema, enveloped: pa.RecordBatch
) -> int:
    bound = strategy(subject).bind(schema, options)
    batch = enveloped.select([*ENVELOPE.names, *schema.data.names])
    return frame_bytes(bound.encode(bound.from_arrow(batch), Bounds.single(len(batch))))
