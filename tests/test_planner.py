"""engine="auto": which engines it takes, on what grounds, and that it changes its mind."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tamis
from tamis import workloads
from tamis.plans import Plan, to_plan

MOST_SAMPLED = 256


def has_gpu() -> bool:
    return any(each.device == "cuda" and each.available for each in tamis.engines())


def loaded(key: str, n_events: int = 100, **overrides: Any) -> tamis.Matcher:
    """A matcher with a workload's subscriptions, that has seen some of its events."""
    workload = workloads.get(key, **overrides)
    matcher = tamis.Matcher(threads=1, space=workload.space)
    for chunk in workload.subscriptions():
        matcher.subscribe_many(chunk)
    matcher.flush()
    if n_events:
        matcher.match_many(workload.events(n_events).read_all(), position=workload.position)
        matcher.flush()
    return matcher


def engines_of(matcher: tamis.Matcher) -> set[str]:
    return {group.engine for segment in matcher.plan().segments for group in segment.groups}


@pytest.mark.parametrize(
    ("key", "n", "engine"),
    [
        ("pcm-default", 20_000, "tuple-key"),
        ("fpga-1m", 20_000, "tuple-key"),
        ("hem-default", 3, "naive"),
        ("hem-default", 20_000, "block-bitmap"),
    ],
)
@pytest.mark.parametrize("n_events", [0, 100])
def test_a_clear_case_gets_the_engine_that_is_made_for_it(
    key: str, n: int, engine: str, n_events: int
) -> None:
    matcher = loaded(key, n_events, n_subscriptions=n)
    assert engines_of(matcher) == {engine}
    (segment,) = matcher.plan().segments
    assert segment.is_guess == (n_events == 0)


def test_areas_get_an_engine_that_has_an_index_of_places() -> None:
    matcher = loaded("clcb-default", n_subscriptions=2000)
    assert engines_of(matcher) <= {"spatial-grid", "r-tree", "clcb"}


def test_kinds_of_filters_that_suit_different_engines_are_different_groups() -> None:
    dense = workloads.get("hem-default", n_subscriptions=8000)
    matcher = tamis.Matcher(threads=1)
    places = [f"NEAR({i % 97}, {i % 89}, 0.5) AND kind = {i % 7}" for i in range(8000)]
    matcher.subscribe_many(dense.subscriptions().read_all())
    matcher.subscribe_many({"id": list(range(10_000, 18_000)), "predicate": places})
    matcher.flush()
    rng = random.Random(1)
    numbers = dense.events(200).read_all().to_pylist()
    events = [
        {**event, "kind": rng.randrange(7), "x": rng.uniform(0, 97), "y": rng.uniform(0, 89)}
        for event in numbers
    ]
    matches = matcher.match_many(events, position=("x", "y"))
    matcher.flush()
    (segment,) = matcher.plan().segments
    assert len(segment.groups) == 2
    assert sum(group.n_filters for group in segment.groups) == 16_000
    assert segment.best_ns < segment.best_single_ns
    again = matcher.match_many(events, position=("x", "y"))
    naive = tamis.Matcher(engine="naive", threads=1)
    naive.subscribe_many(dense.subscriptions().read_all())
    naive.subscribe_many({"id": list(range(10_000, 18_000)), "predicate": places})
    expected = [sorted(ids) for ids in naive.match_many(events, position=("x", "y"))]
    assert [sorted(ids) for ids in matches] == expected
    assert [sorted(ids) for ids in again] == expected


def test_an_empty_matcher_has_a_plan_without_segments() -> None:
    matcher = tamis.Matcher()
    plan = matcher.plan()
    assert plan == Plan("auto", 0, ())
    assert str(plan) == "engine auto: 0 segments, 0 new filters"
    matcher.subscribe(1, "a = 1")
    assert matcher.plan().n_new_filters == 1
    matcher.unsubscribe(1)
    matcher.flush()
    assert matcher.plan().segments == ()


