"""Shards on the node where they are matched: each once, whatever the number of workers.

    <cache>/3f2a…/        the directory of a matcher, complete: image, logs, MANIFEST
    <cache>/3f2a….lock    exclusive while it is made or removed, shared while a process has it open

A shard's name is the hash of its content, so what is there never has to be checked for changes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tamis.matcher import Matcher
from tamis.spark.manifest import Manifest, Shard
from tamis.spark.store import Store

# What the cache may hold before shards that nobody has open are removed, the oldest first.
_MAX_BYTES = 64 << 30


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
    return Path(named) if named else Path(tempfile.gettempdir()) / f"tamis-shards-{os.getuid()}"


def open_shard(store: Store, manifest: Manifest, shard: Shard) -> OpenShard:
    """Maps a shard, and brings it to this node if it is not there."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    directory = folder / shard.key
    lock = os.open(folder / f"{shard.key}.lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        while True:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if directory.exists():
                break
            fcntl.flock(lock, fcntl.LOCK_EX)
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
def private_copy(store: Store, shard: Shard) -> Iterator[Path]:
    """A shard's directory that can be changed; the image is shared, since nobody changes it."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    directory = folder / f"change-{uuid.uuid4().hex}"
    try:
        _fetch(store, shard, directory)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _fetch(store: Store, shard: Shard, directory: Path) -> None:
    aside = directory.with_name(f".{directory.name}.{uuid.uuid4().hex}")
    aside.mkdir()
    try:
        for file in shard.files:
            target = aside / file.name
            is_image = file.name.endswith(".tamis")
            if is_image and store.link(file.pieces[0].hash, target):
                continue
            for piece in file.pieces:
                store.fetch(piece.hash, target)
        aside.rename(directory)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


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
            shutil.rmtree(directory, ignore_errors=True)
            excess -= n_bytes
