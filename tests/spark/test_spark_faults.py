"""What goes wrong while a stream or a job runs: the answer is the same, or the error says why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from answers import expected_pairs
from pyspark.sql import SparkSession

import tamis.spark as ts
from tamis import ArgumentError, ArgumentTypeError, StorageError, workloads
from tamis.spark import workloads as tables
from tamis.spark.cache import cache_folder
from tamis.spark.store import Store
from tamis.workloads import Workload

_seeds = count(77)


@pytest.fixture
def workload() -> Workload:
    """Another one for each test: what is equal is in the cache already, and nobody reads it."""
    return workloads.get("pcm-default", n_filters=500, seed=next(_seeds))


@pytest.fixture
def ref(spark: SparkSession, index: str, workload: Workload) -> ts.IndexRef:
    return ts.build_index(tables.subscriptions(spark, workload), index)


def image_of(ref: ts.IndexRef) -> Path:
    [image] = [f for f in ref.manifest.shards[0].files if f.name.endswith(".tamis")]
    [piece] = image.pieces
    return Path(ref.path) / "objects" / piece.hash[:2] / piece.hash


def damage(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def match(spark: SparkSession, ref: ts.IndexRef) -> list:
    events = tables.events(spark, "pcm-default", 100, seed=77)
    return events.transform(ts.match(ref, id="event", attrs="numbers")).collect()


def test_a_worker_that_is_killed_in_the_middle_of_a_batch_is_started_again(
    spark: SparkSession, ref: ts.IndexRef, workload: Workload, tmp_path: Path
) -> None:
    """Spark tries a task that lost its worker again where it may: here in a session of its own."""
    script = f"""
import os, signal
import tamis.spark as ts
from tamis.spark import workloads as tables
spark = ts.session(master="local[1,4]", scratch={str(tmp_path / "scratch")!r},
                   conf={{"spark.driver.memory": "512m"}})
spark.sparkContext.setLogLevel("OFF")
def kill_once(batches):
    for batch in batches:
        yield batch
        try:
            os.mkdir({str(tmp_path / "killed")!r})
        except FileExistsError:
            continue
        os.kill(os.getpid(), signal.SIGKILL)
events = tables.events(spark, "pcm-default", 3000, n_partitions=2, seed={workload.seed})
events = events.mapInArrow(kill_once, events.schema)
ref = ts.IndexRef.open({ref.path!r})
matches = events.transform(ts.match(ref, id="event", attrs="numbers"))
matches.write.parquet({str(tmp_path / "matches")!r})
spark.stop()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "killed").exists()
    rows = spark.read.parquet(str(tmp_path / "matches")).collect()
    assert len(rows) == len(set(rows))
    assert {tuple(row) for row in rows} == expected_pairs(workload, 3000)


# Events come slowly, and who sends them kills who matches them before the last are sent: so a task
# is killed in its middle, however busy the machine is.
KILLED_STREAM = """
import glob, os, signal, sys, time
import tamis.spark as ts
folder, lock = sys.argv[1:]
spark = ts.session(master="local[1,4]", scratch=folder + "/scratch",
                   conf={"spark.driver.memory": "512m",
                         "spark.sql.execution.arrow.maxRecordsPerBatch": 400})
spark.sparkContext.setLogLevel("OFF")
def has_open(descriptor):
    try:
        return os.readlink(descriptor) == lock
    except OSError:  # its process has ended
        return False
def kill_who_matches():
    if os.path.exists(folder + "/killed"):
        return
    for descriptor in filter(has_open, glob.iglob("/proc/[0-9]*/fd/*")):
        os.kill(int(descriptor.split("/")[2]), signal.SIGKILL)
        os.mkdir(folder + "/killed")
        return
def slowly(batches):
    for batch in batches:
        yield batch
        time.sleep(0.05)  # meanwhile some are matched
        kill_who_matches()
schema = spark.read.parquet(folder + "/events").schema
events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder + "/events")
events = events.mapInArrow(slowly, schema)
ts.write_matches(events, folder + "/index", ts.to_files(folder + "/matches"),
                 id="event", attrs="numbers") \\
    .option("checkpointLocation", folder + "/checkpoint") \\
    .trigger(availableNow=True).start().awaitTermination()
tracker = spark.sparkContext.statusTracker()
stages = [tracker.getStageInfo(number) for number in range(100)]
print(sum(stage.numFailedTasks for stage in stages if stage is not None))
spark.stop()
"""


# So many that some are handed on, in buffers of 64 KiB, long before the last are sent.
N_SENT = 24_000


