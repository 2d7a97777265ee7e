"""Events in every form: dicts, Arrow, pandas and JSON say the same, and mistakes have a place."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import math
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tamis
from tamis import _core
from tamis.language import Node
from tamis.testing import Event, matches, normalise, strategies

POSITION = ("position x", "position y")


@pytest.fixture(params=_core.simd_levels())
def simd_level(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _core.simd_level()
    _core.set_simd_level(request.param)
    yield request.param
    _core.set_simd_level(before)


def matcher_of(*predicates: str | Node, space: str = "plane") -> tamis.Matcher:
    """Subscriptions 0, 1, …"""
    matcher = tamis.Matcher(space=space)
    for idx, predicate in enumerate(predicates):
        matcher.subscribe(idx, predicate)
    return matcher


def found(result: tamis.Matches) -> list[set[Any]]:
    return [set(ids) for ids in result]


def answers(predicate: str, events: Any, **options: Any) -> list[bool]:
    """Which events satisfy the one predicate."""
    return [bool(ids) for ids in matcher_of(predicate).match_many(events, **options)]


# ── all encoders say the same ───────────────────────────────────────────────────────

# Events may hold all of these under one name; a flat column holds one of them.
ARROW_TYPES: dict[str, pa.DataType] = {
    "signed": pa.int64(),
    "unsigned": pa.uint64(),
    "float": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}
PANDAS_TYPES = {
    "signed": "Int64",
    "unsigned": "UInt64",
    "float": "float64",
    "string": "object",
    "boolean": "boolean",
}

Row = dict[str, Any]


def kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "signed" if value < 2**63 else "unsigned"
    return "float" if isinstance(value, float) else "string"


def plain_rows(events: list[Event]) -> list[Row]:
    """The attributes as bool, int, float and str; what is absent has no key."""
    rows = []
    for event in events:
        row = {name: normalise(value) for name, value in event.attributes.items()}
        rows.append({name: value for name, value in row.items() if value is not None})
    return rows


def has_position(event: Event) -> bool:
    return event.at is not None and not any(map(math.isnan, event.at))


def coordinates(events: list[Event]) -> dict[str, list[float | None]]:
    return {
        name: [event.at[axis] if has_position(event) and event.at else None for event in events]
        for axis, name in enumerate(POSITION)
    }


def of_one_type(rows: list[Row]) -> tuple[dict[str, str], list[Row]]:
    """The type of each name's first value, and the rows with values of those types alone."""
    kinds: dict[str, str] = {}
    for row in rows:
        for name, value in row.items():
            kinds.setdefault(name, kind_of(value))
    kept = [
        {name: value for name, value in row.items() if kind_of(value) == kinds[name]}
        for row in rows
    ]
    return kinds, kept


def map_table(rows: list[Row], events: list[Event], keys: pa.DataType) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for kind, arrow_type in ARROW_TYPES.items():
        maps = [
            [(name, value) for name, value in row.items() if kind_of(value) == kind] for row in rows
        ]
        # An empty map and a null say the same: nothing.
        columns[f"map of {kind}"] = pa.array(
            [entries if entries or idx % 2 else None for idx, entries in enumerate(maps)],
            pa.map_(keys, arrow_type),
        )
    return pa.table(columns | coordinates_as_arrow(events))


def coordinates_as_arrow(events: list[Event]) -> dict[str, pa.Array]:
    return {name: pa.array(values, pa.float64()) for name, values in coordinates(events).items()}


def flat_table(kinds: dict[str, str], rows: list[Row], events: list[Event]) -> pa.Table:
    columns = {
        name: pa.array([row.get(name) for row in rows], ARROW_TYPES[kind])
        for name, kind in kinds.items()
    }
    return pa.table(columns | coordinates_as_arrow(events))


def json_lines(rows: list[Row], events: list[Event], is_nested: bool, is_ascii: bool) -> str:
    lines = []
    for idx, row in enumerate(rows):
        fields: Row = {}
        for name, value in row.items():
            outer, dot, inner = name.partition(".")
            if dot and is_nested:
                fields.setdefault(outer, {})[inner] = value
            else:
                fields[name] = value
        fields |= {name: values[idx] for name, values in coordinates(events).items()}
        lines.append(json.dumps(fields, ensure_ascii=is_ascii, allow_nan=False))
    return "\n".join(lines)


def expected_ids(
    predicates: list[Node], rows: list[Row], events: list[Event], space: str
) -> list[set[int]]:
    return [
        {
            idx
            for idx, predicate in enumerate(predicates)
            if matches(predicate, row, event.at, space)
        }
        for row, event in zip(rows, events, strict=True)
    ]


@pytest.mark.parametrize("space", ["plane", "earth"])
def test_all_encoders_agree_with_the_oracle(simd_level: str, space: str) -> None:
    @given(strategies.scenes(space, max_predicates=5, max_events=4), st.booleans())
    def check(scene: tuple[list[Node], list[Event]], is_nested: bool) -> None:
        predicates, events = scene
        if space == "plane":  # infinite coordinates are numbers, and JSON has none
            events = [event for event in events if not event.at or max(map(abs, event.at)) < 1e300]
        rows = plain_rows(events)
        # A dot in a name and the same name nested would be the name twice.
        rows = [{name: value for name, value in row.items() if name != "data"} for row in rows]
        matcher = matcher_of(*predicates, space=space)

        def check_rows(form: Any, expected: list[set[int]]) -> None:
            assert found(matcher.match_many(form, position=POSITION)) == expected

        expected = expected_ids(predicates, rows, events, space)
        with_positions = [
            row | {name: values[idx] for name, values in coordinates(events).items()}
            for idx, row in enumerate(rows)
        ]
        check_rows(with_positions, expected)
        for row, event, ids in zip(rows, events, expected, strict=True):
            assert set(matcher.match(row, at=event.at)) == ids
        for keys in (pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())):
            if not pa.types.is_dictionary(keys):
                check_rows(map_table(rows, events, keys), expected)

        kinds, kept = of_one_type(rows)
        expected = expected_ids(predicates, kept, events, space)
        table = flat_table(kinds, kept, events)
        check_rows(table, expected)
        check_rows(table.to_batches()[0] if events else table, expected)
        encoded = {
            name: table[name].dictionary_encode() if kind == "string" else table[name]
            for name, kind in kinds.items()
        }
        check_rows(pa.table(encoded | coordinates_as_arrow(events)), expected)

        finite = [
            {name: value for name, value in row.items() if value == value and value not in INFINITE}
            for row in rows
        ]
        expected = expected_ids(predicates, finite, events, space)
        for is_ascii in (True, False):
            text = json_lines(finite, events, is_nested, is_ascii)
            assert found(matcher.match_json(text, position=POSITION)) == expected
            assert found(matcher.match_json(text.encode(), position=POSITION)) == expected

        numbers = [{name: value for name, value in row.items() if value == value} for row in kept]
        expected = expected_ids(predicates, numbers, events, space)  # NaN of pandas is absent
        frame = pd.DataFrame(
            {
                name: pd.Series([row.get(name) for row in numbers], dtype=PANDAS_TYPES[kind])
                for name, kind in kinds.items()
            }
            | coordinates(events)
        )
        check_rows(frame, expected)

    check()


