"""Many threads and forked processes: every answer is that of one state, and nothing hangs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import tamis
from tamis import workloads

N_READERS = 3


@pytest.fixture(autouse=True)
def _quick_switches() -> Iterator[None]:
    """Threads of Python take turns often, so that more orders of events are seen."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def run_together(
    write: Callable[[], None], read: Callable[[], None], n_readers: int = N_READERS
) -> None:
    """`read` again and again in several threads while `write` runs once; errors of all come out."""
    is_done = threading.Event()
    has_begun = threading.Barrier(n_readers + 1)

    def reader() -> int:
        has_begun.wait(60)
        n_reads = 0
        while not is_done.is_set() or n_reads == 0:
            read()
            n_reads += 1
        return n_reads

    with ThreadPoolExecutor(n_readers) as pool:
        readers = [pool.submit(reader) for _ in range(n_readers)]
        has_begun.wait(60)
        try:
            write()
        finally:
            is_done.set()
        assert all(each.result(timeout=60) > 0 for each in readers)


def test_a_replacement_is_seen_whole_or_not_at_all() -> None:
    matcher = tamis.Matcher(threads=1)
    matcher.subscribe_many({"id": list(range(1, 50)), "predicate": ["never = 1"] * 49})
    matcher.subscribe(0, "x = 1")
    events = [{"x": 1}, {"x": 2}]

    def write() -> None:
        for number in range(3000):
            matcher.subscribe(0, "x = 2" if number % 2 == 0 else "x = 1")

    def read() -> None:
        for output in ("ids", "bitset", "count"):
            assert sorted(matcher.match_many(events, output=output).counts.tolist()) == [0, 1]
        assert matcher[0] in ("x = 1", "x = 2")
        assert 0 in matcher
        assert len(matcher) == 50

    run_together(write, read)
    assert matcher.match({"x": 1}) == [0]


def test_a_batch_is_seen_whole_or_not_at_all() -> None:
    matcher = tamis.Matcher(threads=1)
    n_rows = 40
    generations = list(range(120))
    ids = list(range(n_rows))

    def table(generation: int) -> dict[str, list[Any]]:
        return {
            "id": ids,
            "predicate": [f"g = {generation} OR old{number % 3} = 1" for number in ids],
            "subscriber": [number % 4 for number in ids],
        }

    matcher.subscribe_many(table(0))
    events = [{"g": generation} for generation in generations]

    def write() -> None:
        for generation in generations[1:]:
            matcher.subscribe_many(table(generation))

    def read() -> None:
        for deliver, n_wanted in (("subscriptions", n_rows), ("subscribers", 4)):
            result = matcher.match_many(events, deliver=deliver)
            counts = [count for count in result.counts.tolist() if count]
            assert counts == [n_wanted]
            assert sorted(result.ids.to_pylist()) == list(range(n_wanted))
        assert len(list(matcher)) == n_rows

    run_together(write, read)


def test_a_removal_of_many_is_seen_whole_or_not_at_all() -> None:
    matcher = tamis.Matcher(threads=1)
    names = [f"s{number}" for number in range(60)]
    table = {"id": names, "predicate": ["x = 1"] * 60}
    matcher.subscribe("always", "x = 1")

    def write() -> None:
        for _ in range(150):
            matcher.subscribe_many(table)
            matcher.unsubscribe_many(names)

    def read() -> None:
        found = matcher.match({"x": 1})
        assert "always" in found
        assert len(found) == len(set(found))
        assert len(found) in (1, 61)
        result = matcher.match_many([{"x": 1}], output="bitset")
        assert set(result.to_ids(0)) in ({"always"}, {"always", *names})

    run_together(write, read)
    assert matcher.match({"x": 1}) == ["always"]


def test_new_attributes_disturb_no_match() -> None:
    """What one thread subscribes must never make another's match an error."""
    matcher = tamis.Matcher(threads=1)
    matcher.subscribe("known", "x = 1")
    event = {"x": 1} | {f"new{number}": 1 for number in range(50)}
    line = "{" + ", ".join(f'"{name}": 1' for name in event) + "}\n"
    table = pa.table({name: [1] * 300 for name in event})

    def write() -> None:
        for number in range(2000):
            matcher.subscribe(f"s{number}", f"new{number} = 2")

    def read() -> None:
        assert matcher.match(event) == ["known"]
        for result in (
            matcher.match_many([event] * 300),
            matcher.match_many(table),
            matcher.match_json(line * 300),
        ):
            assert result.ids.to_pylist() == ["known"] * 300

    run_together(write, read)


