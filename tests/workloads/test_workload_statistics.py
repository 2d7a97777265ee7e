"""What the papers state is what the generators give."""

from __future__ import annotations

import math
import re
from collections import Counter

import numpy as np
import pytest

from tamis import workloads
from tamis.workloads import ClcbWorkload, FpgaWorkload, HemWorkload, PcmWorkload
from tamis.workloads._random import Stream, permuted
from tamis.workloads.clcb import SIDE_M

CONSTRAINT = re.compile(r"([as]\d+) (=|!=|<|>) ('v\d+'|\d+)")


def pcm(key: str, n: int = 4000, **overrides: object) -> PcmWorkload:
    workload = workloads.get(key, n_filters=n, **overrides)
    assert isinstance(workload, PcmWorkload)
    return workload


def constraints(workload: workloads.Workload) -> list[list[tuple[str, str, str]]]:
    texts = workload.subscriptions().read_all()["predicate"].to_pylist()
    found = [CONSTRAINT.findall(text) for text in texts]
    for text, parts in zip(texts, found, strict=True):
        assert text == " AND ".join(" ".join(part) for part in parts)
    return found


def test_pcm_filters_have_3_to_5_constraints_on_different_names() -> None:
    filters = constraints(pcm("pcm-default"))
    sizes = Counter(len(parts) for parts in filters)
    assert sorted(sizes) == [3, 4, 5]
    assert all(1200 < n < 1470 for n in sizes.values())
    assert all(len({name for name, _, _ in parts}) == len(parts) for parts in filters)


def test_pcm_operators_and_names_are_equally_frequent() -> None:
    flat = [part for parts in constraints(pcm("pcm-default", 20_000)) for part in parts]
    operators = Counter(operator for _, operator, _ in flat)
    assert all(abs(n / len(flat) - 0.25) < 0.01 for n in operators.values())
    names = Counter(name for name, _, _ in flat)
    assert len(names) == 100
    assert all(abs(n / len(flat) - 0.01) < 0.0015 for n in names.values())
    values = Counter(int(value) for _, _, value in flat)
    assert set(values) == set(range(100))


def test_pcm_constraints_are_never_impossible() -> None:
    for parts in constraints(pcm("pcm-default", 20_000)):
        assert ("<", "0") not in {part[1:] for part in parts}
        assert (">", "99") not in {part[1:] for part in parts}


def test_pcm_subscribers_have_between_90_and_110_percent_of_the_mean() -> None:
    sizes = Counter(
        workloads.get("pcm-default").subscriptions().read_all()["subscriber"].to_pylist()
    )
    assert sorted(sizes) == list(range(10))
    assert sum(sizes.values()) == 250_000
    assert all(22_500 <= n <= 27_500 for n in sizes.values())
    assert len(set(sizes.values())) > 1


def test_pcm_zipf_names_fall_off_as_their_rank() -> None:
    workload = pcm("pcm-zipf", 20_000, min_constraints=1, max_constraints=1)
    names = Counter(parts[0][0] for parts in constraints(workload))
    assert names["a0"] / names["a9"] == pytest.approx(10, rel=0.25)
    harmonic = sum(1 / rank for rank in range(1, 101))
    assert names["a0"] / 20_000 == pytest.approx(1 / harmonic, rel=0.05)


@pytest.mark.parametrize("percent", [0, 25, 50, 100])
def test_pcm_share_of_string_constraints(percent: int) -> None:
    flat = [part for parts in constraints(pcm(f"pcm-strings-{percent}")) for part in parts]
    share = sum(name.startswith("s") for name, _, _ in flat) / len(flat)
    assert abs(share - percent / 100) < 0.02
    assert all(name.startswith("s") == value.startswith("'") for name, _, value in flat)


@pytest.mark.parametrize("n", [1, 4, 9, 20, 50])
def test_pcm_events_have_the_stated_number_of_attributes(n: int) -> None:
    for row in pcm(f"pcm-attributes-{n}").events(100).read_all().to_pylist():
        assert len(row["numbers"]) == n
        assert all(0 <= value <= 99 for _, value in row["numbers"])


def test_pcm_sweeps_keep_their_totals() -> None:
    for n in range(1, 10):
        assert workloads.get(f"pcm-constraints-{n}").n_subscriptions == 25_000
        for text, total in (("200k", 200_000), ("1m", 1_000_000), ("5m", 5_000_000)):
            workload = workloads.get(f"pcm-constraints-{n}-total-{text}")
            assert total - n < workload.n_subscriptions * n <= total
    assert workloads.get("pcm-subscribers-100").n_subscriptions == 2_500_000
    assert workloads.get("pcm-filters-per-subscriber-10").n_subscriptions == 100