INFINITE = (math.inf, -math.inf)


# ── Arrow: types ────────────────────────────────────────────────────────────────────

INTEGER_TYPES = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
]


def limits_of(kind: pa.DataType) -> tuple[int, int]:
    info = np.iinfo(kind.to_pandas_dtype())
    return int(info.min), int(info.max)


@pytest.mark.parametrize("kind", INTEGER_TYPES, ids=str)
def test_integers_of_every_width_are_exact_at_their_extremes(kind: pa.DataType) -> None:
    low, high = limits_of(kind)
    values = [low, low + 1, 0, 1, high - 1, high, None]
    table = pa.table({"x": pa.array(values, kind)})
    literals = [value for value in values if value is not None and value < 2**63]
    for literal in literals:
        tree = tamis.parse(f"x = {literal}")
        expected = [matches(tree, {"x": value}) for value in values]
        assert answers(f"x = {literal}", table) == expected
        assert answers(f"x = {literal}", table.to_pandas(integer_object_nulls=False)) == (
            expected
            if kind.bit_width < 64
            else [matches(tree, {"x": value}) for value in as_floats(values)]
        )
    above = f"x > {literals[-1]}"
    tree = tamis.parse(above)
    assert answers(above, table) == [matches(tree, {"x": value}) for value in values]


def as_floats(values: list[int | None]) -> list[float | None]:
    """What pandas makes of integers with a null among them."""
    return [None if value is None else float(value) for value in values]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_floats_of_every_width_are_exact_at_their_extremes(kind: pa.DataType) -> None:
    info = np.finfo(kind.to_pandas_dtype())
    values = [
        *(0.0, -0.0, 1.5, -2.0, float(info.max), float(info.min), float(info.tiny)),
        *(float(info.smallest_subnormal), -float(info.smallest_subnormal)),
        *(math.inf, -math.inf, math.nan, None),
    ]
    numpy_values = np.array([0 if v is None else v for v in values], kind.to_pandas_dtype())
    column = pa.array(numpy_values, kind, mask=np.array([value is None for value in values]))
    table = pa.table({"x": column})
    for text in (
        *("x = 0", "x = 1.5", "x < 0", f"x >= {float(info.max)!r}", f"x <= {float(info.min)!r}"),
        *(f"x = {float(info.smallest_subnormal)!r}", f"x < {float(info.tiny)!r}", "EXISTS x"),
        *("x IS NULL", "NOT x = 0", "x != 1", f"x > {float(info.max)!r}"),
    ):
        tree = tamis.parse(text)
        assert answers(text, table) == [matches(tree, {"x": value}) for value in values], text


def test_every_half_is_the_same_double() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    column = pa.array(halves, pa.float16())
    numbers = halves.astype(np.float64)
    for text, expected in (
        ("x > 0.333251953125", numbers > 0.333251953125),
        ("x = 5.960464477539063e-08", numbers == 2.0**-24),
        ("x >= 65504", numbers >= 65504),
        ("x < -0.00006103515625", numbers < -(2.0**-14)),
        ("x != 0", ~np.isnan(numbers) & (numbers != 0)),
    ):
        result = matcher_of(text).match_many(pa.table({"x": column}), output="count")
        assert (result.counts == expected).all()


def test_a_float_is_not_rounded_to_what_is_printed() -> None:
    table = pa.table({"x": pa.array([0.1], pa.float32())})
    assert answers("x = 0.1", table) == [False]
    assert answers("x = 0.10000000149011612", table) == [True]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Paris", "+02:00"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit_are_microseconds(unit: str, zone: str | None) -> None:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    seconds = [0, 1, -1, 1_794_736_800, -2_000_000_000, None]
    stored = [None if value is None else value * per_second for value in seconds]
    table = pa.table({"t": pa.array(stored, pa.int64()).cast(pa.timestamp(unit, zone))})
    rows = [{"t": None if value is None else value * 10**6} for value in seconds]
    for text in (
        *("t = 0", "t < 0", "t = -1000000", "EXISTS t", "t = TIMESTAMP '2026-11-15T10:00:00Z'"),
        *("t >= TIMESTAMP '1970-01-01T00:00:01Z'", "t = TIMESTAMP '1906-08-16T20:26:40Z'"),
    ):
        tree = tamis.parse(text)
        assert answers(text, table) == [matches(tree, row) for row in rows], text
    frame = table.to_pandas()
    assert answers("EXISTS t", frame) == [True] * 5 + [False]
    assert answers("t = -1000000", frame) == [False, False, True, False, False, False]


def test_nanoseconds_are_rounded_down() -> None:
    stored = [0, 1, 999, 1000, -1, -999, -1000, -1001, 2**63 - 1, -(2**63) + 1]
    table = pa.table({"t": pa.array(stored, pa.timestamp("ns"))})
    for micros in (0, 1, -1, -2, (2**63 - 1) // 1000, (-(2**63) + 1) // 1000):
        assert answers(f"t = {micros}", table) == [value // 1000 == micros for value in stored]


def test_timestamps_at_the_ends_of_64_bits() -> None:
    extremes = pa.table({"t": pa.array([2**63 - 1, -(2**63)], pa.timestamp("us"))})
    assert answers(f"t = {2**63 - 1}", extremes) == [True, False]
    assert answers(f"t = {-(2**63)}", extremes) == [False, True]
    largest = (2**63 - 1) // 10**6
    seconds = pa.table({"t": pa.array([largest, -largest], pa.timestamp("s"))})
    assert answers(f"t = {largest * 10**6}", seconds) == [True, False]
    for unit, value in (("s", largest + 1), ("s", -(2**63)), ("ms", 2**63 - 1)):
        table = pa.table({"t": pa.array([0, value], pa.timestamp(unit))})
        with pytest.raises(tamis.EventError, match="column 't', row 1"):
            matcher_of("t = 0").match_many(table)


def test_the_row_of_a_mistake_counts_through_all_chunks() -> None:
    chunks = [pa.array([0, 0, 0], pa.timestamp("s")), pa.array([0, 2**62], pa.timestamp("s"))]
    table = pa.table({"t": pa.chunked_array(chunks)})
    with pytest.raises(tamis.EventError, match="column 't', row 4"):
        matcher_of("t = 0").match_many(table)


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()], ids=str)
def test_dates_are_timestamps_at_midnight(kind: pa.DataType) -> None:
    day = datetime.date(2026, 11, 15)
    table = pa.table({"d": pa.array([day, datetime.date(1969, 12, 31), None], kind)})
    assert answers("d = TIMESTAMP '2026-11-15'", table) == [True, False, False]
    assert answers("d = -86400000000", table) == [False, True, False]


