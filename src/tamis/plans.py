"""Why a matcher indexes its subscriptions as it does: engines, estimates and what they rest on.

print(matcher.plan())

engine auto: 1 segment, 0 new filters
segment of 3,000 filters
  256 events seen lately: 4.0 attributes each, 0.4 matches estimated
  all of them (3,000 filters): tuple-key, 190 ns an event estimated
    tuple-key      190 ns           20 cells, 4.1 constraints, 1.2 candidates
    naive          9.1 µs   ×48     3,000 filters, 3,120 constraints, 30 candidates
    block-bitmap   …
  from trial indexes over 1,024 filters, 12 ms
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tamis.engines import engines


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one engine would take for an event.

    ns       estimated; is_measured: by an index over all the filters
    work     what it counts for an event: filters, constraints, candidates, cells, nodes, bits
    n_bytes  of its index
    """

    engine: str
    parameters: Mapping[str, float]
    ns: float
    is_measured: bool
    n_bytes: float
    work: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CallCost:
    """What a call of n events takes: ns + event_ns * n, on all threads of the matcher."""

    ns: float
    event_ns: float


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """The second index of a group, on a GPU, for large calls.

    why_not        empty: it is used
    least_events   of a call that goes there; 0: none does
    here, there    as measured on the CPU and on the GPU, None if it did not come to that
    n_index_bytes  of the second index
    """

    engine: str
    why_not: str
    least_events: int
    here: CallCost | None
    there: CallCost | None
    n_index_bytes: int


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Filters of a segment that one engine has.

    filters          which: "all", "with an area", "with a fixed value", "others"
    n_trial_filters  how many the trial indexes had
    estimates        of each candidate, the cheapest first; none if the engine was given
    device           None: no index on a GPU was tried, since calls are small or the engine has none
    """

    filters: str
    engine: str
    parameters: Mapping[str, float]
    n_filters: int
    n_index_bytes: int
    n_trial_filters: int
    estimates: tuple[Estimate, ...]
    device: DevicePlan | None = None

    @property
    def ns(self) -> float | None:
        """Estimated for an event with the engine that it has, if need be with other parameters."""
        same = [each for each in self.estimates if each.engine == self.engine]
        exact = [each for each in same if each.parameters == self.parameters]
        found = exact or same
        return found[0].ns if found else None


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """One segment.

    is_indexed      False: it waits for the next merge
    is_planned      False: the engine was given
    n_events        that the plan rests on; is_guess: made up from the filters, none were seen
    n_attributes    of an event on average
    positions       share of events that have one
    to_subscribers  share of the time of matching that went to events for subscribers
    n_matches       of an event, estimated
    planning_s      CPU time of planning
    best_ns         an event with the plan that the newest estimates favour
    best_single_ns  an event with the best single engine
    """

    n_filters: int
    is_indexed: bool
    is_planned: bool
    n_events: int
    is_guess: bool
    n_attributes: float
    positions: float
    to_subscribers: float
    n_matches: float
    planning_s: float
    best_ns: float
    best_single_ns: float
    groups: tuple[GroupPlan, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """How a matcher indexes its subscriptions; `str` says it in words, `to_dict` as plain data.

    engine         as it was asked for: "auto", or a name
    n_new_filters  that are not in a segment yet
    """

    engine: str
    n_new_filters: int
    segments: tuple[SegmentPlan, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        n_segments = _counted(len(self.segments), "segment")
        lines = [f"engine {self.engine}: {n_segments}, {self.n_new_filters:,} new filters"]
        for segment in self.segments:
            lines += _segment_lines(segment)
        return "\n".join(lines)


def to_plan(engine: str, n_new_filters: int, segments: list[dict[str, Any]]) -> Plan:
    """From what the core tells."""

    def device(facts: dict[str, Any] | None) -> DevicePlan | None:
        if facts is None:
            return None
        here, there = (
            None if cost is None else CallCost(**cost)
            for cost in (facts.pop("here"), facts.pop("there"))
        )
        return DevicePlan(**facts, here=here, there=there)

    def group(facts: dict[str, Any]) -> GroupPlan:
        estimates = tuple(Estimate(**each) for each in facts.pop("estimates"))
        on_device = device(facts.pop("device"))
        return GroupPlan(**facts, estimates=estimates, device=on_device)

    found = []
    for facts in segments:
        groups = tuple(group(each) for each in facts.pop("groups"))
        found.append(SegmentPlan(**facts, groups=groups))
    return Plan(engine, n_new_filters, tuple(found))


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def _time(ns: float) -> str:
    for limit, unit in ((1e3, "ns"), (1e6, "µs"), (1e9, "ms")):
        if ns < limit:
            return f"{ns * 1e3 / limit:.3g} {unit}"
    return f"{ns / 1e9:.3g} s"


def _amount(n: float) -> str:
    return f"{n:,.0f}" if n >= 10 else f"{n:.2g}"


def _segment_lines(segment: SegmentPlan) -> list[str]:
    lines = [f"segment of {_counted(segment.n_filters, 'filter')}"]
    if not segment.is_indexed:
        return [*lines, "  waits for the next merge; until then by a pivot of each filter"]
    if not segment.is_planned:
        return lines + [
            f"  {_counted(group.n_filters, 'filter')}: {_label(group)}"
            + (", as asked for" if place == 0 else ", which the other cannot index")
            for place, group in enumerate(segment.groups)
        ]
    if segment.n_events == 0:
        for group in segment.groups:
            which = f"{_counted(group.n_filters, 'filter')}: {_label(group)}"
            lines += [f"  {which}, as planned when it was saved", *_device_lines(group)]
        return lines
    seen = "made up from the filters, since none were seen" if segment.is_guess else "seen lately"
    located = f", {segment.positions:.0%} with a position" if segment.positions else ""
    delivered = ", delivered to subscribers" if segment.to_subscribers >= 0.5 else ""
    lines.append(
        f"  {_counted(segment.n_events, 'event')} {seen}: {segment.n_attributes:.1f} attributes "
        f"each{located}{delivered}, {_amount(segment.n_matches)} matches estimated"
    )
    present = [group.ns for group in segment.groups]
    for group in segment.groups:
        lines += _group_lines(group)
    if len(segment.groups) > 1:
        lines.append(
            f"  one engine for all of them: {_time(segment.best_single_ns)} at best, instead of "
            f"{_time(segment.best_ns)}"
        )
    known = [ns for ns in present if ns is not None]
    if len(known) == len(present) and sum(known) > 1.2 * segment.best_ns:
        lines.append(
            f"  the newest estimates favour another plan, {_time(segment.best_ns)}: not enough to "
            "build the index again before the next merge"
        )
    n_tried = max(group.n_trial_filters for group in segment.groups)
    took = _time(segment.planning_s * 1e9)
    lines.append(f"  from trial indexes over {_counted(n_tried, 'filter')}, {took}")
    return lines


def _settings(engine: str, parameters: Mapping[str, float]) -> str:
    """The parameters that do not have their presets."""
    presets = {
        each.name: each.preset
        for found in engines()
        if found.name == engine
        for each in found.parameters
    }
    return "".join(
        f" {name}={value:g}" for name, value in parameters.items() if value != presets.get(name)
    )


def _label(group: GroupPlan) -> str:
    return group.engine + _settings(group.engine, group.parameters)


def _group_lines(group: GroupPlan) -> list[str]:
    which = "all of them" if group.filters == "all" else group.filters
    estimated = f", {_time(group.ns)} an event estimated" if group.ns is not None else ""
    lines = [f"  {which} ({_counted(group.n_filters, 'filter')}): {_label(group)}{estimated}"]
    labels = [each.engine + _settings(each.engine, each.parameters) for each in group.estimates]
    width = max(map(len, labels), default=0)
    least = group.estimates[0].ns if group.estimates else 1.0
    for label, each in zip(labels, group.estimates, strict=True):
        times = f"×{_amount(each.ns / least)}" if each.ns > least else ""
        work = ", ".join(f"{_amount(amount)} {name}" for name, amount in each.work.items())
        how = "measured: " if each.is_measured and group.n_trial_filters < group.n_filters else ""
        lines.append(f"    {label:<{width}}  {_time(each.ns):>8}  {times:<8}{how}{work}")
    return lines + _device_lines(group)


def _device_lines(group: GroupPlan) -> list[str]:
    device = group.device
    if device is None:
        return []
    if device.why_not:
        text = f"not on the GPU: {device.why_not}"
    else:
        text = f"on the GPU from {_counted(device.least_events, 'event')} of a call"
    if device.here and device.there:
        text += f": {_cost(device.there)} there, {_cost(device.here)} here"
    return [f"    {text}"]


def _cost(cost: CallCost) -> str:
    each = f"{_time(cost.event_ns)} an event"
    return f"{_time(cost.ns)} + {each}" if cost.ns >= cost.event_ns else each