def test_new_events_make_it_plan_again() -> None:
    # Events with all attributes are dense, and events with four of sixty are sparse.
    dense = workloads.get("hem-default", n_subscriptions=60_000, d=60, psi_s=8, psi_e=60)
    rng = random.Random(3)
    names = [f"a{i}" for i in range(60)]
    matcher = tamis.Matcher(threads=1)
    matcher.subscribe_many(dense.subscriptions().read_all())
    wide = dense.events(300).read_all()
    narrow = [
        {name: rng.randrange(1_000_000) for name in rng.sample(names, 4)} for _ in range(40_000)
    ]
    matcher.match_many(wide)
    matcher.flush()
    (before,) = matcher.plan().segments
    assert before.n_attributes == pytest.approx(60)
    for begin in range(0, len(narrow), 1000):
        matcher.match_many(narrow[begin : begin + 1000])
    matcher.flush()
    (after,) = matcher.plan().segments
    assert after.n_attributes == pytest.approx(4, abs=1)
    assert not after.is_guess
    assert {group.engine for group in after.groups} == {"tuple-key"}
    assert {group.engine for group in before.groups} != {"tuple-key"}


def test_an_index_that_takes_longer_than_its_trial_foretold_gives_way_to_another() -> None:
    """Every eighth filter is one of the trial, and unlike all the others."""
    rng = random.Random(3)

    def often() -> str:
        lows = {name: rng.randrange(70) for name in rng.sample(range(10), 4)}
        return " AND ".join(f"a{name} BETWEEN {low} AND {low + 30}" for name, low in lows.items())

    predicates = [f"seldom{i % 500} > 5" if i % 8 == 0 else often() for i in range(20_480)]
    matcher = tamis.Matcher(threads=1)
    matcher.subscribe_many({"id": list(range(len(predicates))), "predicate": predicates})
    for _ in range(300):
        matcher.match({f"a{name}": rng.randrange(100) for name in range(10)})
    matcher.flush()
    plan = matcher.plan()
    (segment,) = plan.segments
    (group,) = segment.groups
    assert group.engine == "block-bitmap", "by a trial without the others, tuple-key finds nothing"
    (other,) = (each for each in group.estimates if each.engine == "tuple-key")
    assert group.ns is not None
    assert other.ns > group.ns, "it was built, and is known"

    found = tuple(replace(each, is_measured=True) for each in group.estimates)
    shown = replace(plan, segments=(replace(segment, groups=(replace(group, estimates=found),)),))
    assert str(shown).count("measured: ") == len(found)


def test_it_reckons_with_how_events_are_delivered() -> None:
    # Ten subscribers, and hundreds of matches: most of the work is saved by stopping early.
    workload = workloads.get("pcm-names-10", n_filters=30_000)
    matcher = tamis.Matcher(threads=1)
    matcher.subscribe_many(workload.subscriptions().read_all())
    events = workload.events(300).read_all()
    matcher.match_many(events)
    matcher.flush()
    (before,) = matcher.plan().segments
    assert before.to_subscribers == 0
    assert "delivered to" not in str(matcher.plan())
    for _ in range(127):
        matcher.match_many(events, deliver="subscribers")
    matcher.flush()
    (after,) = matcher.plan().segments
    assert after.to_subscribers >= 0.5
    assert "delivered to subscribers" in str(matcher.plan())
    assert after.n_matches < before.n_matches
    assert after.best_single_ns < before.best_single_ns


