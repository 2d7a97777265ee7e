"""The engines for GPUs: through the matcher, where there is a GPU; and what they say elsewhere."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tamis
import tamis.gpu
from tamis import _core, workloads

GPU_ENGINES = [engine.name for engine in tamis.engines() if engine.device == "cuda"]


def test_engines_for_gpus_are_listed_with_the_reason_why_they_cannot_run() -> None:
    ours = {"block-bitmap-cuda", "spatial-grid-cuda", "tuple-key-cuda"}
    assert {"ccm", "clcb-cuda", "hem-cuda"} | ours <= set(GPU_ENGINES)
    for engine in tamis.engines():
        if engine.device == "cuda":
            assert engine.unavailable == _core.cuda_unavailable()


@pytest.mark.skipif(not _core.cuda_unavailable(), reason="there is a GPU")
@pytest.mark.parametrize("name", GPU_ENGINES)
def test_an_engine_without_a_gpu_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(tamis.UnavailableError, match=f"engine {name} is not available here: "):
        tamis.Matcher(engine=name)


@pytest.mark.skipif(not _core.cuda_unavailable(), reason="there is a GPU")
def test_pinned_memory_without_a_gpu_is_refused_with_the_reason() -> None:
    reason = tamis.gpu.unavailable()
    assert reason == _core.cuda_unavailable()
    with pytest.raises(tamis.UnavailableError, match="pinned memory needs a GPU: ") as caught:
        tamis.gpu.pinned(10)
    assert str(caught.value).endswith(reason)
    with pytest.raises(tamis.UnavailableError, match="pinned memory needs a GPU: "):
        tamis.gpu.pin(pa.table({"a": [1, 2]}))


def test_pinned_memory_of_no_plain_values_or_sizes_is_refused() -> None:
    with pytest.raises(tamis.ArgumentTypeError, match="dtype must be of plain values, not object"):
        tamis.gpu.pinned(10, object)
    with pytest.raises(tamis.ArgumentError, match=r"shape must be made of numbers from 0 up"):
        tamis.gpu.pinned((3, -1))


@pytest.mark.gpu
def test_pinned_memory_goes_through_numpy_and_arrow_without_a_copy() -> None:
    array = tamis.gpu.pinned((2, 3), "int32")
    array[:] = 7
    assert array.sum() == 42
    assert tamis.gpu.pinned(0).shape == (0,)
    values = tamis.gpu.pinned(4, "float64")
    values[:] = [1, 2, 3, 4]
    column = pa.Array.from_buffers(pa.float64(), 4, [None, pa.py_buffer(values)])
    assert column.buffers()[1].address == values.ctypes.data
    del values  # the buffer keeps the memory
    matcher = tamis.Matcher(engine="tuple-key-cuda")
    matcher.subscribe(1, "a >= 2 AND b <= 3")
    matcher.flush()
    found = matcher.match_many(pa.table({"a": column, "b": column}))
    assert [list(ids) for ids in found] == [[], [1], [1], []]


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["tuple-key-cuda", "block-bitmap-cuda", "auto"])
def test_a_pinned_table_has_the_answers_of_another(engine: str) -> None:
    workload = workloads.get("pcm-default", seed=4, n_filters=3000, planted=0.5)
    events = workload.events(20_000).read_all()
    pinned = tamis.gpu.pin(events)
    matcher, naive = tamis.Matcher(engine=engine), tamis.Matcher(engine="naive")
    for each in (matcher, naive):
        each.subscribe_many(workload.subscriptions().read_all())
        each.flush()
    expected = [sorted(ids) for ids in naive.match_many(events)]
    for _ in range(3):
        assert [sorted(ids) for ids in matcher.match_many(pinned)] == expected
    assert [sorted(ids) for ids in matcher.match_many(pinned.slice(100, 18_000))] == expected[
        100:18_100
    ]


@pytest.mark.gpu
def test_a_pinned_table_of_columns_with_nulls_and_odd_numbers() -> None:
    n = 17_000
    numbers = [None if row % 7 == 0 else row % 11 for row in range(n)]
    floats = [float("nan") if row % 13 == 0 else row % 5 / 2 for row in range(n)]
    table = pa.table(
        {
            "a": pa.array(numbers, pa.int16()),
            "b": pa.chunked_array([floats[:9000], floats[9000:]], pa.float64()),
            "c": pa.array([2**60 + row if row % 3 == 0 else row for row in range(n)], pa.int64()),
            "text": pa.array(["x"] * n),
        }
    )
    pinned = tamis.gpu.pin(table)
    assert pinned.drop_columns(["b"]).equals(table.drop_columns(["b"]))  # no NaN equals another
    predicates = {1: "a >= 3 AND b < 2", 2: "c > 1152921504606846976", 3: "b IS NULL OR a = 1"}
    answers = []
    for engine, events in (("tuple-key-cuda", pinned), ("naive", table)):
        matcher = tamis.Matcher(engine=engine)
        for id, predicate in predicates.items():
            matcher.subscribe(id, predicate)
        matcher.flush()
        answers.append([sorted(ids) for ids in matcher.match_many(events)])
    assert answers[0] == answers[1]


def test_offsets_are_the_results_own_memory() -> None:
    matcher = tamis.Matcher()
    matcher.subscribe(1, "a > 0")
    found = matcher.match_many([{"a": 1}, {"a": 0}])
    offsets = found.offsets
    assert not offsets.flags.writeable
    assert found._result.offsets().ctypes.data == offsets.ctypes.data
    del found, matcher
    assert offsets.tolist() == [0, 1, 1]


@pytest.mark.gpu
@pytest.mark.parametrize("name", GPU_ENGINES)
@pytest.mark.parametrize("deliver", ["subscriptions", "subscribers"])
@pytest.mark.parametrize("key", ["pcm-default", "clcb-default", "hem-default"])
def test_answers_on_a_gpu_are_those_of_naive(name: str, deliver: str, key: str) -> None:
    workload = workloads.get(key, seed=3, n_subscriptions=2000, planted=0.5)
    events = workload.events(200).read_all()
    found = []
    for engine in ("naive", name):
        matcher = tamis.Matcher(engine=engine)
        matcher.subscribe_many(workload.subscriptions().read_all())
        matcher.flush()
        result = matcher.match_many(events, deliver=deliver, position=workload.position)
        found.append([set(ids) for ids in result])
    assert found[0] == found[1]
    assert any(found[0])


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "n_most"), [("ccm", 15), ("clcb-cuda", 254)])
def test_filters_beyond_the_counters_go_to_the_fallback(name: str, n_most: int) -> None:
    matcher = tamis.Matcher(engine=name)
    event = {f"a{i}": 1 for i in range(n_most + 1)}
    for n_constraints in (n_most, n_most + 1):
        matcher.subscribe(n_constraints, " AND ".join(f"a{i} = 1" for i in range(n_constraints)))
    matcher.flush()
    assert sorted(matcher.match(event)) == [n_most, n_most + 1]
    assert matcher.match(event | {"a0": 2}) == []