STRINGS = ["", "a", "é", "😀", "a longer string, beyond twelve bytes", "\0", "a\0b", None]


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.string(), pa.large_string(), pa.string_view()),
        *(pa.dictionary(index, pa.string()) for index in INTEGER_TYPES),
        *(pa.dictionary(pa.int32(), kind) for kind in (pa.large_string(), pa.string_view())),
    ],
    ids=str,
)
def test_strings_of_every_layout(simd_level: str, kind: pa.DataType) -> None:
    plain = pa.array(STRINGS * 20)
    if not pa.types.is_dictionary(kind):
        column = plain.cast(kind)
    else:
        encoded = plain.dictionary_encode()
        column = pa.DictionaryArray.from_arrays(
            encoded.indices.cast(kind.index_type), encoded.dictionary.cast(kind.value_type)
        )
    assert column.type == kind
    table = pa.table({"s": column})
    for text in ("s = ''", "s < 'b'", "s = '😀'", "s LIKE 'a%'", "s LIKE '_'", "s IS NULL"):
        tree = tamis.parse(text)
        expected = [matches(tree, {"s": value}) for value in STRINGS] * 20
        assert answers(text, table) == expected
        assert answers(text, table.slice(3, 50)) == expected[3:53]


def test_dictionaries_of_numbers_nulls_and_unused_values() -> None:
    dictionary = pa.array([5, None, 7, 9], pa.int64())
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None], pa.int8()), dictionary)
    assert answers("x = 5", pa.table({"x": column})) == [True, False, False, False]
    assert answers("x IS NULL", pa.table({"x": column})) == [False, True, False, True]


def test_a_huge_dictionary_of_which_little_is_used() -> None:
    dictionary = pa.array([f"v{n}" for n in range(50_000)])
    column = pa.DictionaryArray.from_arrays(pa.array([49_999, 0, None], pa.int32()), dictionary)
    assert answers("s = 'v49999'", pa.table({"s": column})) == [True, False, False]


def test_booleans_and_nulls() -> None:
    table = pa.table({"b": pa.array([True, False, None] * 30), "n": pa.nulls(90)})
    assert answers("b = TRUE", table) == [True, False, False] * 30
    assert answers("NOT b = TRUE", table) == [False, True, False] * 30
    assert answers("b = TRUE", table.slice(5, 70)) == ([True, False, False] * 30)[5:75]
    assert answers("n IS NULL", table) == [True] * 90
    assert answers("b = 1 OR b = 'TRUE'", table) == [False] * 90