def test_it_reckons_with_how_events_come_and_what_is_asked_of_them() -> None:
    # Two thirds of the subscriptions match: one by one hem may win, in batches it is far behind.
    workload = workloads.get("hem-w-0.9-psi-s-5", n_subscriptions=20_000)
    matcher = tamis.Matcher(threads=1)
    matcher.subscribe_many(workload.subscriptions().read_all())
    events = workload.events(200).read_all()
    for event in events.to_pylist():
        matcher.match(event)
    matcher.flush()
    (before,) = matcher.plan().segments
    for _ in range(50):
        matcher.match_many(events, output="bitset")
    matcher.flush()
    (after,) = matcher.plan().segments
    assert engines_of(matcher) == {"block-bitmap"}
    for segment in (before, after):
        tried = {each.engine for each in segment.groups[0].estimates}
        assert {"hem", "block-bitmap"} <= tried  # or it could not lose


def test_the_sample_of_events_is_bounded_and_slides() -> None:
    matcher = tamis.Matcher(threads=1)
    matcher.subscribe_many({"id": [1, 2, 3], "predicate": ["a = 1", "b = 2", "c > 3"]})
    matcher.flush()
    matcher.match_many([{"a": 1}] * 1000)
    matcher.flush()
    (segment,) = matcher.plan().segments
    assert segment.n_events == MOST_SAMPLED
    assert segment.n_attributes == 1
    matcher.match_many([{"a": 1, "b": 2, "c": 3}] * 127 * MOST_SAMPLED)
    matcher.flush()
    (segment,) = matcher.plan().segments
    assert segment.n_events == MOST_SAMPLED
    assert segment.n_attributes > 2.9


def test_events_from_before_an_attribute_was_known_do_not_count() -> None:
    matcher = tamis.Matcher(threads=1)
    matcher.subscribe_many({"id": list(range(50)), "predicate": ["a = 1"] * 50})
    matcher.match_many([{"a": 1, "b": 1}] * 100)
    matcher.flush()
    (segment,) = matcher.plan().segments
    assert not segment.is_guess
    matcher.subscribe_many({"id": list(range(50, 100)), "predicate": ["b = 1"] * 50})
    matcher.flush()
    (segment,) = matcher.plan().segments
    assert segment.is_guess  # whether those events had b is not known


def test_a_plan_can_be_read() -> None:
    matcher = loaded("pcm-default", n_subscriptions=3000)
    plan = matcher.plan()
    (segment,) = plan.segments
    (group,) = segment.groups
    assert group.n_filters == segment.n_filters == 3000
    assert {each.engine for each in group.estimates} >= {"tuple-key", "block-bitmap", "naive"}
    times = [each.ns for each in group.estimates]
    assert times == sorted(times)
    assert group.ns == times[0] == pytest.approx(segment.best_ns)
    assert group.estimates[0].work["cells"] > 0
    text = str(plan)
    assert "tuple-key" in text
    assert "100 events seen lately: 4.0 attributes each" in text
    assert "×" in text
    assert json.loads(json.dumps(plan.to_dict()))["segments"][0]["groups"][0]["engine"]


def test_approximate_engines_and_those_without_a_cost_are_never_candidates() -> None:
    matcher = loaded("hem-default", n_subscriptions=500)
    (segment,) = matcher.plan().segments
    considered = {each.engine for group in segment.groups for each in group.estimates}
    assert "ada-rein" not in considered
    assert considered <= {engine.name for engine in tamis.engines() if engine.exact}


def test_an_engine_that_was_asked_for_is_not_planned() -> None:
    matcher = tamis.Matcher(engine="ocm")
    matcher.subscribe(1, "a = 1")
    matcher.flush()
    (segment,) = matcher.plan().segments
    assert not segment.is_planned
    assert [group.engine for group in segment.groups] == ["ocm"]
    assert segment.groups[0].estimates == ()
    assert "as asked for" in str(matcher.plan())


def test_auto_takes_no_parameters() -> None:
    with pytest.raises(tamis.ArgumentError, match="name the engine that has key_terms"):
        tamis.Matcher(parameters={"key_terms": 2})


