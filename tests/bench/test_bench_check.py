"""Wrong answers are found: tampered answers, tampered matchers, tampered digests."""

from __future__ import annotations

import numpy as np
import pytest

from tamis import workloads
from tamis.bench.answers import collect, difference, digest_event, sort_ids
from tamis.bench.check import Referee, answers_in, check, first_difference, rates, sample_rows
from tamis.bench.subject import Subject


@pytest.fixture
def subject() -> Subject:
    """fpga-default, small, where every event was made to match a subscription."""
    workload = workloads.get("fpga-default", n_subscriptions=60, planted=1.0)
    subject = Subject(workload, "auto", keeps_subscribers=True)
    subject.build()
    return subject


@pytest.fixture
def referee(subject: Subject) -> Referee:
    return Referee(subject.workload, subject.workload.events(15).read_all(), "subscriptions")


@pytest.mark.parametrize(
    ("n_events", "expected"), [(0, 0), (1, 1), (7, 7), (200, 200), (201, 200), (12_345, 200)]
)
def test_the_sample_is_spread_over_the_events(n_events: int, expected: int) -> None:
    rows = sample_rows(n_events)
    assert len(set(rows)) == len(rows) == expected
    assert all(0 <= row < n_events for row in rows)
    if n_events > 400:
        assert max(np.diff(rows)) - min(np.diff(rows)) <= 1
    assert rows == sample_rows(n_events)


def test_equal_answers_in_any_order_are_no_difference() -> None:
    assert difference(0, sort_ids([1, 2, 3]), sort_ids([3, 1, 2])) is None
    assert difference(0, sort_ids(["b", "a"]), sort_ids(["a", "b"])) is None
    assert difference(0, sort_ids([]), sort_ids([])) is None


def test_a_difference_names_missing_extra_and_repeated_ids() -> None:
    found = difference(7, sort_ids([1, 2, 3]), sort_ids([9, 3, 3]), "batch")
    assert found is not None
    assert (found.missing, found.extra, found.n_repeated) == ([1, 2], [9], 1)
    assert str(found) == "event 7 (batch): missing 1, 2; extra 9; 1 ids given twice"
    many = difference(0, sort_ids(range(100)), sort_ids([]))
    assert many is not None
    assert (len(many.missing), many.n_missing) == (10, 100)
    assert "and 90 more" in str(many)


def test_the_digest_depends_on_the_set_alone() -> None:
    assert digest_event(sort_ids([3, 1])) == digest_event(sort_ids([1, 3]))
    different = [[], [1], [1, 1], [1, 2], ["1"], ["1", "2"], ["12"]]
    assert len({digest_event(sort_ids(each)) for each in different}) == len(different)


def test_digests_of_answers_show_the_first_disagreement(subject: Subject) -> None:
    events = subject.workload.events(15).read_all()
    mine, other = (
        collect(subject.matcher, events, None, "subscriptions", max_seconds=10) for _ in range(2)
    )
    assert mine.first_disagreement(other) is None
    assert mine.digest(15) == other.digest(15)
    other.digests[9] = digest_event(sort_ids([12345]))
    assert mine.first_disagreement(other) == 9
    assert mine.digest(9) == other.digest(9)
    assert mine.digest(10) != other.digest(10)


def test_a_right_engine_passes_in_every_way(subject: Subject, referee: Referee) -> None:
    check(subject, referee, ["ids", "bitset", "count"])
    assert subject.wrong == ""
    assert subject.check["by"] == "naive"
    assert subject.check["events"] == 15
    assert subject.check["ways"] == {"batch": 15, "single": 15, "dict": 15}
    assert subject.check["matches"] >= 15


def test_a_slow_engine_is_checked_on_fewer_events_one_by_one(subject: Subject) -> None:
    referee = Referee(subject.workload, subject.workload.events(50).read_all(), "subscriptions")
    check(subject, referee, ["ids"], max_seconds=1e-9)
    assert subject.wrong == ""
    assert subject.check["ways"] == {"batch": 50, "single": 20, "dict": 20}


@pytest.mark.parametrize("output", ["ids", "bitset", "count"])
@pytest.mark.parametrize("way", ["batch", "single"])
def test_tampered_answers_are_found(
    subject: Subject, referee: Referee, way: str, output: str
) -> None:
    right = referee.truth()
    tampered = [*right[:4], np.append(right[4], 999), *right[5:]]
    found = first_difference(referee.rows, tampered, answers_in(way, subject, referee, output), way)
    assert found is not None
    assert (found.event, found.n_missing, found.n_extra) == (referee.rows[4], 1, 0)


def test_a_matcher_that_lacks_a_subscription_is_wrong(subject: Subject, referee: Referee) -> None:
    lost = int(referee.truth()[3][0])
    subject.matcher.unsubscribe(lost)
    check(subject, referee, ["ids"])
    assert f"missing {lost}" in subject.wrong
    assert subject.check["difference"]["missing"] == [lost]


def test_a_matcher_with_a_false_match_is_wrong(subject: Subject, referee: Referee) -> None:
    subject.matcher.subscribe(4711, "TRUE")
    check(subject, referee, ["count"])
    assert subject.check["difference"]["n_extra"] == 1
    check(subject, referee, ["ids"])
    assert "extra 4711" in subject.wrong


@pytest.mark.parametrize("deliver", ["subscriptions", "subscribers"])
def test_a_wrong_naive_is_found_by_the_oracle(deliver: str) -> None:
    workload = workloads.get("pcm-default", n_filters=60, planted=1.0)
    naive = Subject(workload, "naive", keeps_subscribers=True)
    naive.build()
    referee = Referee(workload, workload.events(15).read_all(), deliver)
    referee.borrow(naive)
    check(naive, referee, ["ids"])
    assert naive.wrong == ""
    assert naive.check["by"] == "oracle"
    assert naive.check["pairs"] >= 15 * 60
    naive.matcher.subscribe(0, "FALSE")
    for id in range(1, 60):
        naive.matcher.subscribe(id, "FALSE")
    check(naive, referee, ["ids"])
    assert naive.wrong.startswith("wrong answer by the oracle: event 0")


def test_approximate_engines_get_rates_and_no_verdict() -> None:
    right = [sort_ids([1, 2]), sort_ids([3, 4]), sort_ids([])]
    got = iter([sort_ids([1, 2]), sort_ids([3, 8]), sort_ids([9])])
    assert rates(right, got) == {
        "approximate": True,
        "events_with_differences": 2,
        "false_negatives": 1,
        "false_positives": 2,
        "false_negative_rate": 1 / 4,
        "false_positive_rate": 2 / 5,
    }