def test_hem_intervals_have_the_width_and_lie_in_the_domain() -> None:
    workload = workloads.get("hem-default", n_subscriptions=2000)
    means = []
    for text in workload.subscriptions().read_all()["predicate"].to_pylist():
        parts = re.findall(r"a(\d+) BETWEEN (\d+) AND (\d+)", text)
        assert len(parts) == 10 == len({name for name, _, _ in parts})
        assert text.count(" AND ") == 19
        for _, low, high in parts:
            assert 1 <= int(low) <= int(high) <= 1_000_000
            assert int(high) - int(low) + 1 == 300_000
            means.append((int(low) + int(high)) / 2)
    assert np.mean(means) == pytest.approx(500_000, rel=0.01)


def test_hem_subscriptions_match_as_often_as_their_widths_say() -> None:
    workload = workloads.get("hem-w-0.5-psi-s-5", n_subscriptions=20_000)
    assert isinstance(workload, HemWorkload)
    names, lows, highs = workload._filters(np.arange(20_000))
    events = workload.events(100).read_all().to_pandas().to_numpy()
    shares = []
    for event in events:
        values = event[names]
        shares.append(((lows <= values) & (values <= highs)).all(axis=0).mean())
    assert np.mean(shares) == pytest.approx(0.5**5, rel=0.15)


def test_hem_zipf_skews_the_attributes_of_subscriptions_and_events() -> None:
    def share_of_first(alpha: int) -> tuple[float, float]:
        workload = workloads.get(f"hem-zipf-{alpha}-d-50-psi-s-5-w-0.5", n_subscriptions=2000)
        assert isinstance(workload, HemWorkload)
        names = workload._filters(np.arange(2000)).names
        events = workload.events(200).read_all()["numbers"].to_pylist()
        present = sum(any(name == "a0" for name, _ in event) for event in events)
        return (names == 0).any(axis=0).mean(), present / 200

    assert share_of_first(0) == (pytest.approx(0.1, abs=0.03), pytest.approx(0.4, abs=0.1))
    subscriptions, events = share_of_first(1)
    assert subscriptions > 0.5
    assert events > 0.9
    assert min(share_of_first(5)) > 0.999


def test_fpga_subscriptions_draw_from_1500_distinct_predicates() -> None:
    workload = workloads.get("fpga-default", n_subscriptions=30_000)
    filters = constraints(workload)
    assert {len(parts) for parts in filters} == {10}
    flat = Counter((name, value) for parts in filters for name, _, value in parts)
    assert len(flat) == 1500
    assert all(0 <= int(value) <= 15 for _, value in flat)
    assert all(len({name for name, _, _ in parts}) == 10 for parts in filters[:1000])
    # The first predicate of a subscription is as random as any other.
    firsts = Counter(parts[0][0] for parts in filters)
    assert max(firsts.values()) < 400
    assert min(firsts.values()) > 200


def test_fpga_predicates_spread_around_their_average() -> None:
    sizes = [
        len(parts)
        for parts in constraints(workloads.get("fpga-predicates-5-to-15", n_subscriptions=3000))
    ]
    assert (min(sizes), max(sizes)) == (5, 15)
    assert np.mean(sizes) == pytest.approx(10, abs=0.2)


def test_fpga_events_have_50_attributes() -> None:
    rows = workloads.get("fpga-default").events(100).read_all()["numbers"].to_pylist()
    assert {len(row) for row in rows} == {50}


def test_fpga_skewed_predicates_are_skewed() -> None:
    workload = workloads.get("fpga-skewed", n_subscriptions=3000)
    assert isinstance(workload, FpgaWorkload)
    names, values = workload._filters(np.arange(3000))
    counts = Counter(zip(names.ravel().tolist(), values.ravel().tolist(), strict=True))
    top = sum(n for _, n in counts.most_common(150)) / names.size
    assert top > 0.5
    assert (names == 0).any(axis=0).mean() > 0.8


@pytest.mark.parametrize("percent", ["0.001", "0.01", "0.1", "1"])
def test_clcb_circles_cover_the_stated_share_of_the_area(percent: str) -> None:
    workload = workloads.get(f"clcb-area-{percent}")
    assert isinstance(workload, ClcbWorkload)
    share = math.pi * workload.radius_m**2 / SIDE_M**2
    assert share == pytest.approx(float(percent) / 100, rel=0.001)