def test_a_subscription_that_comes_while_events_are_read_disturbs_nothing() -> None:
    """The order that the test above hopes for, by force: the stream waits for the other thread."""
    matcher = tamis.Matcher(threads=1)
    matcher.subscribe("known", "x = 1")
    batch = pa.record_batch({"x": [1], "new": [1]})

    def slow_stream() -> Iterator[pa.RecordBatch]:
        yield batch
        other = threading.Thread(target=matcher.subscribe, args=("late", "new = 1"))
        other.start()
        other.join(60)
        yield batch

    reader = pa.RecordBatchReader.from_batches(batch.schema, slow_stream())
    result = matcher.match_many(reader)
    assert [set(ids) for ids in result] in ([{"known"}] * 2, [{"known", "late"}] * 2)
    assert set(matcher.match({"x": 1, "new": 1})) == {"known", "late"}


def test_what_a_call_changed_is_seen_by_the_next_match_of_any_thread() -> None:
    matcher = tamis.Matcher(threads=1)
    matcher.subscribe("other", "x = -1")

    def worker(name: str) -> None:
        for number in range(150):
            matcher.subscribe(name, f"x = {number} AND who = '{name}'")
            assert matcher.match({"x": number, "who": name}) == [name]
            matcher.unsubscribe(name)
            assert matcher.match({"x": number, "who": name}) == []
            assert name not in matcher

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(worker, f"t{number}") for number in range(4)]:
            done.result(timeout=60)
    assert list(matcher) == ["other"]