REFUSED = {
    "decimal128": pa.array([decimal.Decimal("1.5")]),
    "decimal256": pa.array([decimal.Decimal("1.5")], pa.decimal256(40, 2)),
    "list": pa.array([[1]]),
    "large_list": pa.array([[1]], pa.large_list(pa.int64())),
    "fixed_size_list": pa.array([[1]], pa.list_(pa.int64(), 1)),
    "struct": pa.array([{"a": 1}]),
    "binary": pa.array([b"a"]),
    "fixed_size_binary": pa.array([b"a"], pa.binary(1)),
    "duration": pa.array([1], pa.duration("us")),
    "time": pa.array([1], pa.time64("us")),
    "map_of_lists": pa.array([[("a", [1])]], pa.map_(pa.string(), pa.list_(pa.int64()))),
    "map_of_ints": pa.array([[(1, 1)]], pa.map_(pa.int64(), pa.int64())),
    "map_of_decimals": pa.array(
        [[("a", decimal.Decimal(1))]], pa.map_(pa.string(), pa.decimal128(5, 2))
    ),
    "dictionary_of_decimals": pa.array([decimal.Decimal("1.5")]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("name", ["x", "nobody asks"])
def test_types_that_events_cannot_hold_are_refused_by_column_name(kind: str, name: str) -> None:
    table = pa.table({"y": [1], name: REFUSED[kind]})
    with pytest.raises(tamis.EventError, match=name):
        matcher_of("x = 1").match_many(table)


# ── Arrow: shapes ───────────────────────────────────────────────────────────────────


class OnlyStream:
    """Any library's table: it has the Arrow stream interface and nothing else."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class OnlyArray:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._batch.__arrow_c_array__(requested_schema)


def long_table(n_rows: int = 3000) -> pa.Table:
    return pa.table(
        {
            "n": pa.array([None if row % 7 == 0 else row for row in range(n_rows)], pa.int32()),
            "s": pa.array([None if row % 5 == 0 else f"s{row % 11}" for row in range(n_rows)]),
            "b": pa.array([row % 3 == 0 for row in range(n_rows)]),
            "m": pa.array(
                [
                    None if row % 13 == 0 else [(f"k{row % 4}", row), ("other", None)]
                    for row in range(n_rows)
                ],
                pa.map_(pa.string(), pa.int64()),
            ),
        }
    )


LONG_PREDICATES = (
    *("n >= 1000 AND n < 2000", "s = 's3' AND b = TRUE", "k1 > 500", "k2 IS NULL AND EXISTS k3"),
    *("n IS NULL OR s IS NULL", "EXISTS other", "s LIKE '%1%' AND k0 < 100"),
)


def long_answers(table: pa.Table) -> list[set[int]]:
    trees = [tamis.parse(text) for text in LONG_PREDICATES]
    rows = [{**row, **dict(row.pop("m") or [])} for row in table.to_pylist()]
    return [{idx for idx, tree in enumerate(trees) if matches(tree, row)} for row in rows]


LONG = long_table()
LONG_EXPECTED = long_answers(LONG)


@pytest.mark.parametrize(
    "form",
    [
        lambda table: table,
        lambda table: table.combine_chunks().to_batches()[0],
        lambda table: pa.Table.from_batches(table.to_batches(max_chunksize=7)),
        lambda table: pa.Table.from_batches(table.to_batches(max_chunksize=1025)),
        lambda table: pa.RecordBatchReader.from_batches(table.schema, table.to_batches(100)),
        OnlyStream,
        lambda table: OnlyArray(table.combine_chunks().to_batches()[0]),
    ],
    ids=["table", "batch", "chunks-of-7", "chunks-of-1025", "reader", "stream", "array"],
)
def test_tables_in_every_shape(simd_level: str, form: Any) -> None:
    assert found(matcher_of(*LONG_PREDICATES).match_many(form(LONG))) == LONG_EXPECTED


@pytest.mark.parametrize(("begin", "length"), [(0, 10), (1, 1), (3, 2000), (1023, 1026), (2999, 1)])
def test_slices_begin_at_their_offset(begin: int, length: int) -> None:
    matcher = matcher_of(*LONG_PREDICATES)
    expected = LONG_EXPECTED[begin : begin + length]
    assert found(matcher.match_many(LONG.slice(begin, length))) == expected
    batch = LONG.combine_chunks().to_batches()[0].slice(begin, length)
    assert found(matcher.match_many(batch)) == expected
    struct = pa.StructArray.from_arrays(batch.columns, batch.schema.names)
    assert found(matcher.match_many(OnlyArray(struct))) == expected
    assert found(matcher.match_many(batch.slice(0, 0))) == []


def test_chunks_with_different_boundaries() -> None:
    table = pa.table(
        {
            "a": pa.chunked_array([[1, 2, 3], [], [4]], pa.int64()),
            "b": pa.chunked_array([["x"], ["y", "z", "w"]]),
        }
    )
    matcher = matcher_of("a = 3 AND b = 'z'", "a = 4 AND b = 'w'", "a = 1 AND b = 'x'")
    assert found(matcher.match_many(table)) == [{2}, set(), {0}, {1}]


def test_tables_without_rows_or_columns() -> None:
    matcher = matcher_of("TRUE", "x = 1")
    for events in (
        pa.table({}),
        pa.table({"x": pa.array([], pa.int64())}),
        pa.table({"x": pa.array([1])}).slice(0, 0),
        pa.record_batch({"x": pa.array([], pa.int64())}),
        pa.table({"x": pa.chunked_array([], pa.int64())}),
        pd.DataFrame(),
        pd.DataFrame({"x": []}),
        [],
        iter([]),
    ):
        result = matcher.match_many(events)
        assert len(result) == 0
        assert result.offsets.tolist() == [0]
    assert found(matcher.match_many(pd.DataFrame(index=range(3)))) == [{0}] * 3
    assert found(matcher.match_many(pa.table({"y": [1, 2]}))) == [{0}] * 2
    assert found(matcher.match_many([{}, {}])) == [{0}] * 2


class OddName(str):
    """A name that a dict holds beside another of the same text."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return 1


def test_an_attribute_may_not_come_twice_from_a_dict() -> None:
    event = {OddName("x"): 1, "x": 2}
    m = matcher_of("x = 1")
    for call in (m.match, lambda event: m.match_many([event])):
        with pytest.raises(tamis.EventError, match="attribute 'x' must come once in an event, not"):
            call(event)
    assert answers("y = 1", [event]) == [False]  # nobody asks for x
    assert answers("x = 1", [{OddName("x"): 1}]) == [True]


def test_a_column_may_not_stand_twice() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(tamis.EventError, match="'x'"):
        matcher_of("x = 1").match_many(table)
    frame = pd.DataFrame([[1, 2]], columns=["x", "x"])
    with pytest.raises(tamis.EventError, match="'x'"):
        matcher_of("x = 1").match_many(frame)


def test_an_attribute_may_not_come_from_two_columns_or_twice_from_a_map() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    with_flat = pa.table({"x": [1, 1], "m": pa.array([[("y", 1)], [("x", 2)]], kind)})
    with pytest.raises(tamis.EventError, match="'x'"):
        matcher_of("x = 1").match_many(with_flat)
    twice = pa.table({"m": pa.array([[("y", 1)], [("x", 1), ("x", 2)]], kind)})
    with pytest.raises(tamis.EventError, match=r"row 1.*'x'"):
        matcher_of("x = 1").match_many(twice)
    assert answers("y = 1", twice) == [True, False]  # nobody asks for x
    two_maps = pa.table({"m": pa.array([[("x", 1)]], kind), "n": pa.array([[("x", 1)]], kind)})
    with pytest.raises(tamis.EventError, match="'x'"):
        matcher_of("x = 1").match_many(two_maps)


def test_a_null_in_a_column_leaves_the_name_to_a_map() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    table = pa.table({"x": pa.array([None, 1]), "m": pa.array([[("x", 1)], []], kind)})
    assert answers("x = 1", table) == [True, True]


def test_keys_of_maps_may_be_long_short_and_of_any_layout() -> None:
    names = ["", "a", "ab", "abc", "abcdefgh", "abcdefghijklmnop", "n" * 17, "é" * 40]
    predicates = [f'"{name}" = 1' for name in names if name]
    entries = [[(name, 1)] for name in names]
    for keys in (pa.string(), pa.large_string()):
        table = pa.table({"m": pa.array(entries, pa.map_(keys, pa.int8()))})
        expected = [set(), *({idx} for idx in range(len(predicates)))]
        assert found(matcher_of(*predicates).match_many(table)) == expected


# ── missing values ──────────────────────────────────────────────────────────────────


def test_nan_of_arrow_is_a_value_and_nan_of_pandas_is_absent() -> None:
    values = [1.0, math.nan, None]
    table = pa.table({"x": pa.array(values, pa.float64())})
    assert answers("EXISTS x", table) == [True, True, False]
    assert answers("EXISTS x", table.to_pandas()) == [True, False, False]
    assert answers("EXISTS x", [{"x": value} for value in values]) == [True, True, False]
    assert answers("x != 5", table) == [True, False, False]


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([5.0, math.nan]),
        pd.Series([5, None], dtype="Int64"),
        pd.Series([5.0, None], dtype="Float64"),
        pd.Series([5, None], dtype=object),
        pd.Series([5, pd.NA], dtype=object),
        pd.Series([5, None], dtype="int64[pyarrow]"),
        pd.Series([5, None], dtype="category"),
    ],
    ids=lambda column: str(column.dtype),
)
def test_missing_numbers_of_pandas_are_absent(column: pd.Series) -> None:
    frame = pd.DataFrame({"x": column})
    assert answers("x = 5", frame) == [True, False]
    assert answers("x IS NULL", frame) == [False, True]


@pytest.mark.parametrize("dtype", ["object", "string", "category", "string[pyarrow]"])
def test_strings_of_pandas(dtype: str) -> None:
    frame = pd.DataFrame({"s": pd.Series(["a", None, "é"], dtype=dtype)})
    assert answers("s = 'é'", frame) == [False, False, True]
    assert answers("s IS NULL", frame) == [False, True, False]


def test_times_and_booleans_of_pandas() -> None:
    times = pd.to_datetime(["2026-11-15T10:00:00", None]).to_series()
    for column in (times, times.dt.tz_localize("UTC"), times.dt.as_unit("ms")):
        frame = pd.DataFrame({"t": column})
        assert answers("t = TIMESTAMP '2026-11-15T10:00:00Z'", frame) == [True, False]
        assert answers("t IS NULL", frame) == [False, True]
    local = pd.DataFrame({"t": times.dt.tz_localize("Europe/Paris")})
    assert answers("t = TIMESTAMP '2026-11-15T09:00:00Z'", local) == [True, False]
    frame = pd.DataFrame({"b": pd.Series([True, None], dtype="boolean")})
    assert answers("b = TRUE", frame) == [True, False]
    assert answers("b = TRUE", pd.DataFrame({"b": [True, False]})) == [True, False]


