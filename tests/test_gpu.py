"""The engines for GPUs: through the matcher, where there is a GPU; and what they say elsewhere."""

from __future__ import annotations

import pytest

import tamis
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


@pytest.mark.gpu
@pytest.mark.parametrize("name", GPU_ENGINES)
@pytest.mark.parametrize("deliver", ["subscriptions", "subscribers"])
@pytest.mark.parametrize("key", ["pcm-default", "clcb-default", "hem-default"])
def test_answers_on_a_gpu_are_those_of_naive(name: str, deliver: str, key: str) -> None:
    workload = workloads.get(key, seed=3, n_subscriptions=2000)
    events = workload.events(200).read_all()
    found = []
    for engine in ("naive", name):
        matcher = tamis.Matcher(engine=engine)
        matcher.subscribe_many(workload.subscriptions().read_all())
        matcher.flush()
        result = matcher.match_many(events, deliver=deliver, position=workload.position)
        found.append([set(ids.tolist()) for ids in result])
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
