"""A year of flights against the alerts of travellers, on Spark: `make demo`.

Every flight that left New York in 2013, with the weather at its departure, is an event; travellers
have asked to hear of some. First all flights are matched as a table, then they come as a stream
while alerts are added and withdrawn. Every number that is printed was measured in this run.

    python examples/demo.py                            a small one
    python examples/demo.py --alerts 1000000 --flights 336776 --open
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import webbrowser
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tamis.spark as ts
from tamis import Matcher
from tamis.spark import workloads as tables
from tamis.spark.pipeline.report import Report
from tamis.spark.taskstats import read_stats, together
from tamis.workloads import MissingDataError
from tamis.workloads._alerts import Template, write_alerts
from tamis.workloads._arrow import join, pick, quoted, texts
from tamis.workloads._random import Int64s, Stream
from tamis.workloads.flights import FlightsWorkload, load_flights

ENGINE = "tuple-key"
N_CHECKED = 200  # flights whose matches are compared with the engine naive
N_BATCHES = 4  # of the stream


class Travellers(FlightsWorkload):
    """Alerts of people who have booked one of the flights."""

    def _predicates(self, rows: Int64s) -> pa.StringArray:
        return write_alerts(self.seed, "travellers", rows, _templates())


def _templates() -> list[tuple[float, Template]]:
    flights = load_flights()
    n = len(flights)
    column = {
        name: quoted(flights[name].combine_chunks()) for name in ("carrier", "origin", "dest")
    } | {name: texts(flights[name].combine_chunks()) for name in ("flight", "month", "day", "hour")}

    def of(name: str, flight: Int64s) -> pa.StringArray:
        return pick(column[name], flight)

    def my_flight(draws: Stream, rows: Int64s) -> pa.StringArray:
        flight = draws.integers(rows, 0, n)
        delay = texts(5 * (1 + draws.integers(rows, 1, 12)))
        day = join(" AND month = ", of("month", flight), " AND day = ", of("day", flight))
        number = join("carrier = ", of("carrier", flight), " AND flight = ", of("flight", flight))
        return join(number, day, " AND (dep_delay >= ", delay, " OR dep_time IS NULL)")

    def my_connection(draws: Stream, rows: Int64s) -> pa.StringArray:
        flight = draws.integers(rows, 0, n)
        delay = texts(15 * (1 + draws.integers(rows, 1, 8)))
        day = join(" AND month = ", of("month", flight), " AND day = ", of("day", flight))
        route = join("origin = ", of("origin", flight), " AND dest = ", of("dest", flight))
        return join(route, day, " AND hour = ", of("hour", flight), " AND arr_delay > ", delay)

    def bad_weather(draws: Stream, rows: Int64s) -> pa.StringArray:
        flight = draws.integers(rows, 0, n)
        wind = texts(15 + draws.integers(rows, 1, 20))
        day = join("month = ", of("month", flight), " AND day = ", of("day", flight))
        route = join(" AND origin = ", of("origin", flight), " AND dest = ", of("dest", flight))
        return join(day, route, " AND (wind_speed > ", wind, " OR visib < 2 OR precip > 0.1)")

    return [(5, my_flight), (3, my_connection), (2, bad_weather)]


def main() -> int:
    parser = argparse.ArgumentParser(description="A year of flights against travellers' alerts.")
    parser.add_argument("--alerts", type=int, default=5_000)
    parser.add_argument("--flights", type=int, default=5_000)
    parser.add_argument("--open", action="store_true", help="open the result page in a browser")
    parser.add_argument("--page", default="demo.html", help="where the result page goes")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tamis-demo-"))
    spark = ts.session("tamis demo", conf={"spark.driver.memory": "2g"}, scratch=folder / "spark")
    spark.sparkContext.setLogLevel("ERROR")
    try:
        page = demo(spark, folder, args.alerts, args.flights, Path(args.page).absolute())
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    if args.open:
        webbrowser.open(page.as_uri())
    return 0


def demo(spark: SparkSession, folder: Path, n_alerts: int, n_flights: int, page: Path) -> Path:
    began = time.perf_counter()
    workload = Travellers(n_subscriptions=n_alerts, n_subscribers=max(1, n_alerts // 3))
    report = Report(f"{n_flights:,} flights", str(folder / "index"), n_shards=1)

    title("1. Alerts become an index")
    n_tasks = 2 * spark.sparkContext.defaultParallelism
    alerts = tables.subscriptions(spark, workload, n_partitions=n_tasks)
    example = alerts.limit(3).collect()
    for row in example:
        say(f"traveller {row['subscriber']}: {row['predicate']}")
    start = time.perf_counter()
    ref = ts.build_index(alerts, folder / "index", engine=ENGINE)
    report.build_s = time.perf_counter() - start
    report.n_subscriptions, report.version = ref.n_subscriptions, ref.version
    report.n_shards = len(ref.manifest.shards)
    n_mib = sum(shard.n_bytes for shard in ref.manifest.shards) / 2**20
    say(f"{ref.n_subscriptions:,} alerts, parsed and indexed in {report.build_s:.1f} s")
    say(f"{len(ref.manifest.shards)} shards, {n_mib:.0f} MiB, mapped by every worker")

    title("2. The year as a table")
    events = folder / "events"
    flights = tables.events(spark, workload, n_flights, n_partitions=max(4, n_tasks))
    flights.write.parquet(str(events))
    stats = folder / "stats"
    stats.mkdir()
    start = time.perf_counter()
    arguments = {"id": "event", "keep": ["carrier", "flight", "dest"], "stats": str(stats)}
    matches = spark.read.parquet(str(events)).transform(ts.match(ref, **arguments))
    matches.write.parquet(str(folder / "matches"))
    report.match_s = time.perf_counter() - start
    report.tasks = together(read_stats(stats))
    say(
        f"{report.n_events:,} flights, {report.n_matches:,} matches in {report.match_s:.1f} s: "
        f"{report.n_events / report.match_s:,.0f} flights a second"
    )
    found = spark.read.parquet(str(folder / "matches"))
    top = found.groupBy("subscription").count().orderBy(F.desc("count"), "subscription")
    report.busiest = [(row["subscription"], row["count"]) for row in top.limit(8).collect()]
    pushed = spark.read.format("tamis").options(index=ref.path, id="event", output="count")
    start = time.perf_counter()
    total = pushed.load(str(events)).agg(F.sum("n_matches")).collect()[0][0]
    took = time.perf_counter() - start
    say(f"counted by the data source, which reads Parquet itself: {took:.1f} s")
    if total != report.n_matches:
        raise SystemExit("the data source counts other matches; please report this")

    title("3. Is that right?")
    check(workload, found)
    say(f"yes: the engine naive gives the same alerts for {N_CHECKED} flights")

    title("4. The year as a stream, while alerts change")
    spark.read.parquet(str(events)).repartition(N_BATCHES).write.parquet(str(folder / "inbox"))
    stream(spark, folder, ref, report)
    report.total_s = time.perf_counter() - began
    report.write_html(page)

    title("Where to go next")
    say(f"{page}   the result page")
    say("docs/spark.md   index, match, streams, SQL, `tamis pipeline`")
    return page


def check(workload: Travellers, found: DataFrame) -> None:
    matcher = Matcher(engine="naive")
    matcher.subscribe_many(workload.subscriptions().read_all())
    expected = matcher.match_many(workload.events(N_CHECKED).read_all()).pairs().to_pydict()
    mine = found.where(F.col("event") < N_CHECKED).select("event", "subscription").collect()
    if {tuple(row) for row in mine} != set(zip(expected["event"], expected["id"], strict=True)):
        raise SystemExit("NO: the engine naive answers differently. Please report this.")


def stream(spark: SparkSession, folder: Path, ref: ts.IndexRef, report: Report) -> None:
    """Flights come in batches; before each but the first, some alerts go and one comes."""
    source = (
        spark.readStream.schema(spark.read.parquet(str(folder / "inbox")).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "inbox"))
    )
    versions: list[int] = []
    newest = [ref]

    def sink(matches: DataFrame, number: int) -> None:
        start = time.perf_counter()
        ts.to_files(folder / "stream")(matches, number)
        n = spark.read.parquet(str(folder / "stream" / f"batch={number}")).count()
        took = time.perf_counter() - start
        versions.append(newest[0].version)
        say(f"batch {number}: index version {newest[0].version}, {n:,} matches in {took:.1f} s")
        report.add_batch(number, report.n_events // N_BATCHES, took)
        changes = [("unsubscribe", 10 * number + k, None) for k in range(10)]
        changes.append(("subscribe", 10**9 + number, "dep_delay > 600"))
        frame = spark.createDataFrame(changes, "change string, id long, predicate string")
        newest[0] = ts.update_index(newest[0], frame, mode="failfast")

    writer = ts.write_matches(source, ref, sink, id="event")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    changed = spark.read.parquet(str(folder / "stream")).where(F.col("subscription") >= 10**9)
    say(f"{changed.count():,} matches of alerts that were added while the stream ran")
    text = ", ".join(map(str, versions))
    report.notes.append(f"stream     {len(versions)} batches with the index versions {text}")


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def say(text: str) -> None:
    print(f"   {text}", flush=True)


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)
    except MissingDataError as error:
        sys.exit(f"the demo needs its data: {error}")