def test_the_index_of_pandas_is_no_attribute() -> None:
    frame = pd.DataFrame({"x": [1, 2]}, index=pd.Index([7, 8], name="i"))
    assert answers("i IS NULL", frame) == [True, True]
    assert answers("x = 2", frame[frame.x == 2]) == [True]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"x": [1, "a"]}, dtype=object), "'x'"),
        (pd.DataFrame({"x": [decimal.Decimal(1)]}), "'x'"),
        (pd.DataFrame({"x": [[1]]}), "'x'"),
        (pd.DataFrame({"x": [pd.Timedelta(1)]}), "'x'"),
        (pd.DataFrame({"x": [object()]}), "'x'"),
        (pd.DataFrame({5: [1]}), "5"),
    ],
)
def test_frames_that_cannot_be_events_are_refused_by_column(
    frame: pd.DataFrame, message: str
) -> None:
    with pytest.raises(tamis.EventError, match=message):
        matcher_of("x = 1").match_many(frame)


def test_a_series_is_no_table() -> None:
    with pytest.raises(tamis.ArgumentTypeError, match="DataFrame"):
        matcher_of("x = 1").match_many(pd.Series([1]))


@pytest.mark.parametrize("value", [None, pd.NA, pd.NaT, np.datetime64("NaT")], ids=repr)
def test_every_way_to_say_missing_is_absent_in_a_dict(value: object) -> None:
    assert matcher_of("x IS NULL").match({"x": value}) == [0]
    assert matcher_of("EXISTS x").match({"x": value}) == []


# ── dicts ───────────────────────────────────────────────────────────────────────────


class Colour(str, enum.Enum):  # noqa: UP042 (the kind whose str() is its name)
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Word(str):
    __slots__ = ()


class Loud(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "LOUD"


class Count(int):
    pass


class Share(float):
    pass


@pytest.mark.parametrize(
    ("value", "predicate"),
    [
        (np.int8(-128), "x = -128"),
        (np.uint64(2**64 - 1), f"x > {2**63 - 1}"),
        (np.float16(0.5), "x = 0.5"),
        (np.float32(0.1), "x = 0.10000000149011612"),
        (np.float64(0.1), "x = 0.1"),
        (np.bool_(True), "x = TRUE"),
        (np.str_("é"), "x = 'é'"),
        (Count(5), "x = 5"),
        (Share(0.5), "x = 0.5"),
        (Word("a"), "x = 'a'"),
        (Loud("quiet"), "x = 'quiet'"),
        (Colour.RED, "x = 'red'"),
        (Level.HIGH, "x = 3"),
        (True, "x = TRUE"),
        (2**64 - 1, f"x > {2**63 - 1}"),
        (-(2**63), f"x = {-(2**63)}"),
        (pd.Timestamp("2026-11-15T10:00:00Z"), "x = TIMESTAMP '2026-11-15T10:00:00Z'"),
        (datetime.datetime(2026, 11, 15, 10), "x = TIMESTAMP '2026-11-15T10:00:00Z'"),
        (
            datetime.datetime(
                2026, 11, 15, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2))
            ),
            "x = TIMESTAMP '2026-11-15T10:00:00Z'",
        ),
        (datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), "x = -1"),
        (datetime.datetime.max, "x = TIMESTAMP '9999-12-31T23:59:59.999999'"),
        (datetime.datetime.min, "x = TIMESTAMP '0001-01-01'"),
        (pa.scalar(5), "x = 5"),
        (pa.scalar("a"), "x = 'a'"),
    ],
    ids=repr,
)
def test_values_of_other_types_mean_what_they_say(value: object, predicate: str) -> None:
    assert matcher_of(predicate).match({"x": value}) == [0]
    assert answers(predicate, [{"x": value}]) == [True]


def test_booleans_are_no_numbers_and_numbers_no_booleans() -> None:
    matcher = matcher_of("x = 1", "x = TRUE", "x = 0", "x = FALSE", "x IN (0, 1)", "x >= 0")
    assert matcher.match({"x": True}) == [1]
    assert matcher.match({"x": np.bool_(False)}) == [3]
    assert set(matcher.match({"x": 1})) == {0, 4, 5}
    assert set(matcher.match({"x": 0.0})) == {2, 4, 5}


