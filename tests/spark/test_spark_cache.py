"""Shards on a node: one process fetches them, what nobody has open goes, nothing is left behind."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import tamis.spark as ts
from tamis.spark import cache
from tamis.spark.building import Rejected, built_shard, new_matcher, now, publish
from tamis.spark.cache import OpenShard, cache_folder, open_shard, scratch_folder
from tamis.spark.manifest import Manifest
from tamis.spark.store import Store

N_SHARDS = 4


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAMIS_SPARK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def ref(index: str) -> ts.IndexRef:
    """Shards of about one size; each knows another number."""
    manifest = Manifest(1, "plane", "tuple-key", {}, "bigint", "id", now(), ())
    store = Store(index)
    built = []
    for number in range(N_SHARDS):
        ids = list(range(100))
        with new_matcher(manifest) as matcher:
            predicates = [f"temp = {number} AND wind > {id}" for id in ids]
            matcher.subscribe_many(pa.table({"id": ids, "predicate": predicates}))
            built.append(built_shard(store, number, matcher, Rejected()))
    return publish(store, manifest, {}, built, N_SHARDS, "failfast")


def opened(ref: ts.IndexRef, number: int) -> OpenShard:
    return open_shard(ref.store, ref.manifest, ref.manifest.shards[number])


def numbers_in(folder: Path, ref: ts.IndexRef) -> list[int]:
    return [n for n, shard in enumerate(ref.manifest.shards) if (folder / shard.key).exists()]


def test_room_is_made_by_removing_what_was_opened_longest_ago_and_is_not_open(
    ref: ts.IndexRef, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = max(shard.n_bytes for shard in ref.manifest.shards)
    monkeypatch.setattr(cache, "_MAX_BYTES", 3 * largest)
    held = opened(ref, 0)
    for number in (1, 2):
        opened(ref, number).close()
    for number, shard in enumerate(ref.manifest.shards[:3]):
        os.utime(folder / f"{shard.key}.lock", (1e9 + number, 1e9 + number))
    last = opened(ref, 3)
    assert numbers_in(folder, ref) == [0, 2, 3]
    assert held.matcher.match({"temp": 0, "wind": 1}) == [0]
    held.close()
    last.close()
    again = opened(ref, 1)
    assert again.matcher.match({"temp": 1, "wind": 1}) == [0]
    again.close()
    assert not list(folder.glob("scratch-*"))


OPEN_AT_ONCE = """
import sys, time
from tamis.spark.cache import open_shard
from tamis.spark.index import IndexRef
ref = IndexRef.open(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for turn in range(25):
    for shard in ref.manifest.shards:
        opened = open_shard(ref.store, ref.manifest, shard)
        assert len(opened.matcher) == 100
        opened.close()
"""


def test_processes_that_fetch_and_remove_the_same_shards_do_not_disturb_each_other(
    ref: ts.IndexRef, folder: Path
) -> None:
    """There is room for two of the four, so each turn somebody removes what others want next."""
    limit = 2 * max(shard.n_bytes for shard in ref.manifest.shards)
    script = f"from tamis.spark import cache\ncache._MAX_BYTES = {limit}\n" + OPEN_AT_ONCE
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, ref.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        _, errors = process.communicate("go\n", timeout=300)
        assert process.returncode == 0, errors
    assert 1 <= len(numbers_in(folder, ref)) <= 3
    assert not list(folder.glob("scratch-*"))


OPEN_ALL = """
import sys
from tamis.spark.cache import open_shard
from tamis.spark.index import IndexRef
ref = IndexRef.open(sys.argv[1])
opened = [open_shard(ref.store, ref.manifest, shard) for shard in ref.manifest.shards]
assert all(len(each.matcher) == 100 for each in opened)
"""


def test_who_fetches_a_shard_does_not_wait_for_those_who_have_it_open(
    ref: ts.IndexRef, folder: Path
) -> None:
    """Of two workers that found it missing, one may have fetched and opened it for good."""
    locks = [
        os.open(folder / f"{shard.key}.lock", os.O_RDWR | os.O_CREAT)
        for shard in ref.manifest.shards
    ]
    for lock in locks:
        fcntl.flock(lock, fcntl.LOCK_SH)
    try:
        subprocess.run([sys.executable, "-c", OPEN_ALL, ref.path], check=True, timeout=60)
    finally:
        for lock in locks:
            os.close(lock)


KILLED = """
import os, signal
from tamis.spark.cache import scratch_folder
with scratch_folder() as folder:
    (folder / "image").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_leaves_is_removed_and_what_a_living_one_needs_is_not(
    folder: Path,
) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert killed.returncode == -signal.SIGKILL
    [left] = folder.glob("scratch-*")
    with scratch_folder() as living:
        assert left.exists()  # it might be in the making
        an_hour_ago = time.time() - 3600
        for each in (left, living):
            os.utime(each, (an_hour_ago, an_hour_ago))
        with scratch_folder():
            assert not left.exists()
            assert living.exists()
    assert not list(cache_folder().iterdir())


def test_a_build_that_is_killed_leaves_nothing_for_ever(ref: ts.IndexRef, folder: Path) -> None:
    """Nor does an update: all that is in the making lies in such folders."""
    script = f"""
import os, signal
from tamis.spark.cache import private_copy
from tamis.spark.index import IndexRef
ref = IndexRef.open({ref.path!r})
with private_copy(ref.store, ref.manifest.shards[0]):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", script], check=False)
    assert killed.returncode == -signal.SIGKILL
    for left in folder.iterdir():
        os.utime(left, (1e9, 1e9))
    opened(ref, 0).close()
    key = ref.manifest.shards[0].key
    assert {each.name for each in folder.iterdir()} == {key, f"{key}.lock", f"{key}.making"}
