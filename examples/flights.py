"""Alerts over real flights, in one process without Spark: `python examples/flights.py`.

Thousands of standing alerts, every tenth flight that left New York in 2013 with the weather at its
departure, month by month. Every number printed is measured in this run.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pyarrow.compute as pc

import tamis
from tamis import workloads
from tamis.testing import oracle
from tamis.workloads.flights import load_flights

N_ALERTS = 5_000
N_SUBSCRIBERS = 1_000
EVERY = 10  # of the flights, in order of date
N_SINGLE = 200  # events that are matched one by one
N_CHECKED = 20  # events that are checked with the oracle
N_BUSIEST = 5
BAR_WIDTH = 34
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

IS_TERMINAL = sys.stdout.isatty()


def main() -> int:
    print(bold("Tamis: which of these alerts does this flight set off?"))

    start = time.perf_counter()
    workload = workloads.get("flights", n_subscriptions=N_ALERTS, n_subscribers=N_SUBSCRIBERS)
    alerts = workload.subscriptions().read_all()
    everything = load_flights()
    flights = everything.take(np.arange(0, len(everything), EVERY))
    title("1. What there is")
    say(f"{len(alerts):,} alerts of {len(pc.unique(alerts['subscriber'])):,} subscribers")
    say(f"{len(flights):,} flights: every {EVERY}th of the {len(everything):,} of 2013")
    say(f"read in {seconds(start)}")

    title("2. Subscribe")
    matcher = tamis.Matcher()
    start = time.perf_counter()
    matcher.subscribe_many(alerts)
    matcher.flush()
    took = time.perf_counter() - start
    stats = matcher.stats()
    [segment] = stats["segments"]
    n_bytes = segment["n_table_bytes"] + segment["n_index_bytes"] + stats["n_store_bytes"]
    say(f"{took * 1e3:.0f} ms: {len(matcher) / took:,.0f} alerts/s, parsed and indexed")
    say(
        f"{segment['n_filters']:,} filters on {stats['n_attributes']} attributes, "
        f"{n_bytes / 2**20:.1f} MiB, engine {segment['engine']}, {stats['threads']} threads"
    )

    title("3. The year goes by")
    hits = np.zeros(len(alerts), dtype=np.int64)  # of each alert; its id is its row
    n_matches = []
    took = 0.0
    for month in range(1, 13):
        progress(f"matching {MONTHS[month - 1]}")
        events = flights.filter(pc.equal(flights["month"], month))
        start = time.perf_counter()
        found = matcher.match_many(events)
        took += time.perf_counter() - start
        hits += np.bincount(found.ids.to_numpy(), minlength=len(alerts))
        n_matches.append((month, len(events), len(found.ids)))
    progress("")
    most = max(n for *_, n in n_matches)
    for month, n_events, n in n_matches:
        half_blocks = round(n / most * BAR_WIDTH * 2)
        bar = "█" * (half_blocks // 2) + "▌" * (half_blocks % 2)
        print(
            f"   {MONTHS[month - 1]} {colour(f'{bar:{BAR_WIDTH}}')} {n:7,} matches "
            f"of {n_events:,} flights"
        )
    say(
        f"{len(flights) / took:,.0f} flights/s in batches: {took:.1f} s for {len(flights):,} "
        f"flights and {hits.sum():,} matches"
    )
    sample = flights.take(np.linspace(0, len(flights) - 1, N_SINGLE, dtype=np.int64)).to_pylist()
    latencies_us = []
    for event in sample:
        start = time.perf_counter()
        matcher.match(event)
        latencies_us.append((time.perf_counter() - start) * 1e6)
    say(
        f"one flight at a time: {np.median(latencies_us):,.0f} µs (median of {len(sample)}), "
        f"{np.quantile(latencies_us, 0.99):,.0f} µs (99 of 100 are faster)"
    )

    title("4. The busiest alerts")
    shown: set[str] = set()
    for alert in np.argsort(-hits, kind="stable").tolist():
        if matcher[alert] not in shown:  # several subscribers may ask for the same
            shown.add(matcher[alert])
            print(f"   {hits[alert]:6,} ×  {shortened(matcher[alert])}")
        if len(shown) == N_BUSIEST:
            break
    say(f"{np.count_nonzero(hits == 0):,} of {len(alerts):,} alerts met no flight")

    title("5. One flight, and whom it concerns")
    event = max(sample, key=lambda each: (each["dep_delay"] or 0) if each["arr_delay"] else 0)
    mine = matcher.match(event)
    them = matcher.match(event, deliver="subscribers")
    say(
        f"{event['carrier']}{event['flight']} {event['origin']} → {event['dest']}, "
        f"{event['time_hour']:%d %B %Y %H:%M} UTC, {event['dep_delay']} minutes late"
    )
    say(f"{len(mine)} alerts of {len(them)} subscribers, among them:")
    for alert in sorted(mine)[:3]:
        owner = alerts["subscriber"][alert].as_py()
        print(f"     subscriber {owner:<5} {shortened(matcher[alert])}")

    title("6. Is that right?")
    trees = [tamis.parse(text) for text in alerts["predicate"].to_pylist()]
    for each in sample[:N_CHECKED]:
        expected = {alert for alert, tree in enumerate(trees) if oracle.matches(tree, each)}
        if set(matcher.match(each)) != expected:
            print("   NO: the plain-Python oracle answers differently. Please report this.")
            return 1
    say(
        f"yes: the plain-Python oracle gives the same alerts for {N_CHECKED} flights × "
        f"{len(trees):,} alerts"
    )

    title("7. A mistake is shown, and changes nothing")
    try:
        matcher.subscribe(len(alerts), "carrier = 'UA' AND dep_delay >= soon")
    except tamis.LanguageError as error:
        print(*(f"     {line}" for line in str(error).splitlines()), sep="\n")
    say(f"still {len(matcher):,} alerts")

    title("Where to go next")
    say("docs/quick-start.md   subscribe and match, from dicts, Arrow, pandas and JSON")
    say("docs/language.md      everything a predicate can say")
    say("examples/geofence.py  places on earth; `make test` runs every example and page")
    return 0


def title(text: str) -> None:
    print(f"\n{bold(text)}")


def say(text: str) -> None:
    print(f"   {text}", flush=True)


def progress(text: str) -> None:
    """A line that the next one overwrites; nothing where nobody watches."""
    if IS_TERMINAL:
        print(f"\r\033[2K   {text}" if text else "\r\033[2K", end="", flush=True)


def bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if IS_TERMINAL else text


def colour(text: str) -> str:
    return f"\033[36m{text}\033[0m" if IS_TERMINAL else text


def seconds(start: float) -> str:
    return f"{time.perf_counter() - start:.1f} s"


def shortened(text: str, width: int = 84) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stderr.close()
        sys.exit(0)
    except workloads.MissingDataError as error:
        sys.exit(f"the demo needs its data: {error}")