@pytest.mark.parametrize(
    "value",
    [
        *(decimal.Decimal(1), [1], (1,), {"a": 1}, {1}, b"a", bytearray(b"a"), 1j, object()),
        *(2**64, -(2**63) - 1, Count(2**64), np.timedelta64(1), np.complex128(1), "\ud800"),
        *(datetime.timedelta(1), datetime.time(1), range(3), np.array([1, 2])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_that_are_none_are_refused_by_name(value: object) -> None:
    matcher = matcher_of("x = 1")
    with pytest.raises(tamis.EventError, match="'x'"):
        matcher.match({"x": value})
    with pytest.raises(tamis.EventError, match=r"event 1.*'x'"):
        matcher.match_many([{"x": 1}, {"x": value}])
    assert matcher.match({"x": 1, "nobody asks": value}) == [0]


def test_a_refused_decimal_says_a_way_out() -> None:
    with pytest.raises(tamis.EventError, match="float"):
        matcher_of("x = 1").match({"x": decimal.Decimal(1)})


@pytest.mark.parametrize("name", [1, None, b"x", ("x",), "\ud800"], ids=repr)
def test_names_that_are_none_are_refused(name: object) -> None:
    with pytest.raises(tamis.EventError, match="name"):
        matcher_of("x = 1").match({"x": 1, name: 1})


@pytest.mark.parametrize("event", [None, 5, "x", [("x", 1)], b"{}"], ids=repr)
def test_an_event_must_be_a_dict(event: object) -> None:
    with pytest.raises(tamis.ArgumentTypeError, match="dict"):
        matcher_of("x = 1").match(event)
    with pytest.raises(tamis.ArgumentTypeError, match="event 0"):
        matcher_of("x = 1").match_many([event])


@pytest.mark.parametrize("events", [None, 5, "text", b"{}", {"x": 1}], ids=repr)
def test_events_must_be_a_table_or_a_list(events: object) -> None:
    with pytest.raises(tamis.ArgumentTypeError, match="events must be"):
        matcher_of("x = 1").match_many(events)


def test_events_may_be_any_iterable_of_mappings() -> None:
    rows = [{"x": 1}, {"x": 2}]
    matcher = matcher_of("x = 1")
    for events in (rows, tuple(rows), iter(rows), (dict(row) for row in rows), np.array(rows)):
        assert found(matcher.match_many(events)) == [{0}, set()]
    assert found(matcher.match_many([MappingProxyType(row) for row in rows])) == [{0}, set()]


def test_strings_of_a_batch_outlive_the_events() -> None:
    matcher = matcher_of("s = 'a string that is longer than any small buffer'")
    text = "a string that is longer "
    batches = [
        matcher.encode([{"s": text + "than any small buffer"} for _ in range(50)]),
        matcher.encode(pa.table({"s": [text + "than any small buffer"] * 50})),
        matcher.encode(
            pa.table({"s": pa.array([text + "than any small buffer"] * 50).dictionary_encode()})
        ),
    ]
    junk = [bytes(1000) for _ in range(1000)]
    for batch in batches:
        assert matcher.match_many(batch, output="count").counts.tolist() == [1] * 50
    del junk


# ── positions ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "kind", [*INTEGER_TYPES, pa.float16(), pa.float32(), pa.float64()], ids=str
)
def test_position_columns_may_be_of_any_number_type(kind: pa.DataType) -> None:
    zero = np.array([0, 3, 5, 0], kind.to_pandas_dtype())
    column = pa.array(zero, kind, mask=np.array([False, False, False, True]))
    table = pa.table({"x": column, "y": pa.array(zero, kind)})
    assert answers("NEAR(0, 0, 4.5)", table, position=("x", "y")) == [True, True, False, False]
    assert answers("NOT NEAR(0, 0, 4.5)", table, position=("x", "y")) == [
        *(False, False, True, False)
    ]


def test_half_a_position_is_none() -> None:
    rows = [(0.0, 0.0), (None, 0.0), (0.0, None), (math.nan, 0.0), (0.0, math.nan), (None, None)]
    dicts = [{"x": x, "y": y} for x, y in rows]
    table = pa.table({"x": [x for x, _ in rows], "y": [y for _, y in rows]})
    lines = "\n".join(
        json.dumps({"x": x if x == x else None, "y": y if y == y else None}) for x, y in rows
    )
    for text in ("NEAR(0, 0, 1)", "NOT NEAR(9, 9, 1)"):
        for events in (dicts, table, table.to_pandas()):
            assert answers(text, events, position=("x", "y")) == [True] + [False] * 5
        result = matcher_of(text).match_json(lines, position=("x", "y"))
        assert [bool(ids) for ids in result] == [True] + [False] * 5


def test_a_position_is_an_attribute_too() -> None:
    rows = [{"x": 1, "y": 2}]
    for events in (rows, pa.table({"x": [1], "y": [2]}), pd.DataFrame(rows)):
        assert answers("x = 1 AND NEAR(1, 2, 0)", events, position=("x", "y")) == [True]
    result = matcher_of("x = 1 AND NEAR(1, 2, 0)").match_json('{"x":1,"y":2}', position=("x", "y"))
    assert result.to_ids(0) == [0]


def test_without_position_columns_events_have_no_position() -> None:
    assert answers("NEAR(0, 0, 9) OR NOT NEAR(0, 0, 9)", [{"x": 0, "y": 0}]) == [False]
    assert answers("NEAR(0, 0, 9)", [{"z": 0}], position=("x", "y")) == [False]


@pytest.mark.parametrize(
    "column",
    [
        *(pa.array(["0"]), pa.array([True]), pa.array([0], pa.timestamp("us"))),
        *(pa.array([[0]]), pa.array([0], pa.date32()), pa.array(["0"]).dictionary_encode()),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    ],
    ids=lambda column: str(column.type),
)
def test_position_columns_of_other_types_are_refused_by_name(column: pa.Array) -> None:
    table = pa.table({"left": column, "up": [0.0]})
    with pytest.raises(tamis.EventError, match="left"):
        matcher_of("NEAR(0, 0, 1)").match_many(table, position=("left", "up"))


@pytest.mark.parametrize("value", ["0", True, [0], {}, b"0"], ids=repr)
def test_positions_of_other_types_are_refused_in_dicts_and_json(value: Any) -> None:
    matcher = matcher_of("NEAR(0, 0, 1)")
    with pytest.raises(tamis.EventError, match=r"event 1.*number"):
        matcher.match_many([{"x": 0, "y": 0}, {"x": value, "y": 0}], position=("x", "y"))
    if not isinstance(value, bytes):
        with pytest.raises(tamis.EventError, match=r"line 1.*x.*number"):
            matcher.match_json(json.dumps({"x": value, "y": 0}), position=("x", "y"))


def test_a_position_column_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(tamis.EventError, match=r"'north'.*'x'"):
        matcher_of("x = 1").match_many(pa.table({"x": [1]}), position=("x", "north"))


@pytest.mark.parametrize("position", ["xy", ("x",), ("x", "y", "z"), ("x", 1), 5, {"x", "y"}])
def test_position_must_be_two_names(position: Any) -> None:
    matcher = matcher_of("x = 1")
    for events in ([{"x": 1}], pa.table({"x": [1]})):
        with pytest.raises(tamis.ArgumentTypeError, match="position"):
            matcher.match_many(events, position=position)
    with pytest.raises(tamis.ArgumentTypeError, match="position"):
        matcher.match_json("{}", position=position)


@pytest.mark.parametrize("at", ["xy", (1,), (1, 2, 3), 5, {1, 2}, {"x": 1, "y": 2}], ids=repr)
def test_at_must_be_a_pair(at: Any) -> None:
    with pytest.raises(tamis.ArgumentTypeError, match="at must be"):
        matcher_of("x = 1").match({"x": 1}, at=at)


@pytest.mark.parametrize("at", [("1", 2), (1, True), (1, [2]), (1, b"2"), (1j, 2)], ids=repr)
def test_at_must_hold_numbers(at: Any) -> None:
    with pytest.raises(tamis.EventError, match="number"):
        matcher_of("x = 1").match({"x": 1}, at=at)


@pytest.mark.parametrize("at", [(0, 0), [0.0, 0.0], np.zeros(2), (np.float32(0), np.int8(0))])
def test_at_may_be_any_pair_of_numbers(at: Any) -> None:
    assert matcher_of("NEAR(0, 0, 1)").match({}, at=at) == [0]


@pytest.mark.parametrize(
    ("x", "y"), [(360.1, 0), (-180.1, 0), (0, 90.1), (0, -90.1), (math.inf, 0), (0, -math.inf)]
)
def test_places_off_the_earth_are_refused(x: float, y: float) -> None:
    matcher = matcher_of("NEAR(0, 0, 1000)", space="earth")
    with pytest.raises(tamis.EventError, match="longitude"):
        matcher.match({}, at=(x, y))
    for events in ([{"x": 0, "y": 0}, {"x": x, "y": y}], pa.table({"x": [0, x], "y": [0, y]})):
        with pytest.raises(tamis.EventError, match="event 1"):
            matcher.match_many(events, position=("x", "y"))
    if math.isfinite(x) and math.isfinite(y):
        with pytest.raises(tamis.LanguageError, match="longitude"):
            matcher.subscribe(1, f"NEAR({x}, {y}, 1)")
        assert matcher_of(f"NEAR({x}, {y}, 1)").match({}, at=(x, y)) == [0]  # in the plane


def test_the_edges_of_the_map_are_places() -> None:
    matcher = matcher_of("NEAR(180, 0, 1000)", "NEAR(0, 90, 1000)", space="earth")
    for at in ((180, 0), (-180, 0)):
        assert matcher.match({}, at=at) == [0]
    for longitude in (-180, 0, 77, 360):
        assert matcher.match({}, at=(longitude, 90)) == [1]
    assert matcher.match({}, at=(360, 0)) == []


# ── JSON lines ──────────────────────────────────────────────────────────────────────


def test_json_escapes_mean_their_characters(simd_level: str) -> None:
    text = r'{"s":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\u0000"}'
    matcher = tamis.Matcher()
    matcher.subscribe(0, tamis.language.Compare("s", "=", '"\\/\b\f\n\r\té😀\0'))
    assert matcher.match_json(text).to_ids(0) == [0]
    matcher.subscribe(1, tamis.language.Compare("é\n", "=", 1))
    assert matcher.match_json(r'{"\u00e9\n":1}').to_ids(0) == [1]


@given(st.text(max_size=80))
def test_any_string_comes_through_json(text: str) -> None:
    if any("\ud800" <= character <= "\udfff" for character in text):
        return
    matcher = tamis.Matcher()
    matcher.subscribe(0, tamis.language.Compare("s", "=", text))
    for is_ascii in (True, False):
        line = json.dumps({"s": text}, ensure_ascii=is_ascii)
        assert matcher.match_json(line).to_ids(0) == [0]


def test_nested_objects_are_outer_dot_inner() -> None:
    matcher = matcher_of("a.b = 1", "a.b.c = 1", '"a.b.c" = 1 AND EXISTS d', "a.c = 'x'")
    text = '{"a":{"b":{"c":1}},"d":0}\n{"a":{"b":1}}\n{"a.b":1}\n{"a":{"b.c":1}}\n{"a.b":{"c":1}}'
    text += '\n{"a":{"c":"x","d":{"e":[1,{"f":2}]}}}\n{"a":{}}\n{"a":[{"b":1}]}\n{"a":null}'
    single = matcher_of("a.b.c = 1", "a.c = 'x'")
    assert found(single.match_json(text)) == [
        *({0}, set(), set(), {0}, {0}, {1}, set(), set(), set())
    ]
    with pytest.raises(tamis.EventError, match=r"line 1.*a\.b"):
        matcher.match_json('{"a":{"b":{"c":1}}}')  # a.b is asked for and is an object


def test_only_attributes_that_some_subscription_mentions_are_decoded() -> None:
    matcher = matcher_of("x = 1")
    odd = '"y":[1,{"z":2}],"huge":1e999,"big":' + "9" * 50 + ',"y":2,"y":3,"deep":{"x":5}'
    result = matcher.match_json('{"x":1,' + odd + "}")
    assert result.to_ids(0) == [0]
    batch = matcher.encode([{"x": 1, "y": 2, "z": 3}])
    assert batch.n_values == 1
    assert matcher.encode(pa.table({"x": [1], "y": [2]})).n_values == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"x":1,"x":2}', "twice"),
        ('{"x":1,"y":2,"x":1}', "twice"),
        (r'{"x":1,"\u0078":2}', "twice"),
        ('{"a":{"b":1},"a.b":2}', "twice"),
        ('{"a":{"b":1},"a":{"b":2}}', "twice"),
        ('{"x":null,"x":2}', "twice"),
        ('{"x":[1]}', "array"),
        ('{"x":{"y":1}}', "object"),
        ('{"x":18446744073709551616}', "64 bits"),
        ('{"x":-9223372036854775809}', "64 bits"),
        ('{"x":1e400}', "range"),
        ('{"x":01}', ""),
        ('{"x":+1}', ""),
        ('{"x":.5}', ""),
        ('{"x":1.}', ""),
        ('{"x":1e}', ""),
        ('{"x":NaN}', ""),
        ('{"x":Infinity}', ""),
        ('{"x":nul}', ""),
        ('{"x":True}', ""),
        ("{'x':1}", ""),
        ('{"x":1,}', ""),
        ('{"x" 1}', ""),
        ('{"x":1', ""),
        ('{"x":1}}', ""),
        ('{"x":1} {"x":2}', ""),
        ('{"x":"a', ""),
        ('{"x":"a\tb"}', ""),
        (r'{"x":"\x"}', ""),
        (r'{"x":"\u12"}', ""),
        (r'{"x":"\ud800"}', "surrogate"),
        (r'{"x":"\ude00\ud83d"}', "surrogate"),
        (r'{"y":"\ud800a"}', "surrogate"),
        ("[]", ""),
        ("1", ""),
        ("null", ""),
        ("{", ""),
        ('{"y":' + "[" * 200 + "]" * 200 + "}", "deep"),
        ('{"y":' * 200 + "1" + "}" * 200, "deep"),
    ],
)
def test_bad_lines_are_reported_with_their_number_and_the_rest_still_matches(
    simd_level: str, line: str, message: str
) -> None:
    matcher = matcher_of("x = 1", "a.b = 1")
    text = f'{{"x":1}}\n\n{line}\n{{"a":{{"b":1}},"x":1}}\n{{"x":2}}'
    with pytest.raises(tamis.EventError, match=f"line 3, .*{message}"):
        matcher.match_json(text)
    result = matcher.match_json(text, on_error="skip")
    assert found(result) == [{0}, {0, 1}, set()]
    assert result.lines is not None
    assert result.lines.tolist() == [1, 4, 5]
    assert result.n_errors == 1
    ((number, reason),) = result.errors
    assert number == 3
    assert message in reason


