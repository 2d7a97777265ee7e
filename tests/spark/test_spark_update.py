"""Changes to an index: segments are added, versions stay, and vacuum says what may go."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import tamis.spark as ts
from tamis import ArgumentError, ArgumentTypeError, BatchError, Matcher, StorageError
from tamis.spark.store import Store
from tamis.spark.versions import version_of_batch

CHANGES = "change string, id int, predicate string, subscriber int, x double, y double, area int"


@pytest.fixture
def ref(spark: SparkSession, index: str) -> ts.IndexRef:
    rows = [(k, f"temp = {k % 10} AND NEAR({k}, 0, 1)", k % 7) for k in range(200)]
    frame = spark.createDataFrame(rows, "id int, predicate string, subscriber int")
    return ts.build_index(frame, index, n_shards=3)


def events(spark: SparkSession) -> DataFrame:
    rows = [(k, k % 10, float(k)) for k in range(200)]
    return spark.createDataFrame(rows, "event int, temp int, x double").selectExpr("*", "0D AS y")


def answers(spark: SparkSession, ref: ts.IndexRef, deliver: str = "subscriptions") -> set:
    matches = events(spark).transform(
        ts.match(ref, id="event", position=("x", "y"), deliver=deliver)
    )
    return {tuple(row) for row in matches.collect()}


def expected(spark: SparkSession, matcher: Matcher, deliver: str = "subscriptions") -> set:
    table = events(spark).drop("event").toArrow()
    found = matcher.match_many(table, position=("x", "y"), deliver=deliver)
    return set(zip(*found.pairs().to_pydict().values(), strict=True))


def test_updates_give_what_a_matcher_with_the_same_changes_gives(
    spark: SparkSession, ref: ts.IndexRef
) -> None:
    matcher = Matcher(engine="naive")
    for k in range(200):
        matcher.subscribe(k, f"temp = {k % 10} AND NEAR({k}, 0, 1)", subscriber=k % 7)
    assert answers(spark, ref) == expected(spark, matcher)

    rows = [("unsubscribe", k, None, None, None, None, None) for k in range(40)]
    rows += [("move", k, None, None, k + 1.0, 0.5, None) for k in range(50, 90)]
    rows += [("subscribe", k, f"temp < {k % 5}", 3, None, None, None) for k in range(100, 120)]
    rows += [("subscribe", k, f"temp > {k % 5}", None, None, None, None) for k in range(500, 520)]
    second = ts.update_index(ref, spark.createDataFrame(rows, CHANGES), mode="failfast")
    for change, id, predicate, subscriber, x, y, _ in rows:
        if change == "unsubscribe":
            matcher.unsubscribe(id)
        elif change == "move":
            matcher.move(id, x, y)
        else:
            matcher.subscribe(id, predicate, subscriber=subscriber)
    assert second.n_subscriptions == len(matcher) == 180
    for deliver in ("subscriptions", "subscribers"):
        assert answers(spark, second, deliver) == expected(spark, matcher, deliver)

    third = ts.update_index(
        second, spark.createDataFrame([("unsubscribe", 500)], "change string, id int")
    )
    matcher.unsubscribe(500)
    assert answers(spark, third) == expected(spark, matcher)
    assert third.n_subscriptions == 179


def test_an_update_writes_what_is_new_alone(spark: SparkSession, ref: ts.IndexRef) -> None:
    before = {each.hash for each in ref.store.objects()}
    row = [("subscribe", 1000, "temp = 1")]
    changes = spark.createDataFrame(row, "change string, id int, predicate string")
    second = ts.update_index(ref, changes)
    added = [each for each in ref.store.objects() if each.hash not in before]
    assert sum(each.n_bytes for each in added) < 1000  # a log, and the manifest of its directory
    changed = [
        (old, new)
        for old, new in zip(ref.manifest.shards, second.manifest.shards, strict=True)
        if old.key != new.key
    ]
    [(old, new)] = changed
    images = [{file for file in s.files if file.name.endswith(".tamis")} for s in (old, new)]
    assert images[0] == images[1]
    third = ts.update_index(second, changes.replace("temp = 1", "temp = 2"))
    logs = [
        file
        for shard in third.manifest.shards
        for file in shard.files
        if file.name.endswith(".wal") and len(file.pieces) > 1
    ]
    assert len(logs) == 1


def test_changes_that_cannot_be_made_are_rejected(spark: SparkSession, ref: ts.IndexRef) -> None:
    rows = [
        ("unsubscribe", 999, None, None, None, None, None),
        ("move", 998, None, None, 1.0, 1.0, None),
        ("move", 1, None, None, None, 1.0, None),
        ("move", 2, None, None, 1.0, 1.0, 5),
        ("subscribe", 3, "temp >", None, None, None, None),
        ("subscribe", 4, None, None, None, None, None),
        ("forget", 5, None, None, None, None, None),
        ("subscribe", 6, "temp = 1", None, None, None, None),
        ("unsubscribe", 6, None, None, None, None, None),
        ("subscribe", 7, "temp = 77", None, None, None, None),
    ]
    frame = spark.createDataFrame(rows, CHANGES)
    with pytest.raises(BatchError, match="9 rows cannot be taken"):
        ts.update_index(ref, frame, mode="failfast")
    assert ref.newest() == ref
    second = ts.update_index(ref, frame)
    rejected = second.rejected(spark).collect()
    assert {row["id"]: row["change"] for row in rejected if row["id"] != "6"} == {
        str(row[1]): row[0] for row in rows if row[1] not in (6, 7)
    }
    reasons = {row["id"]: row["reason"] for row in rejected}
    assert set(reasons) == {"999", "998", "1", "2", "3", "4", "5", "6"}
    assert reasons["999"] == reasons["998"] == "no subscription has this id"
    assert reasons["6"] == "the id must stand once in the table"
    assert "change must be subscribe, unsubscribe, move" in reasons["5"]
    assert second.n_subscriptions == 200


def test_an_old_version_cannot_be_changed(spark: SparkSession, ref: ts.IndexRef) -> None:
    changes = spark.createDataFrame([("unsubscribe", 1)], "change string, id int")
    ts.update_index(ref, changes)
    with pytest.raises(StorageError, match=r"not the newest, which is 2; apply .* ref.newest\(\)"):
        ts.update_index(ref, changes)


@pytest.mark.parametrize(
    ("schema", "error", "text"),
    [
        ("id int", ArgumentError, "must have a column change"),
        ("change string, id string", ArgumentTypeError, "must hold bigint"),
        ("change string, id int, x string", ArgumentTypeError, "x must hold numbers"),
        ("change string, id int, text string", ArgumentError, "has text"),
    ],
)
def test_wrong_changes_are_an_error_on_the_driver(
    spark: SparkSession, ref: ts.IndexRef, schema: str, error: type, text: str
) -> None:
    with pytest.raises(error, match=text):
        ts.update_index(ref, spark.createDataFrame([], schema))


def test_vacuum_says_what_it_would_delete_and_deletes_that(
    spark: SparkSession, ref: ts.IndexRef
) -> None:
    newest = ref
    for k in range(3):
        changes = spark.createDataFrame([("unsubscribe", k)], "change string, id int")
        newest = ts.update_index(newest, changes)
    Store(ref.path).note("streams/abc/0000000004", b"2")
    no_age = datetime.timedelta(0)
    assert ts.vacuum(ref.path, keep=1).objects == []  # too young

    plan = ts.vacuum(ref.path, keep=1, min_age=no_age)
    assert plan.versions == [1, 3]
    assert plan.kept == {4: "one of the newest 1", 2: "the checkpoint of stream abc needs it"}
    assert "would delete versions: 1, 3" in str(plan)
    assert Store(ref.path).versions() == [1, 2, 3, 4]

    done = ts.vacuum(ref.path, keep=1, min_age=no_age, dry_run=False)
    assert (done.versions, done.objects) == (plan.versions, plan.objects)
    assert Store(ref.path).versions() == [2, 4]
    for version in (2, 4):
        kept = ts.IndexRef.open(ref.path, version)
        assert all(kept.store.read(name) for name in kept.manifest.pieces())
    with pytest.raises(StorageError, match="has no version 3; there are 2, 4"):
        ts.IndexRef.open(ref.path, 3)

    forgotten = ts.vacuum(ref.path, keep=1, min_age=no_age, forget=["abc"], dry_run=False)
    assert forgotten.versions == [2]
    assert len(answers(spark, newest)) > 0


def test_vacuum_keeps_what_any_of_several_streams_needs(
    spark: SparkSession, ref: ts.IndexRef
) -> None:
    changes = spark.createDataFrame([("unsubscribe", 1)], "change string, id int")
    ts.update_index(ref, changes)
    for stream in ("abc", "def"):
        ref.store.note(f"streams/{stream}/0000000004", b"1")
    both = "the checkpoint of stream abc and of stream def needs it"
    assert ts.vacuum(ref.path, keep=1).kept[1] == both
    for forgotten, other in (("abc", "def"), ("def", "abc")):
        plan = ts.vacuum(ref.path, keep=1, forget=[forgotten])
        assert plan.versions == []
        assert plan.kept[1] == f"the checkpoint of stream {other} needs it"
    assert ts.vacuum(ref.path, keep=1, forget=["abc", "def"]).versions == [1]


def test_a_stream_that_was_forgotten_takes_the_newest_version(
    spark: SparkSession, ref: ts.IndexRef
) -> None:
    assert version_of_batch(ref.path, "abc", 7) == ref
    changes = spark.createDataFrame([("unsubscribe", 1)], "change string, id int")
    second = ts.update_index(ref, changes)
    assert version_of_batch(ref.path, "abc", 7) == ref
    ts.vacuum(ref.path, forget=["abc"], dry_run=False)
    assert version_of_batch(ref.path, "abc", 7) == second


def test_vacuum_keeps_the_versions_that_are_named(spark: SparkSession, ref: ts.IndexRef) -> None:
    """As one that a stream of `source.transform(match(ref))` has: no checkpoint tells of that."""
    newest = ref
    for k in range(2):
        changes = spark.createDataFrame([("unsubscribe", k)], "change string, id int")
        newest = ts.update_index(newest, changes)
    before = answers(spark, ref)
    no_age = datetime.timedelta(0)
    done = ts.vacuum(ref.path, keep=1, keep_versions=[1], min_age=no_age, dry_run=False)
    assert done.versions == [2]
    assert done.kept[1] == "named in keep_versions"
    assert all(ref.store.read(name) for name in ref.manifest.pieces())
    assert answers(spark, ref) == before
    with pytest.raises(ArgumentError, match="not 2; there are 1, 3"):
        ts.vacuum(ref.path, keep_versions=[2])


def test_vacuum_needs_a_version_to_keep(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="keep must be an integer from 1 on"):
        ts.vacuum(tmp_path, keep=0)
