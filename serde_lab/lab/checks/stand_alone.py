"""Checks that frames contain the records themselves: another process must be able to read them.

Before the first measurement each strategy encodes made-up records in this process: rows with random values
for every column, reproducible by a seed. A new process, which has seen neither these records nor the input,
decodes them and must return the same rows. A strategy that sends references to rows it keeps, or reads the
input again, fails. The module holds both sides: `python -m serde_lab.lab.checks.stand_alone` is the decoding
one.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from serde_lab.errors import SchemaError, reason_of
from serde_lab.lab.checks import isolation
from serde_lab.records.keys import NOWHERE, KeyGenerator
from serde_lab.records.plain_form import first_difference
from serde_lab.records.schema import RecordSchema, columns_of
from serde_lab.runs.model import Check
from serde_lab.serde.interface import Bounds, Records, SerdeOptions
from serde_lab.serde.record_verbs import as_filed
from serde_lab.serde.registry import strategy

_NULLS = 1 / 8
_MOST_ITEMS = 3


def made_up_rows(schema: RecordSchema, rows: int, seed: int) -> pa.RecordBatch:
    """`rows` rows of `schema.data`; columns of key, partition and ordering fields have no nulls."""
    rng = np.random.default_rng([seed, rows])
    roles = set(columns_of([*schema.record_key, *schema.partition, *schema.ordering]))
    columns = []
    for field in schema.data:
        values = _values(field.type, rows, rng)
        if field.nullable and field.name not in roles:
            missing = rng.random(rows) < _NULLS
            # `take` gives null for a null index, for every type
            values = values.take(pa.array(np.arange(rows), mask=missing))
        columns.append(values)
    return pa.RecordBatch.from_arrays(columns, schema=schema.data)


def _values(t: pa.DataType, n: int, rng: np.random.Generator) -> pa.Array:
    if pat.is_boolean(t):
        return pa.array(rng.random(n) < 0.5)
    if pat.is_floating(t):
        return pa.array(rng.standard_normal(n) * 1e6).cast(t)
    if pat.is_integer(t):
        top = 2 ** (t.bit_width - 1)
        return pa.array(rng.integers(-top, top - 1, n, endpoint=True), pa.int64()).cast(t)
    if pat.is_date(t):
        return pa.array(rng.integers(-20_000, 40_000, n).astype(np.int32)).cast(t)
    if pat.is_timestamp(t):
        return pa.array(rng.integers(-(10**15), 4 * 10**15, n)).cast(t)
    if pat.is_decimal(t):
        return _decimals(t, n, rng)
    if pat.is_string(t):
        return pa.array([rng.bytes(8 + length).hex() for length in _lengths(n, rng)])
    if pat.is_binary(t):
        return pa.array([rng.bytes(8 + length) for length in _lengths(n, rng)])
    return _nested(t, n, rng)


def _nested(t: pa.DataType, n: int, rng: np.random.Generator) -> pa.Array:
    if pat.is_struct(t):
        members = [_values(t.field(i).type, n, rng) for i in range(t.num_fields)]
        return pa.StructArray.from_arrays(members, fields=list(t))
    ends = np.concatenate([[0], np.cumsum(_lengths(n, rng))]).astype(np.int32)
    items = int(ends[-1])
    if pat.is_map(t):
        keys, values = _values(t.key_type, items, rng), _values(t.item_type, items, rng)
        return pa.MapArray.from_arrays(pa.array(ends), keys, values).cast(t)
    if pat.is_list(t):
        return pa.ListArray.from_arrays(pa.array(ends), _values(t.value_type, items, rng)).cast(t)
    raise SchemaError(f"cannot make up values of type {t}")


def _lengths(n: int, rng: np.random.Generator) -> list[int]:
    lengths: list[int] = rng.integers(0, _MOST_ITEMS, n, endpoint=True).tolist()
    return lengths


def _decimals(t: pa.DataType, n: int, rng: np.random.Generator) -> pa.Array:
    """Decimals of at most 18 digits, so that the high half of their 16 bytes holds only the sign."""
    top = 10 ** min(t.precision, 18)
    low = rng.integers(-top + 1, top, n)
    halves = np.stack([low, low >> 63], axis=1).astype(np.int64)
    return pa.Array.from_buffers(t, n, [None, pa.py_buffer(halves.tobytes())])


STAND_ALONE = "frames_stand_alone"

_MODULE = "serde_lab.lab.checks.stand_alone"
_MOST_ROWS = 2048
# a process without an answer by then will never answer, however busy the machine is
_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Sent:
    """What one arm sends to the other process, by pickle."""

    strategy: str
    options: SerdeOptions
    schema: RecordSchema
    frames: pa.BinaryArray


@dataclass(frozen=True, slots=True)
class DecodedArm:
    """What the other process says of one arm: the rows, or why there are none.

    `bound`: it could load the strategy and bind it. `cpu_s`: what decoding took.
    """

    rows: pa.RecordBatch | None
    problem: str = ""
    bound: bool = True
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Proof:
    """The result for each arm whose frames were sent, and the reason for each arm that raised before."""

    results: dict[str, Check]
    raised: dict[str, str]


@dataclass(frozen=True, slots=True)
class EncodedSample:
    """Frames of one arm, the rows that they must decode to, and the CPU time of converting and encoding."""

    sent: Sent
    expected: pa.RecordBatch
    cpu_s: float


def frames_stand_alone(
    arms: Mapping[str, tuple[str, SerdeOptions]],
    schema: RecordSchema,
    keys: KeyGenerator,
    work: Path,
    rows: int,
    seed: int,
) -> Proof:
    """Check every arm; `arms` are strategies with their options, by arm name.

    `rows` is the number of records in a batch of the input; the sample has a similar size.
    """
    made_up = made_up_rows(schema, max(2, min(rows, _MOST_ROWS)), seed)
    enveloped = keys.envelop(made_up, NOWHERE)
    samples: dict[str, EncodedSample] = {}
    raised: dict[str, str] = {}
    for name, (subject, options) in arms.items():
        try:
            samples[name] = encoded(subject, options, schema, enveloped)
        except Exception as exc:  # a plug-in may raise anything
            raised[name] = f"{subject} cannot encode made-up rows: {reason_of(exc)}"
    answers = read_back({name: sample.sent for name, sample in samples.items()}, work)
    return Proof({n: _judged(sample, answers[n]) for n, sample in samples.items()}, raised)


def encoded(
    subject: str, options: SerdeOptions, schema: RecordSchema, enveloped: pa.RecordBatch
) -> EncodedSample:
    """Encode a batch as a task does. Raises whatever the strategy raises."""
    known = strategy(subject)
    # what a strategy changes of them does not travel with its frames
    bound = known.bind(*deepcopy((schema, options)))
    one_each = bound.options.rows_per_frame == 1
    targets = np.zeros(len(enveloped), np.int32)
    bounds = Bounds.each(targets) if one_each else Bounds.single(len(enveloped))
    begun_s = time.process_time()
    frames = bound.encode(bound.from_arrow(enveloped), bounds).frame
    cpu_s = time.process_time() - begun_s
    expected = enveloped
    if known.losses():
        # declared losses must be the same in every process
        expected = bound.decode(frames).to_arrow()
    return EncodedSample(Sent(subject, options, schema, frames), expected, cpu_s)


def _judged(sample: EncodedSample, answer: DecodedArm) -> Check:
    if answer.rows is None:
        return _failed(f"a separate process cannot decode the frames: {answer.problem}")
    difference = first_difference(answer.rows, sample.expected)
    if difference is not None:
        return _failed(f"a separate process decodes other rows: {difference}")
    frames, rows = len(sample.sent.frames), len(sample.expected)
    detail = f"a separate process decodes {rows:,} made-up rows from {frames:,} frames"
    return Check(STAND_ALONE, True, detail)


def _failed(detail: str) -> Check:
    return Check(STAND_ALONE, False, detail)


def read_back(
    sent: Mapping[str, Sent], work: Path, enclosure: isolation.Enclosure | None = None
) -> dict[str, DecodedArm]:
    """What another process decodes.

    If a strategy ends that process, a new one decodes the remaining arms. With an `enclosure` the process
    runs in namespaces and finds nothing else.
    """
    answers: dict[str, DecodedArm] = {}
    while left := [name for name in sent if name not in answers]:
        ended = _ask(sent, left, answers, work, enclosure)
        missing = [name for name in left if name not in answers]
        if missing:
            answers[missing[0]] = DecodedArm(None, ended)
    return answers


def _ask(
    sent: Mapping[str, Sent],
    names: Sequence[str],
    answers: dict[str, DecodedArm],
    work: Path,
    enclosure: isolation.Enclosure | None,
) -> str:
    """Start one process for `names` and add its results to `answers`; returns how it ended."""
    work.mkdir(parents=True, exist_ok=True)
    request, answer = work / "frames.pickle", work / "rows.pickle"
    request.write_bytes(pickle.dumps({name: sent[name] for name in names}))
    answer.unlink(missing_ok=True)
    # the other process must find the same strategies as this one, and the same version of the lab: not that
    # of the folder that it starts in (-P)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-m", _MODULE, str(request.resolve()), str(answer.resolve())]
    if enclosure is not None:
        command = enclosure.command(command, work)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
        ended = f"the process ended with status {done.returncode}"
        ended += _last_line(done.stderr)
    except subprocess.TimeoutExpired:
        ended = f"no answer after {_TIMEOUT_S} s"
    if answer.exists():
        with answer.open("rb") as file:
            answers.update((name, DecodedArm(*said)) for name, *said in _loaded(file))
    return ended


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return f": {lines[-1]}" if lines else ""


def _loaded(file: Any) -> Iterator[tuple[Any, ...]]:
    while True:
        try:
            yield pickle.load(file)
        except (EOFError, pickle.UnpicklingError):
            return


def decode_all(request: Path, answer: Path) -> None:
    """Decode every arm's frames in the other process; writes its name and the fields of its `DecodedArm`."""
    sent_by_arm: dict[str, Sent] = pickle.loads(request.read_bytes())
    with answer.open("wb") as file:
        for name, sent in sent_by_arm.items():
            rows, problem, bound, cpu_s = None, "", None, 0.0
            try:
                bound = strategy(sent.strategy).bind(sent.schema, sent.options)
                begun_s = time.process_time()
                records = bound.decode(sent.frames)
                cpu_s = time.process_time() - begun_s
                rows, problem = _read(records)
            except Exception as exc:  # what a plug-in raises is reported as its result
                problem = reason_of(exc)
            pickle.dump((name, rows, problem, bound is not None, cpu_s), file)
            file.flush()


def _read(records: Records) -> tuple[pa.RecordBatch | None, str]:
    """The rows of `records`; or None and why, if a file would get other rows than the records hold."""
    filed, whole = records.to_rows(), records.to_arrow()
    difference = first_difference(as_filed(whole, *filed), whole)
    if difference is None:
        return whole, ""
    return None, f"files get other rows than the records hold: {difference}"


if __name__ == "__main__":
    decode_all(Path(sys.argv[1]), Path(sys.argv[2]))