def test_a_saved_plan_is_kept_and_another_engine_is_not(tmp_path: Path) -> None:
    matcher = loaded("pcm-default", n_subscriptions=5000)
    matcher.save(tmp_path / "auto")
    event = {f"a{i}": i for i in range(20)}
    with tamis.Matcher.open(tmp_path / "auto", read_only=True) as opened:
        assert opened.stats()["n_merges"] == 0
        assert engines_of(opened) == {"tuple-key"}
        assert "as planned when it was saved" in str(opened.plan())
        assert sorted(opened.match(event)) == sorted(matcher.match(event))
    with tamis.Matcher.open(tmp_path / "auto", engine="naive") as opened:
        opened.flush()
        assert engines_of(opened) == {"naive"}
        opened.checkpoint()
    with tamis.Matcher.open(tmp_path / "auto") as opened:
        opened.flush()
        assert engines_of(opened) == {"tuple-key"}
        assert sorted(opened.match(event)) == sorted(matcher.match(event))


def test_a_child_of_fork_samples_and_plans() -> None:
    matcher = loaded("pcm-default", n_events=0, n_subscriptions=2000)
    events = workloads.get("pcm-default").events(200).read_all()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            matcher.match_many(events)
            matcher.subscribe(100_000, "a1 = 1 AND a2 = 2")
            matcher.flush()
            plan = matcher.plan()
            n_filters = sum(segment.n_filters for segment in plan.segments)
            if n_filters == 2001 and any(not segment.is_guess for segment in plan.segments):
                code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    (segment,) = matcher.plan().segments
    assert segment.is_guess


def test_plan_says_what_goes_to_a_gpu_and_what_it_takes() -> None:
    facts = {
        "filters": "all",
        "engine": "tuple-key",
        "parameters": {},
        "n_filters": 5000,
        "n_index_bytes": 10,
        "n_trial_filters": 0,
        "estimates": [],
    }
    device = {
        "engine": "tuple-key-cuda",
        "why_not": "",
        "least_events": 16_500,
        "here": {"ns": 0.0, "event_ns": 210.0},
        "there": {"ns": 31_000.0, "event_ns": 0.4},
        "n_index_bytes": 20,
    }
    lost = {"why_not": "the GPU is gone", "least_events": 0, "here": None, "there": None}
    segment = {
        "n_filters": 15_000,
        "is_indexed": True,
        "is_planned": True,
        "n_events": 0,
        "is_guess": False,
        "n_attributes": 0.0,
        "positions": 0.0,
        "to_subscribers": 0.0,
        "n_matches": 0.0,
        "planning_s": 0.0,
        "best_ns": 0.0,
        "best_single_ns": 0.0,
        "groups": [{**facts, "device": each} for each in (device, {**device, **lost}, None)],
    }
    plan = to_plan("auto", 0, [segment])
    lines = [line.strip() for line in str(plan).splitlines() if "GPU" in line]
    assert lines == [
        "on the GPU from 16,500 events of a call: 31 µs + 0.4 ns an event there, "
        "210 ns an event here",
        "not on the GPU: the GPU is gone",
    ]
    first, second, third = (each["device"] for each in plan.to_dict()["segments"][0]["groups"])
    assert first["there"] == {"ns": 31_000.0, "event_ns": 0.4}
    assert first["least_events"] == 16_500
    assert second["here"] is None
    assert third is None


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
def test_a_large_call_without_a_gpu_stays_on_the_cpu_and_the_plan_says_why() -> None:
    matcher = loaded("pcm-default", 4096, n_subscriptions=10_000)
    (segment,) = matcher.plan().segments
    (group,) = segment.groups
    assert group.engine == "tuple-key"
    assert group.device is not None
    assert group.device.engine == "tuple-key-cuda"
    assert group.device.least_events == 0
    assert group.device.n_index_bytes == 0
    assert f"not on the GPU: {group.device.why_not}" in str(matcher.plan())
    assert (
        loaded("pcm-default", 4000, n_subscriptions=10_000).plan().segments[0].groups[0].device
        is None
    )
