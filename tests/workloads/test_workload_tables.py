"""Schemas, and tables that depend on the parameters and on nothing else."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from tamis import workloads
from tamis.workloads import ClcbWorkload, Workload

KEYS = (
    "pcm-default",
    "pcm-zipf",
    "pcm-constraints-9",
    "pcm-strings-50",
    "hem-default",
    "hem-d-300-psi-e-20",
    "hem-zipf-5-d-50-psi-s-5-w-0.5",
    "clcb-default",
    "clcb-zipf",
    "clcb-always",
    "fpga-default",
    "fpga-predicates-5-to-15",
    "fpga-skewed",
    "mix-default",
    "mix-areas",
    "flights",
    "cities",
)
NUMBERS = pa.map_(pa.string(), pa.int64())
STRINGS = pa.map_(pa.string(), pa.string())


def small(key: str, **overrides: object) -> Workload:
    return workloads.get(key, n_subscriptions=500, **overrides)


@pytest.mark.parametrize("key", KEYS)
def test_subscriptions_are_the_same_whatever_the_batch_size(key: str) -> None:
    whole = small(key).subscriptions().read_all()
    pieces = small(key).subscriptions(batch_rows=77).read_all()
    assert len(whole) == 500
    assert whole.equals(pieces)
    assert whole["id"].to_pylist() == list(range(500))
    assert whole["predicate"].null_count == 0
    assert min(len(text) for text in whole["predicate"].to_pylist()) > 5


@pytest.mark.parametrize("key", KEYS)
def test_events_are_the_same_whatever_the_batch_size(key: str) -> None:
    whole = small(key).events(300).read_all()
    pieces = small(key).events(300, batch_rows=77).read_all()
    assert len(whole) == 300
    assert whole.to_pylist() == pieces.to_pylist()


@pytest.mark.parametrize("key", KEYS)
def test_fewer_events_are_the_beginning_of_more(key: str) -> None:
    few, many = small(key).events(10).read_all(), small(key).events(300).read_all()
    assert few.to_pylist() == many.slice(0, 10).to_pylist()


@pytest.mark.parametrize("key", KEYS)
def test_events_do_not_depend_on_subscriptions_generated_before(key: str) -> None:
    workload = small(key)
    first = workload.events(20).read_all()
    workload.subscriptions().read_all()
    assert first.to_pylist() == workload.events(20).read_all().to_pylist()


@pytest.mark.parametrize("key", KEYS)
def test_another_seed_gives_other_tables(key: str) -> None:
    one, other = small(key), small(key, seed=2)
    assert not one.subscriptions().read_all().equals(other.subscriptions().read_all())
    assert one.events(50).read_all().to_pylist() != other.events(50).read_all().to_pylist()


@pytest.mark.parametrize("key", KEYS)
def test_the_stream_has_the_schema_it_announces(key: str) -> None:
    workload = small(key)
    subscriptions = workload.subscriptions()
    assert [(field.name, field.type) for field in subscriptions.schema] == [
        ("id", pa.int64()),
        ("predicate", pa.string()),
        ("subscriber", pa.int64()),
    ]
    for reader in (subscriptions, workload.events(5)):
        for batch in reader:
            batch.validate(full=True)
            assert batch.schema.equals(reader.schema)
    if workload.position:
        fields = workload.events(1).schema
        assert all(fields.field(name).type == pa.float64() for name in workload.position)


def test_no_events_is_an_empty_stream_with_the_schema() -> None:
    assert small("pcm-default").events(0).read_all().num_rows == 0


def test_n_events_is_the_number_unless_told() -> None:
    assert len(small("hem-default").events().read_all()) == 500
    assert len(small("hem-default", n_events=7).events().read_all()) == 7


@pytest.mark.parametrize(
    ("key", "schema"),
    [
        ("pcm-default", {"numbers": NUMBERS}),
        ("pcm-strings-50", {"numbers": NUMBERS, "strings": STRINGS}),
        ("hem-default", {f"a{k}": pa.int64() for k in range(20)}),
        ("hem-d-300-psi-e-20", {"numbers": NUMBERS}),
        ("clcb-default", {"numbers": NUMBERS, "x": pa.float64(), "y": pa.float64()}),
        ("fpga-default", {"numbers": NUMBERS}),
    ],
)
def test_dense_events_are_columns_and_sparse_ones_maps(
    key: str, schema: dict[str, pa.DataType]
) -> None:
    found = small(key).events(1).schema
    assert dict(zip(found.names, found.types, strict=True)) == schema


@pytest.mark.parametrize("key", [key for key in KEYS if key[:3] in ("pcm", "clc", "fpg")])
def test_the_names_of_an_event_differ(key: str) -> None:
    for row in small(key, planted=0.5).events(200).read_all().to_pylist():
        names = [name for name, _ in row["numbers"]] + [name for name, _ in row.get("strings", [])]
        assert len(names) == len(set(names))


def test_moves_are_deterministic_and_stay_inside() -> None:
    workload = small("clcb-zipf")
    assert isinstance(workload, ClcbWorkload)
    whole = workload.moves(1000).read_all()
    assert whole.equals(workload.moves(1000, batch_rows=9).read_all())
    assert whole.slice(0, 10).to_pylist() == workload.moves(10).read_all().to_pylist()
    assert len(workload.moves().read_all()) == 1000
    assert set(whole["id"].to_pylist()) <= set(range(500))
    for axis in ("x", "y"):
        assert 0 <= min(whole[axis].to_pylist()) <= max(whole[axis].to_pylist()) <= 13_470


def test_a_huge_workload_streams_its_beginning_at_once() -> None:
    stream = workloads.get("fpga-6m").subscriptions(batch_rows=10)
    first = list(itertools.islice(stream, 2))
    assert [row["id"] for batch in first for row in batch.to_pylist()] == list(range(20))


def test_real_events_start_again_after_the_last() -> None:
    workload = small("cities")
    from tamis.workloads.cities import load_cities

    n_cities = len(load_cities())
    rows = workload.events(n_cities + 3).read_all()
    assert rows.slice(n_cities).to_pylist() == rows.slice(0, 3).to_pylist()
    assert sorted(rows.slice(0, n_cities)["x"].to_pylist()) == sorted(
        load_cities()["x"].to_pylist()
    )
