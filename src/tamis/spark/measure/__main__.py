"""Measures matching on Spark, and writes what it found as lines of Markdown.

python -m tamis.spark.measure worker --workload pcm-default --events 200000 --shards 1,4
python -m tamis.spark.measure paths --workload pcm-default --events 1000000
python -m tamis.spark.measure sql --events 100000
python -m tamis.spark.measure scaling --events 100000,1000000 --shards 1,4,32 --cores 1,2
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

import tamis.spark as ts
from tamis import Matcher, workloads
from tamis.spark import workloads as tables
from tamis.spark.building import Rejected, built_shard, new_matcher, now, publish
from tamis.spark.manifest import Manifest
from tamis.spark.matching import EventMatcher, Wanted
from tamis.spark.measure.cpu import least, measured
from tamis.spark.measure.sql import (
    explode_and_count,
    filters_of,
    key_sizes,
    nested_loop,
    triple_of_names,
)
from tamis.spark.parquetfiles import ParquetFiles
from tamis.spark.store import Store
from tamis.spark.taskstats import read_stats
from tamis.workloads import Workload


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tamis.spark.measure")
    parser.add_argument("what", choices=("worker", "paths", "sql", "scaling"))
    parser.add_argument("--workload", default="pcm-default")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--events", default="1000000", help="numbers with commas between")
    parser.add_argument("--subscriptions", type=int, help="as the workload has them unless told")
    parser.add_argument("--shards", default="1")
    parser.add_argument("--cores", default="1")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--slow-events", type=int, default=50, help="for the slow SQL")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tamis-measure-"))
    try:
        measures = {"worker": worker, "paths": paths, "sql": sql, "scaling": scaling}
        for line in measures[args.what](args, folder):
            print(line, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def start(folder: Path, cores: str) -> SparkSession:
    conf: dict[str, str | int | bool] = {
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": 8,
    }
    spark = ts.session("measure", f"local[{cores}]", conf=conf, scratch=folder / "spark")
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def workload_of(args: argparse.Namespace) -> Workload:
    size = {} if args.subscriptions is None else {"n_subscriptions": args.subscriptions}
    return workloads.get(args.workload, **size)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def attributes(workload: Workload) -> dict[str, Any]:
    maps = [f.name for f in workload.events(0).schema if pa.types.is_map(f.type)]
    return {"position": workload.position, **({"attrs": maps} if maps else {})}


def write_events(workload: Workload, n: int, path: Path) -> None:
    """Without Spark, so that its workers are not warm for one path alone."""
    path.mkdir()
    place = 0
    for batch in workload.events(n, 500_000):
        numbered = [pa.array(range(place, place + batch.num_rows), pa.int64()), *batch.columns]
        table = pa.table(numbered, names=["event", *batch.schema.names])
        pq.write_table(table, path / f"{place:012d}.parquet", row_group_size=100_000)
        place += batch.num_rows


def total(counts: DataFrame) -> int:
    return int(counts.agg(F.sum("n_matches")).collect()[0][0])


def fingerprint(pairs: DataFrame) -> tuple[int, int]:
    """How many pairs there are, and a hash of them in any order."""
    hashed = F.xxhash64(*(F.col(name).cast("long") for name in pairs.columns))
    row = pairs.agg(F.count(F.lit(1)), F.bit_xor(hashed)).collect()[0]
    return int(row[0]), int(row[1] or 0)


def agree(name: str, found: object, expected: object) -> None:
    """A time is worth nothing where the answers differ."""
    if found != expected:
        raise RuntimeError(f"{name} must give the matches {expected}, not {found}")


def worker(args: argparse.Namespace, folder: Path) -> Iterator[str]:
    """What a Python worker does, without Spark: the engine alone, and all that is around it."""
    workload = workload_of(args)
    [n] = numbers(args.events)
    write_events(workload, n, folder / "events")
    os.environ["TAMIS_SPARK_CACHE"] = str(folder / "cache")
    files = ParquetFiles(str(folder / "events"))
    table = workload.subscriptions().read_all()
    rows = workload.events(n).read_all().to_batches(max_chunksize=10_000)
    words = {name: value for name, value in attributes(workload).items() if value}
    yield f"{workload.key}, {workload.n_subscriptions:,} subscriptions, {n:,} events, {args.engine}"
    yield "| shards | MiB | engine µs | worker µs | Parquet and worker µs | engine / worker |"
    yield "|---|---|---|---|---|---|"
    for n_shards in numbers(args.shards):
        manifest = Manifest(1, workload.space, args.engine, {}, "bigint", "id", now(), ())
        store = Store(str(folder / f"index-{n_shards}"))
        built, matchers = [], []
        for number in range(n_shards):
            matcher = new_matcher(manifest)
            matcher.subscribe_many(table.take(pa.array(range(number, len(table), n_shards))))
            built.append(built_shard(store, number, matcher, Rejected()))
            matchers.append(matcher)
        ref = publish(store, manifest, {}, built, n_shards, "failfast")
        wanted = Wanted("event", output="count", **words)
        plan, _ = wanted.plan(ref, from_arrow_schema(files.schema()))
        selected = [
            plan.columns.take(batch)
            for path in files.paths()
            for batch in files.open(path).iter_batches(batch_size=10_000)
        ]

        n_matches: dict[str, int] = {}

        def engine(matchers: list[Matcher] = matchers, n: dict[str, int] = n_matches) -> None:
            n["engine"] = sum(
                int(
                    matcher.match_many(
                        batch, output="count", position=workload.position
                    ).counts.sum()
                )
                for batch in rows
                for matcher in matchers
            )

        def in_worker(
            plan: EventMatcher = plan, selected: list[Any] = selected, n: dict[str, int] = n_matches
        ) -> None:
            n["worker"] = sum(found.column(1).sum().as_py() for found in plan(iter(selected)))

        def from_parquet(plan: EventMatcher = plan, n: dict[str, int] = n_matches) -> None:
            n["Parquet and worker"] = 0
            for path in files.paths():
                found = files.open(path).iter_batches(columns=plan.columns.sources())
                for part in plan(plan.columns.take(batch) for batch in found):
                    n["Parquet and worker"] += part.column(1).sum().as_py()

        best: dict[str, float] = {}
        for _ in range(args.repetitions + 1):
            for name, work in (("e", engine), ("w", in_worker), ("p", from_parquet)):
                best[name] = min(best.get(name, float("inf")), measured(work)[0] / n * 1e6)
        for name, found in n_matches.items():
            agree(name, found, n_matches["engine"])
        n_mib = sum(shard.n_bytes for shard in ref.manifest.shards) / 2**20
        yield (
            f"| {n_shards} | {n_mib:.0f} | {best['e']:.2f} | {best['w']:.2f} | {best['p']:.2f} | "
            f"{best['e'] / best['w']:.0%} |"
        )


def paths(args: argparse.Namespace, folder: Path) -> Iterator[str]:
    """`match` against its two parts, and pushdown against `match`: all in one run."""
    workload = workload_of(args)
    [n] = numbers(args.events)
    write_events(workload, n, folder / "events")
    spark = start(folder, args.cores)
    ref = ts.build_index(
        tables.subscriptions(spark, workload),
        folder / "index",
        engine=args.engine,
        n_shards=int(args.shards),
        space=workload.space,
    )
    words = attributes(workload)
    events = spark.read.parquet(str(folder / "events"))
    options = {k: ",".join(v) for k, v in words.items() if v}
    pushed = spark.read.format("tamis").options(index=ref.path, id="event", **options)

    def boundary() -> None:
        def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield pa.record_batch([pa.array([batch.num_rows])], names=["n"])

        events.mapInArrow(count, "n long").agg(F.sum("n")).collect()

    sums: dict[str, Any] = {}

    def take(name: str, pairs: DataFrame) -> None:
        sums[name] = fingerprint(pairs)

    def match() -> None:
        take("match", events.transform(ts.match(ref, id="event", **words)))

    def pushdown() -> None:
        take("pushdown", pushed.load(str(folder / "events")))

    matcher = Matcher(engine=args.engine, space=workload.space, threads=1)
    matcher.subscribe_many(workload.subscriptions().read_all())
    matcher.flush()
    sample = workload.events(min(n, 200_000)).read_all()
    batches = sample.to_batches(max_chunksize=10_000)

    def engine() -> None:
        for batch in batches:
            matcher.match_many(batch, position=workload.position)

    for work in (engine, boundary, match, pushdown):  # workers start, shards are mapped
        work()
    us: dict[str, float] = {}
    for _ in range(args.repetitions):  # interleaved
        # In this process alone: the JVM has things to do after a query.
        began = time.process_time()
        engine()
        spent = {"engine": (time.process_time() - began) / len(sample)}
        for name, work in (("boundary", boundary), ("match", match), ("pushdown", pushdown)):
            spent[name] = measured(work)[0] / n
        us = {name: min(us.get(name, float("inf")), each * 1e6) for name, each in spent.items()}
    agree("pushdown", sums["pushdown"], sums["match"])
    bound = us["engine"] + us["boundary"]
    yield f"{workload.key}, {workload.n_subscriptions:,} subscriptions, {n:,} events, "
    yield f"engine {args.engine}, {args.shards} shards, local[{args.cores}]"
    yield "| | CPU µs an event | events a CPU second |"
    yield "|---|---|---|"
    for name, each in us.items():
        yield f"| {name} | {each:.2f} | {1e6 / each:,.0f} |"
    yield f"match: {bound / us['match']:.0%} of 1/(1/engine + 1/boundary)"
    yield f"pushdown: {us['match'] / us['pushdown']:.1f} × match"
    spark.stop()


def sql(args: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Beside what users would write, on pcm-default and on a mix that breaks the skilled one."""
    spark = start(folder, args.cores)
    [n] = numbers(args.events)
    mix = {"min_constraints": 1, "max_constraints": 2, "min_attributes": 20, "max_attributes": 20}
    size = {} if args.subscriptions is None else {"n_subscriptions": args.subscriptions}
    for title, parameters in (("pcm-default", {}), ("1-2 constraints, 20 attributes", mix)):
        is_mix = parameters == mix
        workload = workloads.get("pcm-default", **parameters, **size)
        ref = ts.build_index(
            tables.subscriptions(spark, workload),
            folder / ("index-mix" if is_mix else "index"),
            engine=args.engine,
            n_shards=1,
        )
        filters = filters_of(spark, workload).persist()
        filters.count()
        yield f"{title}, {workload.n_subscriptions:,} filters"
        yield "| | events | events a CPU second | tamis is |"
        yield "|---|---|---|---|"

        def table(n_events: int, name: str, workload: Workload = workload) -> DataFrame:
            path = folder / f"{name}-{n_events}-{workload.parameters['max_constraints']}"
            if not path.exists():
                write_events(workload, n_events, path)
            return spark.read.parquet(str(path))

        def rate(work: Any, n_events: int) -> float:
            work()
            return n_events / least(work, args.repetitions)[0]

        # Tamis has a second of its own for each query, which many events pay off; the others are
        # slow enough without, and so are events of the mix, which have thousands of matches each.
        few = max(1, args.slow_events // 5) if is_mix else args.slow_events
        n_mine = max(few * 20, n // 1000) if is_mix else n
        n_skilled = few * 20 if is_mix else n // 10
        many = table(n_mine, "many")
        pairs = many.transform(ts.match(ref, id="event", attrs="numbers"))
        mine = rate(lambda f=pairs: f.count(), n_mine)
        yield f"| tamis.spark.match | {n_mine:,} | {mine:,.0f} | |"
        lists = many.transform(ts.match(ref, id="event", attrs="numbers", output="list"))
        # A new query each time: Spark keeps what one has shuffled.
        listed = rate(lambda f=lists: f.agg(F.sum(F.size("subscriptions"))).collect(), n_mine)
        yield f"| the same, lists instead of pairs | {n_mine:,} | {listed:,.0f} | |"
        some, skilled = table(few, "few"), table(n_skilled, "skilled")
        sizes = key_sizes(filters)
        for name, events, frame, n_events in (
            ("nested loop", some, nested_loop(some, filters), few),
            ("explode, join, count", some, explode_and_count(some, filters), few),
            ("key of three names", skilled, triple_of_names(skilled, filters, sizes), n_skilled),
        ):
            ours = events.transform(ts.match(ref, id="event", attrs="numbers"))
            agree(name, fingerprint(frame), fingerprint(ours))
            theirs = rate(lambda f=frame: f.count(), n_events)
            yield f"| {name} | {n_events:,} | {theirs:,.1f} | {mine / theirs:,.0f} × |"
    spark.stop()


def scaling(args: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Cores, shards and events, with where the time goes."""
    workload = workload_of(args)
    yield f"{workload.key}, {workload.n_subscriptions:,} subscriptions, engine {args.engine}"
    yield "| cores | shards | events | seconds | events/s | CPU s | engine s | Python s | JVM s |"
    yield "|---|---|---|---|---|---|---|---|---|"
    totals: dict[int, int] = {}
    for n in numbers(args.events):
        write_events(workload, n, folder / f"events-{n}")
    for cores in numbers(args.cores):
        spark = start(folder, str(cores))
        for n_shards in numbers(args.shards):
            path = folder / f"index-{n_shards}"
            ref = (
                ts.IndexRef.open(path)
                if path.exists()
                else ts.build_index(
                    tables.subscriptions(spark, workload),
                    path,
                    engine=args.engine,
                    n_shards=n_shards,
                    space=workload.space,
                )
            )
            for n in numbers(args.events):
                yield _scaling_row(spark, workload, ref, folder, cores, n_shards, n, totals)
        spark.stop()


def _scaling_row(
    spark: SparkSession,
    workload: Workload,
    ref: ts.IndexRef,
    folder: Path,
    cores: int,
    n_shards: int,
    n: int,
    totals: dict[int, int],
) -> str:
    events = spark.read.parquet(str(folder / f"events-{n}"))
    words = attributes(workload)
    stats = folder / "stats"

    def work() -> None:
        shutil.rmtree(stats, ignore_errors=True)
        stats.mkdir()
        matching = ts.match(ref, id="event", output="count", stats=str(stats), **words)
        found = total(events.transform(matching))
        agree(f"local[{cores}] with {n_shards} shards", found, totals.setdefault(n, found))

    work()
    cpu, clock = measured(work)
    tasks = read_stats(stats)
    engine = sum(task.match_s for task in tasks)
    python = sum(task.cpu_s for task in tasks)
    return (
        f"| {cores} | {n_shards} | {n:,} | {clock:.1f} | {n / clock:,.0f} | {cpu:.1f} | "
        f"{engine:.1f} | {max(0.0, python - engine):.1f} | {max(0.0, cpu - python):.1f} |"
    )


if __name__ == "__main__":
    sys.exit(main())