@pytest.mark.parametrize(
    "bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\x80"]
)
@pytest.mark.parametrize("where", ["value", "key", "skipped", "nested"])
def test_bad_utf8_is_a_bad_line(simd_level: str, bad: bytes, where: str) -> None:
    line = {
        "value": b'{"x":"' + bad + b'"}',
        "key": b'{"x":1,"' + bad + b'":1}',
        "skipped": b'{"x":1,"y":"' + b"a" * 70 + bad + b'"}',
        "nested": b'{"x":1,"y":{"z":["' + bad + b'"]}}',
    }[where]
    text = b'{"x":1}\n' + line + b'\n{"x":1}\n'
    matcher = matcher_of("x = 1")
    with pytest.raises(tamis.EventError, match="line 2"):
        matcher.match_json(text)
    result = matcher.match_json(text, on_error="skip")
    assert found(result) == [{0}, {0}]
    assert [number for number, _ in result.errors] == [2]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\n\n", "\n \t \n", "\r\n\r\n"])
@pytest.mark.parametrize("has_last", [True, False])
def test_lines_may_end_in_any_way(ending: str, has_last: bool) -> None:
    text = ending.join(['{"x":1}', '{"x":2}', ' { "x" : 1 } ']) + ending * has_last
    assert found(matcher_of("x = 1").match_json(text)) == [{0}, set(), {0}]
    assert found(matcher_of("x = 1").match_json("\ufeff" + text)) == [{0}, set(), {0}]
    assert found(matcher_of("x = 1").match_json(bytearray(text.encode()))) == [{0}, set(), {0}]


