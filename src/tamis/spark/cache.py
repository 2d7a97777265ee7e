"""Shards on the node where they are matched: each once, whatever the number of workers.

    <cache>/3f2a…/        the directory of a matcher, complete: image, logs, MANIFEST
    <cache>/3f2a….lock    exclusive while it is removed, shared while a process has it open
    <cache>/3f2a….making  exclusive while it is made
    <cache>/scratch-…/    something in the making, locked itself: if nobody has that lock, it was
                          left by a process that was killed, and the next one removes it

A shard's name is the hash of its content, so what is there never has to be checked for changes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tamis.matcher import Matcher
from tamis.spark.folders import private_folder
from tamis.spark.manifest import Manifest, Shard
from tamis.spark.store import Store

# What the cache may hold before shards that nobody has open are removed, the oldest first.
_MAX_BYTES = 64 << 30
# A folder that was made just now may not be locked yet.
_MIN_SCRATCH_AGE_S = 60


class OpenShard:
    """A matcher that is mapped, and the share of its lock."""

    def __init__(self, matcher: Matcher, lock: int) -> None:
        self.matcher = matcher
        self._lock = lock

    def close(self) -> None:
        self.matcher.close()
        os.close(self._lock)


def cache_folder() -> Path:
    """Where this node keeps shards: TAMIS_SPARK_CACHE, or a folder in the temporary one."""
    named = os.environ.get("TAMIS_SPARK_CACHE")
    folder = Path(named) if named else private_folder() / "shards"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def open_shard(store: Store, manifest: Manifest, shard: Shard) -> OpenShard:
    """Maps a shard, and brings it to this node if it is not there."""
    folder = cache_folder()
    directory = folder / shard.key
    lock = os.open(folder / f"{shard.key}.lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        while True:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if directory.exists():
                break
            # Others may come to have it open meanwhile, for as long as they live: who makes it must
            # not wait for them.
            fcntl.flock(lock, fcntl.LOCK_UN)
            with _locked(folder / f"{shard.key}.making"):
                if not directory.exists():
                    _make_room(folder, shard.n_bytes)
                    _fetch(store, shard, directory)
        os.utime(lock)
        matcher = Matcher.open(
            directory,
            engine=manifest.engine,
            parameters=manifest.parameters,
            threads=1,
            read_only=True,
        )
    except BaseException:
        os.close(lock)
        raise
    return OpenShard(matcher, lock)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for what is in the making, on the disk of the cache."""
    _remove_left_scratch()
    folder = cache_folder() / f"scratch-{uuid.uuid4().hex}"
    folder.mkdir()
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@contextmanager
def private_copy(store: Store, shard: Shard) -> Iterator[Path]:
    """A shard's directory that can be changed; the image is shared, since nobody changes it."""
    with scratch_folder() as folder:
        directory = folder / "shard"
        _fetch(store, shard, directory)
        yield directory


def _fetch(store: Store, shard: Shard, directory: Path) -> None:
    with scratch_folder() as folder:
        aside = folder / "shard"
        aside.mkdir()
        for file in shard.files:
            target = aside / file.name
            is_image = file.name.endswith(".tamis")
            if is_image and store.link(file.pieces[0].hash, target):
                continue
            for piece in file.pieces:
                store.fetch(piece.hash, target)
        aside.rename(directory)


def _remove_left_scratch() -> None:
    for folder in cache_folder().glob("scratch-*"):
        with suppress(OSError):  # another process has the lock, or was quicker
            if folder.stat().st_mtime > time.time() - _MIN_SCRATCH_AGE_S:
                continue
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _make_room(folder: Path, n_wanted: int) -> None:
    """Removes shards that nobody has open, those that were opened longest ago first."""
    shards = []
    for lock in folder.glob("*.lock"):
        directory = lock.with_suffix("")
        with suppress(OSError):
            n_bytes = sum(file.stat().st_size for file in directory.iterdir())
            shards.append((lock.stat().st_mtime, n_bytes, lock, directory))
    excess = sum(n_bytes for _, n_bytes, *_ in shards) + n_wanted - _MAX_BYTES
    for _, n_bytes, lock, directory in sorted(shards):
        if excess <= 0:
            return
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            # At once, or half of it might stay; another process may have been quicker.
            with scratch_folder() as aside, suppress(FileNotFoundError):
                directory.rename(aside / "shard")
            excess -= n_bytes