def test_clcb_default_has_the_radius_that_the_paper_gives_for_milan() -> None:
    workload = workloads.get("clcb-default")
    assert isinstance(workload, ClcbWorkload)
    assert round(workload.radius_m) == 76


def test_clcb_text_is_one_circle_and_ten_filters() -> None:
    for text in (
        workloads.get("clcb-default", n_subscriptions=300)
        .subscriptions()
        .read_all()["predicate"]
        .to_pylist()
    ):
        found = re.fullmatch(r"NEAR\((\d+\.\d\d), (\d+\.\d\d), 76\.00\) AND \((.*)\)", text)
        assert found
        assert 0 <= float(found[1]) <= SIDE_M
        assert 0 <= float(found[2]) <= SIDE_M
        filters = found[3].split(" OR ")
        assert len(filters) == 10
        for part in filters:
            parts = CONSTRAINT.findall(part)
            assert part == " AND ".join(" ".join(words) for words in parts)
            assert 3 <= len(parts) <= 5
            assert len({int(name[1:]) // 5 for name, _, _ in parts}) == 1


def clcb_selectivity(workload: ClcbWorkload, n_filters: int, n_events: int) -> float:
    """The share of events that a filter's content matches, by brute force."""
    names, operators, values = workload._filters(np.arange(n_filters))
    held = 0
    for event in workload.events(n_events).read_all()["numbers"].to_pylist():
        content = np.full(workload.n_names + 1, -1)
        for name, value in event:
            content[int(name[1:])] = value
        found = content[names]
        holds = np.select(
            [operators == 0, operators == 1, operators == 2],
            [found == values, found != values, found < values],
            found > values,
        )
        held += int((holds & (found >= 0) | (names < 0)).all(axis=0).sum())
    return held / (n_filters * n_events)


def test_clcb_content_holds_for_half_a_percent_of_events() -> None:
    workload = workloads.get("clcb-default")
    assert isinstance(workload, ClcbWorkload)
    assert clcb_selectivity(workload, 5000, 1000) == pytest.approx(0.005, rel=0.1)


def test_clcb_content_that_always_matches_does() -> None:
    workload = workloads.get("clcb-always")
    assert isinstance(workload, ClcbWorkload)
    assert clcb_selectivity(workload, 1000, 100) == 1.0


def test_clcb_zipf_positions_crowd_and_uniform_ones_do_not() -> None:
    def crowding(key: str) -> float:
        """Pairs of an event and a circle around it, relative to the uniform expectation."""
        workload = workloads.get(key)
        assert isinstance(workload, ClcbWorkload)
        x, y = (axis / 100 for axis in workload._places("subscriptions", np.arange(20_000)))
        events = workload.events(500).read_all()
        near = 0
        for ex, ey in zip(events["x"].to_numpy(), events["y"].to_numpy(), strict=True):
            near += int(((x - ex) ** 2 + (y - ey) ** 2 <= workload.radius_m**2).sum())
        return near / (20_000 * 500 * workload.area_share)

    assert crowding("clcb-default") == pytest.approx(1, abs=0.15)
    assert 1.5 < crowding("clcb-zipf") < 6


def test_draws_are_different_for_seeds_purposes_and_columns() -> None:
    rows = np.arange(1000)
    drawn = [
        Stream(seed, purpose).bits(rows, column).tolist()
        for seed in (1, 2)
        for purpose in ("x", "y")
        for column in (0, 1)
    ]
    assert len({value for part in drawn for value in part}) == 8000


def test_distinct_draws_are_uniform_in_every_place() -> None:
    drawn = Stream(3, "test").distinct(np.arange(60_000), 3, 4)
    orders = Counter(zip(*drawn.tolist(), strict=True))
    assert len(orders) == 24
    assert all(abs(n - 2500) < 250 for n in orders.values())


def test_weighted_distinct_draws_follow_successive_sampling() -> None:
    drawn = Stream(3, "test").distinct(np.arange(60_000), 2, 3, np.array([3.0, 2.0, 1.0]))
    orders = Counter(zip(*drawn.tolist(), strict=True))
    assert orders[0, 1] / 60_000 == pytest.approx(3 / 6 * 2 / 3, rel=0.05)
    assert orders[2, 1] / 60_000 == pytest.approx(1 / 6 * 2 / 5, rel=0.1)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 97, 1000])
def test_an_order_visits_everything_once(n: int) -> None:
    assert sorted(permuted(np.arange(n), n, 5).tolist()) == list(range(n))