@pytest.mark.parametrize("text", ["", "\n", "\n\n", "  \n", "\ufeff", "\ufeff\n", b""])
def test_no_lines_are_no_events(text: str | bytes) -> None:
    result = matcher_of("TRUE").match_json(text)
    assert len(result) == 0
    assert result.lines is not None
    assert result.lines.tolist() == []


def test_a_byte_order_mark_further_down_is_a_bad_line() -> None:
    result = matcher_of("x = 1").match_json('{"x":1}\n\ufeff{"x":1}', on_error="skip")
    assert [number for number, _ in result.errors] == [2]


@pytest.mark.parametrize(
    ("number", "predicate"),
    [
        ("18446744073709551615", f"x > {2**63 - 1}"),
        ("9223372036854775808", f"x > {2**63 - 1}"),
        ("9223372036854775807", f"x = {2**63 - 1}"),
        ("-9223372036854775808", f"x = {-(2**63)}"),
        ("9007199254740993", f"x = {2**53 + 1}"),
        ("9007199254740993.0", f"x = {2**53}"),
        ("-0", "x = 0"),
        ("-0.0", "x = 0"),
        ("1E2", "x = 100"),
        ("100e-2", "x = 1"),
        ("0.1", "x = 0.1"),
        ("1e-400", "x = 0"),
        ("0e999", "x = 0"),
        ("123456789012345678901234567890.5", "x = 123456789012345678901234567890.5"),
        ("2.2250738585072011e-308", "x = 2.2250738585072011e-308"),
        ("0." + "0" * 400 + "1e401", "x = 1"),
        ("1" + "0" * 300 + "e-300", "x = 1"),
    ],
)
def test_numbers_of_json_are_exact(number: str, predicate: str) -> None:
    assert matcher_of(predicate).match_json(f'{{"x":{number}}}').to_ids(0) == [0]


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**63), 2**63 - 1))
def test_numbers_of_json_are_those_of_python(number: float, integer: int) -> None:
    matcher = tamis.Matcher()
    matcher.subscribe(0, tamis.language.Compare("x", "=", number))
    matcher.subscribe(1, tamis.language.Compare("y", "=", integer))
    for text in (json.dumps(number), f"{number:.25e}", f"{number:.17g}"):
        line = f'{{"x":{text},"y":{integer}}}'
        assert sorted(matcher.match_json(line).to_ids(0)) == [0, 1]


def test_keys_that_change_places_and_share_beginnings() -> None:
    matcher = matcher_of("a = 1 AND ab = 2", "abc = 3")
    lines = ['{"a":1,"ab":2}', '{"ab":2,"a":1}', '{"abc":3}', '{"a":1,"abc":3,"ab":2}', '{"":1}']
    expected = [{0}, {0}, {1}, {0, 1}, set()]
    assert found(matcher.match_json("\n".join(lines * 5))) == expected * 5


def test_many_bad_lines_are_counted_and_the_first_kept() -> None:
    text = '{"x":\n' * 1500 + '{"x":1}'
    result = matcher_of("x = 1").match_json(text, on_error="skip")
    assert result.n_errors == 1500
    assert [number for number, _ in result.errors] == list(range(1, len(result.errors) + 1))
    assert 100 <= len(result.errors) <= 1500
    assert found(result) == [{0}]
    assert result.lines is not None
    assert result.lines.tolist() == [1501]


@pytest.mark.parametrize("lines", [5, None, ["{}"], {"x": 1}], ids=repr)
def test_json_lines_must_be_text_or_bytes(lines: Any) -> None:
    with pytest.raises(tamis.ArgumentTypeError, match="JSON lines"):
        matcher_of("x = 1").match_json(lines)


def test_a_str_with_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(tamis.EventError):
        matcher_of("x = 1").match_json('{"x":"\ud800"}')


@pytest.mark.parametrize("on_error", ["ignore", "", None, 5])
def test_on_error_must_be_raise_or_skip(on_error: Any) -> None:
    with pytest.raises(tamis.TamisError, match="on_error"):
        matcher_of("x = 1").match_json("{}", on_error=on_error)


def test_json_output_and_delivery() -> None:
    matcher = tamis.Matcher()
    matcher.subscribe(1, "x = 1", subscriber=7)
    matcher.subscribe(2, "x < 5", subscriber=7)
    text = '{"x":1}\n{"x":9}'
    assert matcher.match_json(text, output="count").counts.tolist() == [2, 0]
    assert found(matcher.match_json(text, deliver="subscribers")) == [{7}, set()]
    assert found(matcher.match_json(text, output="bitset")) == [{1, 2}, set()]


# ── encoded batches ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("events", [[{"x": 1, "y": 2}], pa.table({"x": [1], "y": [2]})])
def test_an_encoded_batch_matches_again_and_again(events: Any) -> None:
    matcher = matcher_of("x = 1")
    batch = matcher.encode(events)
    assert isinstance(batch, tamis.EventBatch)
    assert len(batch) == 1
    assert matcher.encode(batch) is batch
    assert found(matcher.match_many(batch)) == [{0}]
    matcher.subscribe(1, "x > 0")  # no new attribute
    matcher.unsubscribe(0)
    assert found(matcher.match_many(batch)) == [{1}]


def test_a_stale_batch_is_refused() -> None:
    matcher = matcher_of("x = 1")
    batch = matcher.encode([{"x": 1, "y": 2}])
    matcher.subscribe(1, "y = 2")
    with pytest.raises(tamis.ArgumentError, match="encode"):
        matcher.match_many(batch)
    assert found(matcher.match_many(matcher.encode([{"x": 1, "y": 2}]))) == [{0, 1}]


def test_a_batch_of_another_matcher_is_refused() -> None:
    first = matcher_of("x = 1")
    second = matcher_of("y = 1")
    batch = first.encode([{"x": 1}])
    with pytest.raises(tamis.ArgumentError):
        second.match_many(batch)


def test_position_belongs_to_encode() -> None:
    matcher = matcher_of("NEAR(0, 0, 1)")
    batch = matcher.encode([{"x": 0, "y": 0}], position=("x", "y"))
    assert found(matcher.match_many(batch)) == [{0}]
    with pytest.raises(tamis.ArgumentError, match="encode"):
        matcher.match_many(batch, position=("x", "y"))
