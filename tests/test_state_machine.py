"""Random histories of a matcher, in memory and durable, against a dict and the oracle."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import tamis
from tamis.language import And, Near, Node, Not, Or
from tamis.testing import Event, matches, strategies

ENGINES = list(
    dict.fromkeys(
        ["auto", *(engine.name for engine in tamis.engines() if engine.available and engine.exact)]
    )
)
POSITION = ("position x", "position y")
N_IDS = 8

Model = dict[Any, tuple[Node, Any]]  # id → tree, subscriber or None


def areas_of(node: Node) -> list[Near]:
    return [leaf for leaf in node.walk() if isinstance(leaf, Near)]


def moved(node: Node, area: int, x: float, y: float) -> Node:
    """The tree with another centre for the area of that number, counted from the left."""
    n_passed = 0

    def visit(part: Node) -> Node:
        nonlocal n_passed
        match part:
            case Near(_, _, radius):
                n_passed += 1
                return Near(x, y, radius) if n_passed == area + 1 else part
            case And(parts):
                return And(tuple(visit(each) for each in parts))
            case Or(parts):
                return Or(tuple(visit(each) for each in parts))
            case Not(inner):
                return Not(visit(inner))
            case _:
                return part

    return visit(node)


def row_of(event: Event) -> dict[str, Any]:
    if event.at is None:
        return event.attributes
    return {**event.attributes, POSITION[0]: event.at[0], POSITION[1]: event.at[1]}


def each_once(ids: list[Any]) -> set[Any]:
    assert len(ids) == len(set(ids)), f"an id came out twice: {ids}"
    return set(ids)


PLACES = st.integers(0, N_IDS - 1)
SUBSCRIBERS = st.one_of(st.none(), st.integers(0, 2))
PREDICATES = {space: strategies.predicates(5, space) for space in ("plane", "earth")}
AREAS = {space: strategies.areas(space) for space in ("plane", "earth")}
BOTH = {space: st.one_of(PREDICATES[space], AREAS[space]) for space in ("plane", "earth")}


class History(RuleBasedStateMachine):
    """One matcher through every kind of change; `engine` is that of the subclass."""

    engine = "auto"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tamis-history-"))
        self.n_names = 0
        self.model: Model = {}

    def teardown(self) -> None:
        if hasattr(self, "matcher"):
            self.matcher.close()
        shutil.rmtree(self.folder)

    @initialize(
        is_durable=st.booleans(),
        space=st.sampled_from(["plane", "plane", "earth"]),
        has_strings=st.booleans(),
    )
    def start(self, is_durable: bool, space: str, has_strings: bool) -> None:
        self.is_durable, self.space, self.has_strings = is_durable, space, has_strings
        if is_durable:
            self.path = self.new_path()
            self.matcher = tamis.Matcher.open(
                self.path, create=True, engine=self.engine, space=space, sync="none"
            )
        else:
            self.matcher = tamis.Matcher(engine=self.engine, space=space)

    def new_path(self) -> Path:
        self.n_names += 1
        return self.folder / str(self.n_names)

    def key(self, place: int) -> Any:
        return f"é{place}" if self.has_strings else place - 1

    def owner(self, number: int | None) -> Any:
        """Owners 0 and 1 have names that subscriptions have too."""
        return None if number is None else self.key(number * 2)

    def open_here(self, path: Path) -> tamis.Matcher:
        return tamis.Matcher.open(path, engine=self.engine, sync="none")

    def check_state(self, matcher: tamis.Matcher) -> None:
        assert len(matcher) == len(self.model)
        assert each_once(list(matcher)) == set(self.model)
        for each, (tree, _) in self.model.items():
            assert tamis.parse(matcher[each]) == tree
        assert matcher.space == self.space

    def draw_tree(self, data: st.DataObject) -> Node:
        return tamis.parse(str(data.draw(BOTH[self.space])))

    # changes

    @rule(place=PLACES, subscriber=SUBSCRIBERS, data=st.data())
    def subscribe(self, place: int, subscriber: int | None, data: st.DataObject) -> None:
        tree = self.draw_tree(data)
        self.matcher.subscribe(self.key(place), tree, subscriber=self.owner(subscriber))
        self.model[self.key(place)] = (tree, self.owner(subscriber))

    @rule(places=st.lists(PLACES, max_size=6), are_owned=st.booleans(), data=st.data())
    def subscribe_many(self, places: list[int], are_owned: bool, data: st.DataObject) -> None:
        keys = list(dict.fromkeys(self.key(place) for place in places))
        trees = [self.draw_tree(data) for _ in keys]
        owners = [self.owner(n % 3) if are_owned else None for n in range(len(keys))]
        columns: dict[str, Any] = {"id": keys, "predicate": [str(tree) for tree in trees]}
        if are_owned:
            columns["subscriber"] = owners
        self.matcher.subscribe_many(columns)
        self.model.update(zip(keys, zip(trees, owners, strict=True), strict=True))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        self.matcher.unsubscribe(key)
        del self.model[key]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def unsubscribe_many(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(st.sampled_from(sorted(self.model)), max_size=4))
        self.matcher.unsubscribe_many(keys)
        for key in set(keys):
            del self.model[key]

    def movable(self) -> list[tuple[Any, int]]:
        return [
            (key, area)
            for key, (tree, _) in sorted(self.model.items())
            for area in range(len(areas_of(tree)))
        ]

    @precondition(lambda self: self.movable())
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        key, area = data.draw(st.sampled_from(self.movable()))
        to = data.draw(AREAS[self.space])
        tree, owner = self.model[key]
        if len(areas_of(tree)) == 1 and data.draw(st.booleans()):
            self.matcher.move(key, to.x, to.y)
        else:
            self.matcher.move(key, to.x, to.y, area=area)
        self.model[key] = (moved(tree, area, to.x, to.y), owner)

    @precondition(lambda self: self.movable())
    @rule(data=st.data())
    def move_many(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.movable()), max_size=4))
        to = [data.draw(AREAS[self.space]) for _ in chosen]
        self.matcher.move_many(
            {
                "id": pa.array(
                    [key for key, _ in chosen],
                    pa.large_string() if self.has_strings else pa.int64(),
                ),
                "x": [each.x for each in to],
                "y": [each.y for each in to],
                "area": [area for _, area in chosen],
            }
        )
        for (key, area), each in zip(chosen, to, strict=True):
            tree, owner = self.model[key]
            self.model[key] = (moved(tree, area, each.x, each.y), owner)

    # changes that are refused, and change nothing

    @precondition(lambda self: self.model)
    @rule(place=st.integers(0, 2), data=st.data())
    def refused(self, place: int, data: st.DataObject) -> None:
        live = data.draw(st.sampled_from(sorted(self.model)))
        unknown, other = self.key(99), (1 if self.has_strings else "1")
        rows = [live, self.key(N_IDS - 1)]
        rows.insert(place, live if place else unknown)
        bad_texts = ["TRUE", "FALSE"]
        bad_texts.insert(place, "x ==")
        calls: list[Callable[[], None]] = [
            lambda: self.matcher.subscribe(live, "x =="),
            lambda: self.matcher.subscribe(other, "TRUE"),
            lambda: self.matcher.subscribe_many(
                {"id": [live, self.key(0), self.key(1)], "predicate": bad_texts}
            ),
            lambda: self.matcher.subscribe_many({"id": [other], "predicate": ["TRUE"]}),
            lambda: self.matcher.unsubscribe(unknown),
            lambda: self.matcher.unsubscribe_many([live, unknown]),
            lambda: self.matcher.unsubscribe_many([unknown, live]),
            lambda: self.matcher.move(unknown, 0, 0),
            lambda: self.matcher.move(live, float("nan"), 0, area=0),
            lambda: self.matcher.move_many(
                {"id": [live, unknown], "x": [0, 0], "y": [0, 0], "area": [0, 0]}
            ),
            lambda: self.matcher.move(live, 0, 0, area=77),
        ]
        for call in calls:
            with pytest.raises(tamis.TamisError):
                call()
        self.check_state(self.matcher)

    # what changes nothing that can be seen

    @rule()
    def flush(self) -> None:
        self.matcher.flush()

    @rule(goes_on=st.booleans())
    def save(self, goes_on: bool) -> None:
        path = self.new_path()
        self.matcher.save(path)
        saved = self.open_here(path)
        self.check_state(saved)
        if goes_on:  # with the snapshot, durable from now on
            self.matcher.close()
            self.matcher, self.path, self.is_durable = saved, path, True
        else:
            saved.close()

    @precondition(lambda self: self.is_durable)
    @rule()
    def reopen(self) -> None:
        self.matcher.close()
        with pytest.raises(tamis.TamisError):
            self.matcher.subscribe(self.key(0), "TRUE")
        self.check_state(self.matcher)
        self.matcher = self.open_here(self.path)

    @precondition(lambda self: self.is_durable)
    @rule()
    def checkpoint(self) -> None:
        self.matcher.checkpoint()

    @precondition(lambda self: self.is_durable)
    @rule()
    def crash(self) -> None:
        """What is on disk now is what a crash would leave."""
        path = self.new_path()
        shutil.copytree(self.path, path)
        after = self.open_here(path)
        self.check_state(after)
        self.matcher.close()
        self.matcher, self.path = after, path

    # answers

    @precondition(lambda self: self.model)
    @rule(
        data=st.data(),
        deliver=st.sampled_from(["subscriptions", "subscribers"]),
        n_copies=st.sampled_from([1, 1, 70]),
    )
    def match(self, data: st.DataObject, deliver: str, n_copies: int) -> None:
        trees = [tree for tree, _ in self.model.values()]
        sent = data.draw(st.lists(strategies.events(trees, self.space), min_size=1, max_size=3))
        expected = []
        for event in sent:
            ids = {
                key
                for key, (tree, _) in self.model.items()
                if matches(tree, event.attributes, event.at, self.space)
            }
            if deliver == "subscribers":
                owners = {key: self.model[key][1] for key in ids}
                ids = {key if owner is None else owner for key, owner in owners.items()}
            expected.append(ids)
            found = self.matcher.match(event.attributes, at=event.at, deliver=deliver)
            assert each_once(found) == ids
        rows = [row_of(event) for event in sent] * n_copies
        expected = expected * n_copies
        for output in ("ids", "bitset"):
            result = self.matcher.match_many(
                rows, position=POSITION, deliver=deliver, output=output
            )
            assert [each_once(ids) for ids in result] == expected
        result = self.matcher.match_many(rows, position=POSITION, deliver=deliver, output="count")
        assert result.counts.tolist() == [len(ids) for ids in expected]

    @invariant()
    def state_is_the_models(self) -> None:
        if hasattr(self, "matcher"):
            self.check_state(self.matcher)


@pytest.mark.parametrize("engine", ENGINES)
def test_histories(engine: str) -> None:
    machine = type("History_" + engine, (History,), {"engine": engine})
    n_examples = settings().max_examples // 3
    run_state_machine_as_test(
        machine, settings=settings(max_examples=n_examples, stateful_step_count=30)
    )


# ── many ────────────────────────────────────────────────────────────────────────────

N_MANY = 50_000
CITIES = ["Lyon", "Liège", "Łódź", "Linz", "Lviv"]


def random_text(rng: random.Random) -> str:
    low = rng.randrange(1000)
    parts = [
        f"price BETWEEN {low} AND {low + rng.choice([0, 3, 50])}",
        f"city = '{rng.choice(CITIES)}'",
        f"kind LIKE '{rng.choice(['a', 'b', '%c', 'a%'])}'",
        f"NEAR({rng.randrange(100)}, {rng.randrange(100)}, {rng.choice([1, 5])})",
        f"NOT stock < {rng.randrange(20)}",
        f"price IN ({low}, {low + 1}.5, {low + 7})",
    ]
    chosen = rng.sample(parts, rng.choice([2, 3]))
    if rng.random() < 0.2:
        return f"{chosen[0]} AND ({' OR '.join(chosen[1:])})"
    return " AND ".join(chosen)


def random_event(rng: random.Random) -> Event:
    attributes: dict[str, Any] = {
        "price": rng.choice([rng.randrange(1000), rng.randrange(1000) + 0.5, "x"]),
        "city": rng.choice(CITIES),
        "kind": rng.choice(["a", "b", "ac", "c"]),
        "stock": rng.randrange(25),
    }
    for name in list(attributes):
        if rng.random() < 0.1:
            del attributes[name]
    at = None if rng.random() < 0.1 else (rng.uniform(0, 100), rng.uniform(0, 100))
    return Event(attributes, at)


@pytest.mark.parametrize("is_durable", [False, True])
def test_many_subscriptions_with_merges(tmp_path: Path, is_durable: bool) -> None:
    rng = random.Random(50_000)
    model: dict[int, tuple[str, int]] = {}
    matcher = (
        tamis.Matcher.open(tmp_path / "m", create=True, sync="none")
        if is_durable
        else tamis.Matcher()
    )
    chunk = 2500
    n_merges = 0
    for begin in range(0, N_MANY, chunk):
        new = list(range(begin, begin + chunk))
        again = rng.sample(sorted(model), min(len(model), chunk // 2))  # replaces
        ids = new + again
        rng.shuffle(ids)
        texts = [random_text(rng) for _ in ids]
        owners = [rng.randrange(500) for _ in ids]
        matcher.subscribe_many({"id": ids, "predicate": texts, "subscriber": owners})
        model.update(zip(ids, zip(texts, owners, strict=True), strict=True))
        gone = rng.sample(sorted(model), chunk // 4)
        matcher.unsubscribe_many(gone)
        for each in gone:
            del model[each]
        movable = [each for each in rng.sample(sorted(model), 200) if "NEAR" in model[each][0]]
        for each in movable:
            matcher.move(each, rng.randrange(100), rng.randrange(100))
            model[each] = (matcher[each], model[each][1])
        if begin // chunk % 4 == 3:
            matcher.flush()
        n_merges = max(n_merges, matcher.stats()["n_merges"])
        if begin // chunk % 5 == 4:
            check_many(matcher, model, rng, 40)
    assert n_merges > 3
    if is_durable:
        matcher.checkpoint()
        matcher.close()
        matcher = tamis.Matcher.open(tmp_path / "m")
    check_many(matcher, model, rng, 200)
    gone = rng.sample(sorted(model), len(model) * 9 // 10)
    matcher.unsubscribe_many(gone)
    for each in gone:
        del model[each]
    check_many(matcher, model, rng, 40)
    matcher.flush()
    check_many(matcher, model, rng, 40)
    matcher.close()


def check_many(
    matcher: tamis.Matcher, model: dict[int, tuple[str, int]], rng: random.Random, n_events: int
) -> None:
    assert set(matcher) == set(model)
    sent = [random_event(rng) for _ in range(n_events)]
    rows = [row_of(event) for event in sent]
    found = [each_once(ids) for ids in matcher.match_many(rows, position=POSITION)]
    assert sum(map(len, found)) > n_events // 2

    sample = {each: tamis.parse(model[each][0]) for each in rng.sample(sorted(model), 100)}
    # Half of the sample by chance, half because it matches.
    for ids in found:
        sample |= {each: tamis.parse(model[each][0]) for each in sorted(ids)[:2]}
    for event, ids in zip(sent[:40], found, strict=False):
        expected = {
            each for each, tree in sample.items() if matches(tree, event.attributes, event.at)
        }
        assert ids & sample.keys() == expected

    fresh = tamis.Matcher(engine="naive")
    fresh.subscribe_many(
        {
            "id": list(model),
            "predicate": [text for text, _ in model.values()],
            "subscriber": [owner for _, owner in model.values()],
        }
    )
    assert [each_once(ids) for ids in fresh.match_many(rows, position=POSITION)] == found
    for output in ("ids", "bitset"):
        owners = matcher.match_many(rows, position=POSITION, deliver="subscribers", output=output)
        for ids, group in zip(found, owners, strict=True):
            assert each_once(group) == {model[each][1] for each in ids}
    counts = matcher.match_many(rows, position=POSITION, output="count").counts
    assert counts.tolist() == [len(ids) for ids in found]