def test_an_index_that_cannot_be_built_is_told_to_everybody_who_waits_for_it() -> None:
    """The first to be told takes the error away; the others are told by the next try."""
    # Such a number of groups is refused when the index is built.
    matcher = tamis.Matcher(engine="tuple-key", parameters={"groups": 1.5})
    matcher.subscribe_many({"id": list(range(5000)), "predicate": ["x > 1"] * 5000})
    errors: list[Exception] = []

    def flush() -> None:
        try:
            matcher.flush()
        except tamis.ArgumentError as error:
            errors.append(error)

    threads = [threading.Thread(target=flush, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert ["groups" in str(error) for error in errors] == [True] * 4
    assert len(matcher.match({"x": 2})) == 5000  # nothing is lost


def test_many_threads_share_the_pool() -> None:
    matcher = tamis.Matcher(threads=2)
    matcher.subscribe_many(
        {"id": list(range(100)), "predicate": [f"x >= {number}" for number in range(100)]}
    )
    events = [{"x": number % 120} for number in range(1500)]
    expected = [min(number % 120 + 1, 100) for number in range(1500)]

    def worker(_: int) -> None:
        for output in ("ids", "bitset", "count"):
            assert matcher.match_many(events, output=output).counts.tolist() == expected

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(worker, range(8)))


def test_answers_are_kept_while_the_matcher_changes() -> None:
    matcher = tamis.Matcher(threads=1)
    names = [f"name {number}" for number in range(300)]
    table = {"id": names, "predicate": ["x = 1"] * 300}
    matcher.subscribe_many(table)
    kept: list[tamis.Matches] = []

    def write() -> None:
        for _ in range(30):
            matcher.unsubscribe_many(names)
            matcher.subscribe_many(table)

    def read() -> None:
        if len(kept) < 200:
            kept.append(matcher.match_many([{"x": 1}], output="bitset"))
            kept.append(matcher.match_many([{"x": 1}]))

    run_together(write, read)
    for result in kept:
        assert set(result.to_ids(0)) in (set(), set(names))


def test_an_error_in_one_thread_leaves_the_others_alone() -> None:
    matcher = tamis.Matcher(space="earth", threads=2)
    matcher.subscribe(1, "NEAR(0, 0, 1000)")
    good = [{"x": 0.0, "y": 0.0}] * 1000
    bad = [*good, {"x": 0.0, "y": 99.0}]

    def write() -> None:
        for _ in range(20):
            with pytest.raises(tamis.EventError):
                matcher.match_many(bad, position=("x", "y"))

    def read() -> None:
        assert matcher.match_many(good, position=("x", "y")).counts.sum() == 1000

    run_together(write, read)


# ── fork ────────────────────────────────────────────────────────────────────────────


def pooled_matcher() -> tuple[tamis.Matcher, list[dict[str, int]], list[int]]:
    """A matcher whose thread pool has been used, events, and their counts."""
    matcher = tamis.Matcher(threads=2)
    matcher.subscribe_many(
        {"id": list(range(50)), "predicate": [f"x >= {number}" for number in range(50)]}
    )
    events = [{"x": number % 60} for number in range(2000)]
    expected = [min(number % 60 + 1, 50) for number in range(2000)]
    assert matcher.match_many(events).counts.tolist() == expected
    return matcher, events, expected


def exit_code_of_child(work: Callable[[], bool]) -> int:
    """Forks, runs `work` in the child, and gives its exit code: 0 if it was true."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(20)  # a hang ends in a signal, not in a test that never ends
            code = 0 if work() else 3
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_matches_after_the_parent_used_its_threads() -> None:
    matcher, events, expected = pooled_matcher()

    def work() -> bool:
        is_right = matcher.match_many(events).counts.tolist() == expected
        matcher.subscribe(50, "x >= 0")  # a child may change its copy, too
        again = matcher.match_many(events).counts.tolist()
        return is_right and again == [count + 1 for count in expected]

    for _ in range(3):
        assert exit_code_of_child(work) == 0
    assert matcher.match_many(events).counts.tolist() == expected
    assert len(matcher) == 50


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_child_matches() -> None:
    matcher, events, expected = pooled_matcher()

    def right() -> bool:
        return bool(matcher.match_many(events).counts.tolist() == expected)

    assert exit_code_of_child(lambda: right() and exit_code_of_child(right) == 0 and right()) == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_while_other_threads_match_can_match() -> None:
    """A lock that another thread held at the fork must not stay locked in the child."""
    matcher, events, expected = pooled_matcher()

    def right() -> bool:
        return bool(matcher.match_many(events).counts.tolist() == expected)

    def write() -> None:
        for _ in range(60):
            assert exit_code_of_child(right) == 0

    run_together(write, lambda: None if right() else pytest.fail("the parent was wrong"), 2)


def _count(pipe: Any, matcher: tamis.Matcher, events: list[dict[str, int]]) -> None:
    pipe.send(matcher.match_many(events).counts.tolist())
    pipe.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_processes_of_multiprocessing_match() -> None:
    matcher, events, expected = pooled_matcher()
    context = multiprocessing.get_context("fork")
    receivers, processes = [], []
    for _ in range(2):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_count, args=(sender, matcher, events))
        process.start()
        receivers.append(receiver)
        processes.append(process)
    for receiver in receivers:
        assert receiver.poll(60), "the child does not answer"
        assert receiver.recv() == expected
    for process in processes:
        process.join(60)
        assert process.exitcode == 0


@pytest.mark.parametrize("threads", [1, 3])
def test_a_table_that_is_encoded_in_parts_gives_the_same_answers(threads: int) -> None:
    workload = workloads.get("pcm-strings-100", n_filters=500, planted=0.5)
    events = workload.events(20_000).read_all()
    chunks = [events.slice(at, 7_000) for at in (0, 7_000, 14_000)]
    table = pa.concat_tables([*chunks, events.slice(0, 0)])
    matcher = tamis.Matcher(threads=threads)
    matcher.subscribe_many(workload.subscriptions().read_all())
    matcher.flush()
    for output in ("ids", "count", "bitset"):
        found = matcher.match_many(table, output=output)
        expected = matcher.match_many(matcher.encode(table), output=output)
        assert found.counts.tolist() == expected.counts.tolist()
        assert found.counts.sum() > 1000
        if output != "count":
            assert list(map(sorted, found)) == list(map(sorted, expected))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_bad_row_of_a_large_table_is_named_by_its_place_in_the_table(threads: int) -> None:
    matcher = tamis.Matcher(threads=threads)
    matcher.subscribe_many({"id": range(500), "predicate": [f"m = {i}" for i in range(500)]})
    entries = [[("m", i % 600)] for i in range(20_000)]
    entries[17_321] = [("m", 1), ("m", 2)]
    table = pa.table({"all": pa.array(entries, pa.map_(pa.string(), pa.int64()))})
    with pytest.raises(tamis.EventError, match="row 17321: attribute 'm' must come once"):
        matcher.match_many(table)
