"""The function that lets lineitem's rows share keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from serde_lab.inputs.random_choices import onto_a_third


def lineitem_keys(orders: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """l_orderkey and l_linenumber as TPC-H draws them: 8 keys of every 32, one to seven lines."""
    number = np.arange(orders, dtype=np.int64)
    keys = 1 + ((number >> 3) << 5 | number & 7)
    lines = np.random.default_rng(seed).integers(1, 8, orders)
    rows = np.repeat(keys, lines)
    first = np.repeat(np.cumsum(lines) - lines, lines)
    return rows, np.arange(len(rows)) - first + 1


def test_rows_have_a_third_as_many_keys_in_a_third_of_the_range() -> None:
    keys, lines = lineitem_keys(60_000)
    mapped = onto_a_third(pa.array(keys), int(keys.max()), seed=1).to_numpy()
    assert mapped.min() >= 1
    assert mapped.max() <= keys.max() / 3
    assert mapped.max() > 0.99 * keys.max() / 3
    different = len(np.unique(mapped * 8 + lines))
    assert 0.32 < different / len(keys) < 0.34
    # the lines of an order stay together
    assert len(np.unique(np.stack([keys, mapped]), axis=1)[0]) == len(np.unique(keys))


def test_the_seed_decides_and_nothing_else_does() -> None:
    keys = pa.array(np.arange(1, 5001))
    one = onto_a_third(keys, 5000, seed=1)
    assert one.equals(onto_a_third(keys, 5000, seed=1))
    assert not one.equals(onto_a_third(keys, 5000, seed=2))
    # piece by piece as at once
    pieces = [onto_a_third(keys.slice(at, 1000), 5000, seed=1) for at in range(0, 5000, 1000)]
    assert pa.concat_arrays(pieces).equals(one)


def test_the_values_are_those_of_every_machine() -> None:
    assert onto_a_third(pa.array([1, 2, 60_000_000]), 60_000_000, 1).to_pylist() == EXPECTED


def test_a_range_too_small_for_thirds_has_one_key() -> None:
    assert onto_a_third(pa.array([1, 5, 9]), 9, 1).to_pylist() == [1, 1, 1]


EXPECTED = [703_993, 522_565, 15_780_559]
