"""One suite for every engine: a new one is in the table of engines and needs no test of its own.

Exact engines must answer as the oracle does; approximate ones may only answer too much.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tamis
from tamis import _core, workloads
from tamis.language import Node
from tamis.testing import Event, matches, strategies

ENGINES = {"auto": True} | {
    engine.name: engine.exact for engine in tamis.engines() if engine.available
}
each_engine = pytest.mark.parametrize("engine", ENGINES)

OUTPUTS = ("ids", "bitset", "count")
DELIVERIES = ("subscriptions", "subscribers")
POSITION = ("position x", "position y")


@pytest.fixture(params=_core.simd_levels())
def simd_level(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _core.simd_level()
    _core.set_simd_level(request.param)
    yield request.param
    _core.set_simd_level(before)


@dataclass(frozen=True)
class Scene:
    """Subscriptions and events, with what the oracle says."""

    subscriptions: pa.Table
    events: Any  # of every form that match_many takes and that can be sliced
    position: tuple[str, str] | None
    space: str
    expected: dict[str, list[set[int]]]  # deliver → the ids of each event

    def matcher(self, engine: str, threads: int = 1) -> tamis.Matcher:
        matcher = tamis.Matcher(engine=engine, space=self.space, threads=threads)
        matcher.subscribe_many(self.subscriptions)
        return matcher


def scene_of(
    subscriptions: pa.Table,
    events: Any,
    rows: list[Event],
    position: tuple[str, str] | None = None,
    space: str = "plane",
) -> Scene:
    predicates = [tamis.parse(text) for text in subscriptions["predicate"].to_pylist()]
    ids = subscriptions["id"].to_pylist()
    owner = dict(zip(ids, subscriptions["subscriber"].to_pylist(), strict=True))
    found = [
        {
            subscription_id
            for subscription_id, predicate in zip(ids, predicates, strict=True)
            if matches(predicate, row.attributes, row.at, space)
        }
        for row in rows
    ]
    expected = {
        "subscriptions": found,
        "subscribers": [{owner[each] for each in group} for group in found],
    }
    return Scene(subscriptions, events, position, space, expected)


def check_group(found: list[Any], expected: set[Any], is_exact: bool) -> None:
    assert len(found) == len(set(found)), f"an id came out twice: {found}"
    missed = expected - set(found)
    assert not missed, f"missed: {sorted(missed)[:5]}"
    if is_exact:
        surplus = set(found) - expected
        assert not surplus, f"matched falsely: {sorted(surplus)[:5]}"


def check_scene(scene: Scene, engine: str, batch_sizes: tuple[int, ...]) -> None:
    matcher = scene.matcher(engine)
    is_exact = ENGINES[engine]
    n_events = len(scene.expected["subscriptions"])
    for deliver in DELIVERIES:
        expected = scene.expected[deliver]
        for n_rows in batch_sizes:
            for begin in range(0, n_events, n_rows):
                part = scene.events[begin : begin + n_rows]
                wanted = expected[begin : begin + n_rows]
                for output in OUTPUTS:
                    result = matcher.match_many(
                        part, deliver=deliver, output=output, position=scene.position
                    )
                    assert len(result) == len(wanted)
                    counts = [len(group) for group in wanted]
                    if is_exact:
                        assert result.counts.tolist() == counts
                    else:
                        assert (result.counts >= counts).all()
                    if output == "count":
                        continue
                    for group, ids in zip(wanted, result, strict=True):
                        check_group(ids, group, is_exact)


# ── the workloads ───────────────────────────────────────────────────────────────────

N_SUBSCRIPTIONS = 250
N_EVENTS = 50

# The default of every family and what differs from it in kind: strings, skew, dense, other areas.
WORKLOADS: dict[str, dict[str, Any]] = {
    "pcm-default": {"planted": 0.5},
    "pcm-zipf": {"planted": 0.5},
    "pcm-strings-50": {"planted": 0.5},
    "pcm-names-10": {"planted": 0.5},
    "hem-default": {"planted": 0.5},
    "hem-d-30-w-0.5": {"planted": 0.5},
    "hem-zipf-3-d-50-psi-s-5-w-0.5": {"planted": 0.5},
    "clcb-default": {"planted": 0.5},
    "clcb-always": {"planted": 0.5},
    "clcb-zipf-area-1": {"planted": 0.5},
    "fpga-default": {"planted": 0.5},
    "fpga-predicates-5": {"planted": 0.5},
    "fpga-skewed": {"planted": 0.5},
    "mix-default": {"planted": 0.5},
    "mix-areas": {"planted": 0.5},
    "flights": {},
    "cities": {},
}


def row_of(fields: dict[str, Any], position: tuple[str, str] | None) -> Event:
    attributes: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, list):  # a map column
            attributes |= dict(value)
        else:
            attributes[name] = value
    at = None
    if position is not None:
        x, y = (attributes[name] for name in position)
        at = None if x is None or y is None else (x, y)
    return Event(attributes, at)


@functools.cache
def workload_scene(key: str) -> Scene:
    workload = workloads.get(key, seed=5, n_subscriptions=N_SUBSCRIPTIONS, **WORKLOADS[key])
    subscriptions = workload.subscriptions().read_all()
    events = workload.events(N_EVENTS).read_all()
    rows = [row_of(fields, workload.position) for fields in events.to_pylist()]
    return scene_of(subscriptions, events, rows, workload.position, workload.space)


def test_every_family_of_workloads_is_here() -> None:
    families = {workloads.get(key).family for key in WORKLOADS}
    assert families == set(workloads.families())


@pytest.mark.parametrize("key", WORKLOADS)
def test_the_workload_matches_something(key: str) -> None:
    assert any(workload_scene(key).expected["subscriptions"])


@pytest.mark.parametrize("key", WORKLOADS)
@each_engine
def test_workloads_match_as_the_oracle_says(engine: str, key: str) -> None:
    check_scene(workload_scene(key), engine, (1, 7, N_EVENTS))


@pytest.mark.parametrize("key", ["pcm-default", "hem-default", "clcb-default", "cities"])
@each_engine
def test_workloads_match_at_every_simd_level(simd_level: str, engine: str, key: str) -> None:
    check_scene(workload_scene(key), engine, (N_EVENTS,))


# ── random predicates of every kind ─────────────────────────────────────────────────


@functools.cache
def random_scene(space: str) -> Scene:
    """A few hundred predicates of every kind and events aimed at them: the same in every run."""
    predicates: list[Node] = []
    events: list[Event] = []

    @settings(
        max_examples=90,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategies.scenes(space, max_predicates=6, max_events=3))
    def collect(scene: tuple[list[Node], list[Event]]) -> None:
        predicates.extend(scene[0])
        events.extend(scene[1])

    collect()
    subscriptions = pa.table(
        {
            "id": list(range(len(predicates))),
            "predicate": [str(predicate) for predicate in predicates],
            "subscriber": [idx % 37 for idx in range(len(predicates))],
        }
    )
    rows = []
    for event in events:
        x, y = event.at or (None, None)
        rows.append({**event.attributes, POSITION[0]: x, POSITION[1]: y})
    return scene_of(subscriptions, rows, events, POSITION, space)


@pytest.mark.parametrize("space", ["plane", "earth"])
def test_the_random_predicates_are_many_and_match(space: str) -> None:
    scene = random_scene(space)
    groups = scene.expected["subscriptions"]
    assert scene.subscriptions.num_rows >= 150
    assert len(groups) >= 90
    assert sum(map(len, groups)) >= len(groups)


@pytest.mark.parametrize("space", ["plane", "earth"])
@each_engine
def test_random_predicates_match_as_the_oracle_says(
    simd_level: str, engine: str, space: str
) -> None:
    check_scene(random_scene(space), engine, (7, 10_000))


@each_engine
def test_threads_change_nothing(engine: str) -> None:
    scene = workload_scene("pcm-default")
    events = pa.concat_tables([scene.events] * 30)
    expected = scene.expected["subscriptions"] * 30
    result = scene.matcher(engine, threads=2).match_many(events)
    assert len(result) >= 1000
    for group, ids in zip(expected, result, strict=True):
        check_group(ids, group, ENGINES[engine])


APPROXIMATE = [
    (engine.name, parameter.preset)
    for engine in tamis.engines()
    for parameter in engine.parameters
    if not engine.exact and parameter.name == "rate"
]


@pytest.mark.parametrize(("engine", "rate"), APPROXIMATE)
@pytest.mark.parametrize(
    ("key", "is_approximate"),
    [
        ("hem-default", False),
        ("hem-zipf-3-d-50-psi-s-5-w-0.5", True),
        ("hem-w-0.9-psi-s-5", True),
    ],
)
def test_approximate_engines_keep_their_rate_on_uniform_values(
    engine: str, rate: float, key: str, is_approximate: bool
) -> None:
    """Of what is reported, a share below the rate is false, and nothing is missed."""
    workload = workloads.get(key, seed=5, n_subscriptions=5000)
    events = workload.events(200).read_all()
    answers = []
    for name in ("naive", engine):
        matcher = tamis.Matcher(engine=name, threads=1)
        matcher.subscribe_many(workload.subscriptions())
        matcher.flush()
        answers.append(list(matcher.match_many(events)))
    n_reported = n_false = 0
    for right, found in zip(*answers, strict=True):
        assert set(right) <= set(found)
        n_reported += len(found)
        n_false += len(found) - len(right)
    assert n_false < rate * n_reported or n_false == 0
    assert is_approximate == (n_false > 0)


# ── each kind of constraint by itself ───────────────────────────────────────────────

NUMBERS: list[Any] = [0, 1, -1, 2.5, 2**53, 2**53 + 1, float(2**53), 2**63 - 1, 2**64 - 1, -(2**63)]
NUMBERS += [0.1, -0.0, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf"), float("nan")]
TEXTS: list[Any] = ["", "a", "ab", "abc", "b", "é", "é1", "😀", "\0", "a%b", "a_b", "A"]

KINDS: dict[str, tuple[list[str], list[Any]]] = {
    "numbers": (
        [
            f"x {op} {literal!r}"
            for op in ("=", "!=", "<", "<=", ">", ">=")
            for literal in (0, 1, 2.5, 2**53, 2**53 + 1, float(2**53), 2**63 - 1, -(2**63), 0.1)
        ],
        NUMBERS,
    ),
    "ranges": (
        [
            f"x {negation} BETWEEN {low} AND {high}"
            for negation in ("", "NOT")
            for low, high in ((0, 1), (1, 0), (-1, 2.5), (0.1, 0.1), (2**53, 2**53 + 1))
        ],
        NUMBERS,
    ),
    "lists": (
        [
            *("x IN (0)", "x IN (0, 1, 2.5, -1)", "x NOT IN (0, 1)", "x IN (1, 1.0, 1e0)"),
            *("x IN ('a', 'b')", "x NOT IN ('a', '')", "x IN (TRUE)", "x NOT IN (TRUE, FALSE)"),
            f"x IN ({', '.join(map(str, range(0, 3000, 3)))})",
            f"x NOT IN ({', '.join(map(str, range(0, 3000, 3)))})",
        ],
        [*NUMBERS, *TEXTS, True, False, 2997, 2998],
    ),
    "strings": (
        [
            f"x {op} '{literal}'"
            for op in ("=", "!=", "<", "<=", ">", ">=")
            for literal in ("", "a", "ab", "é", "😀", "b")
        ],
        TEXTS,
    ),
    "patterns": (
        [
            f"x {negation} LIKE '{pattern}'"
            for negation in ("", "NOT")
            for pattern in ("", "%", "_", "a%", "%b", "%b%", "a_", "_%_", "é%", "%é%1", "ab", "a%%")
        ]
        + ["x LIKE 'a!%b' ESCAPE '!'", "x LIKE 'a!_%' ESCAPE '!'"],
        TEXTS,
    ),
    "booleans": (
        ["x = TRUE", "x = FALSE", "x != TRUE", "NOT x = FALSE", "x = TRUE OR x = FALSE"],
        [True, False, 1, 0, "TRUE"],
    ),
    "absence": (
        [
            *("EXISTS x", "NOT EXISTS x", "x IS NULL", "x IS NOT NULL", "x IS NULL OR x = 1"),
            *("x IS NULL AND y = 1", "EXISTS x AND EXISTS y", "x IS NULL AND x = 1"),
        ],
        [1, "a", True, float("nan"), 0],
    ),
    "types": (
        [
            *("x = 1 OR x = '1'", "x = 1 OR x = TRUE", "x > 0 AND x < 'a'", "x != 1 AND x != '1'"),
            *("x = '1' OR x > 5", "NOT (x = 1 AND x = '1')", "NOT (x = 1 OR x = '1')"),
        ],
        [1, "1", True, 0, 7, "7", False],
    ),
    "constants": (["TRUE", "FALSE", "NOT TRUE", "x = 1 OR TRUE", "x = 1 AND FALSE"], [1, 2]),
    "logic": (
        [
            *("x = 1 AND y = 1", "x = 1 OR y = 1", "NOT (x = 1 AND y = 1)", "NOT (x = 1 OR y = 1)"),
            *("(x = 1 OR y = 1) AND (x = 2 OR y = 2)", "NOT (NOT x = 1 OR NOT y = 1)"),
            *("x > 0 AND x < 5 AND x != 2", "x < 0 OR x > 5 OR x = 2"),
        ],
        [0, 1, 2, 3, 6, None],
    ),
    "residuals": (
        [
            " AND ".join(f"(x != {n} OR y != {n} OR z{n} = 1)" for n in range(40)),
            " AND ".join(f"(x = {n % 3} OR x >= {n % 2} OR NOT y < {n})" for n in range(60)),
            "(" + " OR ".join(f"x = {n} AND y < {n}" for n in range(80)) + ") AND "
            "(" + " OR ".join(f"x >= {n} AND y != {n}" for n in range(80)) + ")",
        ],
        [0, 1, 2, 3, 39, 40, 79, None],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@each_engine
def test_every_kind_of_constraint(engine: str, kind: str) -> None:
    texts, values = KINDS[kind]
    rows: list[dict[str, Any]] = [{}, {"y": 1}]
    for value in values:
        rows += [{"x": value}, {"x": value, "y": 1}, {"x": value, "y": value}, {"y": value}]
    subscriptions = pa.table(
        {
            "id": list(range(len(texts))),
            "predicate": texts,
            "subscriber": [idx % 3 for idx in range(len(texts))],
        }
    )
    scene = scene_of(subscriptions, rows, [Event(row) for row in rows])
    assert any(scene.expected["subscriptions"])
    check_scene(scene, engine, (1, 10_000))


@pytest.mark.parametrize("space", ["plane", "earth"])
@each_engine
def test_areas_alone_negated_several_and_with_constraints(engine: str, space: str) -> None:
    draw = random.Random(11)
    unit = 1.0 if space == "plane" else 100_000.0

    def area() -> str:
        x, y = draw.randrange(-9, 10), draw.randrange(-9, 10)
        return f"NEAR({x}, {y}, {draw.choice([0, 1, 2, 5, 30]) * unit})"

    texts = []
    for idx in range(120):
        forms = (
            area(),
            f"NOT {area()}",
            f"{area()} AND {area()}",
            f"{area()} AND NOT {area()} AND x > 3",
            f"{area()} OR x = 1",
            f"x < 5 AND ({area()} OR {area()})",
        )
        texts.append(forms[idx % len(forms)])
    subscriptions = pa.table(
        {"id": list(range(120)), "predicate": texts, "subscriber": [idx % 7 for idx in range(120)]}
    )
    events = [
        Event(
            {"x": draw.randrange(10)} if draw.random() < 0.7 else {},
            (draw.randrange(-20, 21) / 2, draw.randrange(-20, 21) / 2)
            if draw.random() < 0.9
            else None,
        )
        for _ in range(60)
    ]
    rows = []
    for event in events:
        x, y = event.at or (None, None)
        rows.append({**event.attributes, POSITION[0]: x, POSITION[1]: y})
    scene = scene_of(subscriptions, rows, events, POSITION, space)
    check_scene(scene, engine, (1, 7, 60))


# ── texts that a normal form would blow up ──────────────────────────────────────────


@each_engine
def test_two_lists_of_4000_values_match_exactly(engine: str) -> None:
    draw = random.Random(13)
    numbers = draw.sample(range(20_000), 4000)
    words = [f"w{number}" for number in draw.sample(range(20_000), 4000)]
    text = f"n IN ({', '.join(map(str, numbers))}) AND w IN ("
    text += ", ".join(f"'{word}'" for word in words) + ")"
    rows: list[dict[str, Any]] = [
        {
            "n": draw.choice(numbers) if draw.random() < 0.7 else draw.randrange(20_000),
            "w": draw.choice(words) if draw.random() < 0.7 else f"w{draw.randrange(20_000)}",
        }
        for _ in range(40)
    ]
    subscriptions = pa.table(
        {"id": [1, 2, 3], "predicate": [text, f"NOT ({text})", "TRUE"], "subscriber": [1, 1, 2]}
    )
    scene = scene_of(subscriptions, rows, [Event(row) for row in rows])
    assert 5 < sum(1 in group for group in scene.expected["subscriptions"]) < 40
    check_scene(scene, engine, (1, 40))


@each_engine
def test_forty_ors_anded_together_match_exactly(engine: str) -> None:
    draw = random.Random(17)
    text = " AND ".join(f"(a{n} = 1 OR b{n} > {n} OR c = {n})" for n in range(40))
    rows: list[dict[str, Any]] = []
    for miss in [None] * 10 + list(range(0, 40, 2)):
        row: dict[str, Any] = {}
        for n in range(40):
            if n != miss:
                row |= {f"a{n}": 1} if draw.random() < 0.5 else {f"b{n}": n + 1, f"a{n}": 0}
        rows.append(row)
        rows.append({**row, "c": draw.randrange(40)})
    subscriptions = pa.table(
        {"id": [1, 2], "predicate": [text, f"NOT ({text})"], "subscriber": [1, 2]}
    )
    scene = scene_of(subscriptions, rows, [Event(row) for row in rows])
    found = [1 in group for group in scene.expected["subscriptions"]]
    assert any(found)
    assert not all(found)
    check_scene(scene, engine, (1, 60))


# ── changes ─────────────────────────────────────────────────────────────────────────


@each_engine
def test_engines_live_through_changes(engine: str) -> None:
    @settings(max_examples=15)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        predicates, events = data.draw(strategies.scenes("plane", max_predicates=6, max_events=2))
        matcher = tamis.Matcher(engine=engine)
        shadow: dict[int, Node] = {}
        for step in range(12):
            idx = data.draw(st.integers(0, 5))
            if idx in shadow and data.draw(st.booleans()):
                matcher.unsubscribe(idx)
                del shadow[idx]
            else:
                shadow[idx] = data.draw(st.sampled_from(predicates))
                matcher.subscribe(idx, shadow[idx])
            event = events[step % len(events)]
            expected = {key for key, predicate in shadow.items() if matches(predicate, *event)}
            check_group(matcher.match(event.attributes, at=event.at), expected, ENGINES[engine])

    check()


@each_engine
def test_no_id_is_given_twice(engine: str) -> None:
    # Filters of one constraint under few keys: two keys of an event may collide in a hash.
    workload = workloads.get("pcm-constraints-1", n_subscriptions=1000)
    matcher = tamis.Matcher(engine=engine, threads=1)
    matcher.subscribe_many(workload.subscriptions().read_all())
    matcher.flush()
    for ids in matcher.match_many(workload.events(400).read_all()):
        assert len(set(ids)) == len(ids)