def test_a_worker_that_is_killed_while_it_matches_a_batch_of_a_stream_is_started_again(
    spark: SparkSession, ref: ts.IndexRef, workload: Workload, tmp_path: Path
) -> None:
    """The one that has the shard open is the one that matches."""
    events = tables.events(spark, workload, N_SENT, n_partitions=2)
    events.write.parquet(str(tmp_path / "events"))
    lock = tmp_path / "cache" / f"{ref.manifest.shards[0].key}.lock"
    stream = subprocess.run(
        [sys.executable, "-c", KILLED_STREAM, str(tmp_path), str(lock)],
        env={**os.environ, "TAMIS_SPARK_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert stream.returncode == 0, stream.stderr
    assert (tmp_path / "killed").exists()
    assert int(stream.stdout) >= 1  # tasks that failed
    rows = spark.read.parquet(str(tmp_path / "matches")).collect()
    assert len({row["batch"] for row in rows}) == 2
    found = [(row["event"], row["subscription"]) for row in rows]
    assert len(found) == len(set(found))
    assert set(found) == expected_pairs(workload, N_SENT)


STREAM = """
import os, signal, sys
import tamis.spark as ts
folder, die_at = sys.argv[1:]
spark = ts.session(master="local[1]", scratch=folder + "/scratch",
                   conf={"spark.driver.memory": "512m"})
spark.sparkContext.setLogLevel("OFF")
def die(place):
    if place == die_at:
        os.kill(os.getpid(), signal.SIGKILL)
def sink(matches, number):
    die(f"before {number}")
    ts.to_files(folder + "/matches")(matches, number)
    if number == 0:
        changes = spark.createDataFrame([("unsubscribe", 1)], "change string, id int")
        newest = ts.IndexRef.open(folder + "/index")
        if newest.version == 1:
            ts.update_index(newest, changes)
    die(f"after {number}")
if die_at == "update":
    ts.updating.publish = lambda *words: die("update")
events = spark.readStream.schema("event int, temp int").option("maxFilesPerTrigger", 1)
ts.write_matches(events.json(folder + "/events"), folder + "/index", sink, id="event") \\
    .option("checkpointLocation", folder + "/checkpoint") \\
    .trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


def test_a_driver_that_is_killed_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """Killed during an update, and when a batch is written but not done; then it runs through."""
    rows = [(1, "temp > 30"), (2, "temp > 20")]
    frame = spark.createDataFrame(rows, "id int, predicate string")
    ts.build_index(frame, tmp_path / "index")
    (tmp_path / "events").mkdir()
    for number in range(2):
        path = tmp_path / "events" / f"{number}.json"
        path.write_text(f'{{"event": {number}, "temp": 35}}\n')
        os.utime(path, (1e9 + number, 1e9 + number))  # their order

    def run(die_at: str) -> int:
        words = [sys.executable, "-c", STREAM, str(tmp_path), die_at]
        return subprocess.run(words, capture_output=True, timeout=600, check=False).returncode

    assert run("update") == -signal.SIGKILL
    assert ts.IndexRef.open(tmp_path / "index").version == 1  # no half of an update
    assert run("after 0") == -signal.SIGKILL
    assert ts.IndexRef.open(tmp_path / "index").version == 2
    assert run("nowhere") == 0
    found = [tuple(row) for row in spark.read.parquet(str(tmp_path / "matches")).collect()]
    # Batch 0 was begun with version 1 and keeps it, though version 2 was there when it ran again.
    assert sorted(found) == [(0, 1, 0), (0, 2, 0), (1, 2, 1)]


def test_a_shard_that_was_damaged_is_named(spark: SparkSession, ref: ts.IndexRef) -> None:
    image = image_of(ref)
    damage(image)
    with pytest.raises(Exception, match=rf"the object {image.name} of the index is damaged"):
        match(spark, ref)


def test_a_stream_goes_on_when_a_damaged_shard_was_built_again(
    spark: SparkSession, index: str, workload: Workload, tmp_path: Path
) -> None:
    """Rows in the same order give the engine's image the same bytes, so version 1 is whole, too."""
    events = tables.events(spark, workload, 200, n_partitions=2)
    events.write.parquet(str(tmp_path / "events"))
    source = spark.readStream.schema(events.schema).option("maxFilesPerTrigger", 1)

    def run() -> None:
        query = ts.write_matches(
            source.parquet(str(tmp_path / "events")),
            index,
            ts.to_files(tmp_path / "matches"),
            id="event",
            attrs="numbers",
        ).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    def build() -> ts.IndexRef:
        rows = tables.subscriptions(spark, workload, n_partitions=1)
        return ts.build_index(rows, index, engine="tuple-key")

    ref = build()
    damage(image_of(ref))
    with pytest.raises(
        Exception, match=rf"the object {image_of(ref).name} of the index is damaged"
    ):
        run()
    build()
    run()
    assert [version for _, version in sorted(ref.store.notes("streams").items())] == [b"1", b"2"]
    rows = spark.read.parquet(str(tmp_path / "matches")).select("event", "subscription").collect()
    assert len(rows) == len(set(rows))
    assert {tuple(row) for row in rows} == expected_pairs(workload, 200)


def test_a_shard_that_is_missing_is_named(spark: SparkSession, ref: ts.IndexRef) -> None:
    image = image_of(ref)
    image.unlink()
    with pytest.raises(Exception, match=rf"the object {image.name} of the index is missing"):
        match(spark, ref)


def test_a_shard_that_was_damaged_on_its_node_is_named(
    spark: SparkSession, ref: ts.IndexRef
) -> None:
    match(spark, ref)
    directory = cache_folder() / ref.manifest.shards[0].key
    [image] = directory.glob("*.tamis")
    data = image.read_bytes()
    image.unlink()  # the store's object has the same bytes, and stays
    image.write_bytes(data[: len(data) // 2])
    from tamis.spark.cache import open_shard

    with pytest.raises(StorageError, match=image.name):
        open_shard(ref.store, ref.manifest, ref.manifest.shards[0])


def test_a_manifest_that_was_damaged_is_named(ref: ts.IndexRef, tmp_path: Path) -> None:
    copy = Store(str(tmp_path / "copy"))
    data = ref.store.read_version(1).replace(b'"plane"', b'"earth"')
    copy.write_version(1, data)
    with pytest.raises(StorageError, match="the manifest of version 1 is damaged"):
        ts.IndexRef.open(tmp_path / "copy")


def test_a_schema_that_changed_is_an_error_that_names_the_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([(1, "temp > 30")], "id int, predicate string")
    ref = ts.build_index(frame, tmp_path / "index")
    changed = spark.createDataFrame([(1, "35")], "event int, temp string")
    with pytest.raises(Exception, match="attribute temp: column temp must hold numbers"):
        changed.transform(ts.match(ref, id="event"))
    # A new version that asks for another type ends the stream before the batch is matched.
    inbox = tmp_path / "inbox"
    spark.createDataFrame([(1, 35)], "event int, temp int").write.json(str(inbox))
    events = spark.readStream.schema("event int, temp int").json(str(inbox))
    writer = ts.write_matches(events, ref, ts.to_files(tmp_path / "out"), id="event")
    other = spark.createDataFrame(
        [("unsubscribe", 1, None), ("subscribe", 2, "temp = 'x'")],
        "change string, id int, predicate string",
    )
    ts.update_index(ref, other)
    ts.build_index(spark.createDataFrame([(2, "temp = 'x'")], "id int, predicate string"), ref.path)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="column temp must hold strings"):
        query.trigger(availableNow=True).start().awaitTermination()


def test_a_stream_that_is_restarted_with_another_schema_goes_on_or_says_why_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [(1, "temp > 30"), (2, "temp > 20")]
    frame = spark.createDataFrame(rows, "id int, predicate string")
    ref = ts.build_index(frame, tmp_path / "index")
    inbox = tmp_path / "inbox"
    inbox.mkdir()

    def run(number: int, schema: str) -> None:
        (inbox / f"{number}.json").write_text(f'{{"event": {number}, "temp": 35, "wind": 2.5}}\n')
        events = spark.readStream.schema(schema).json(str(inbox))
        query = ts.write_matches(events, ref, ts.to_files(tmp_path / "matches"), id="event")
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    run(0, "event int, temp int")
    run(1, "wind double, temp double, event long")
    with pytest.raises(ArgumentTypeError, match="attribute temp: column temp must hold numbers"):
        run(2, "event int, temp string")
    with pytest.raises(ArgumentError, match="no 'event'"):
        run(3, "temp int")
    run(4, "event int, temp int")
    found = [
        (row["batch"], row["event"], row["subscription"])
        for batch in range(3)
        for row in spark.read.parquet(str(tmp_path / "matches" / f"batch={batch}"))
        .selectExpr("*", f"{batch} AS batch")
        .collect()
    ]
    batches = {0: [0], 1: [1], 2: [2, 3, 4]}
    assert sorted(found) == [
        (b, e, s) for b, events in batches.items() for e in events for s in (1, 2)
    ]


def test_a_task_that_fails_leaves_nothing_in_the_cache(
    spark: SparkSession, ref: ts.IndexRef
) -> None:
    image_of(ref).unlink()
    with pytest.raises(Exception, match="is missing"):
        match(spark, ref)
    assert not (cache_folder() / ref.manifest.shards[0].key).exists()
    assert not list(cache_folder().glob(f".{ref.manifest.shards[0].key}*"))
