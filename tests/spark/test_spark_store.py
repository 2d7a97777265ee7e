"""Objects and versions: what is put is there and whole, and each version has one writer."""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from s3_server import Bucket, s3_server

from tamis import StorageError
from tamis.spark.store import Store


class Place:
    """A store, and the way round it: to its bytes and their age."""

    def __init__(self, folder: Path, bucket: Bucket) -> None:
        self.bucket = bucket if bucket.uri else None
        self.folder = folder
        self.store = Store(bucket.uri or str(folder))

    def write(self, name: str, data: bytes, age_s: float = 0) -> None:
        when = datetime.datetime.now().timestamp() - age_s
        if self.bucket:
            self.bucket.objects[f"index/{name}"] = (data, when)
        else:
            (self.folder / name).write_bytes(data)
            os.utime(self.folder / name, (when, when))

    def names(self) -> list[str]:
        """Of all files there are."""
        if self.bucket:
            keys = [key.removeprefix("index/") for key in self.bucket.objects]
            return sorted(key for key in keys if not key.endswith("/"))
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return sorted(str(path.relative_to(self.folder)) for path in files)


def object_name(hash: str) -> str:
    return f"objects/{hash[:2]}/{hash}"


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "local":
        yield Place(tmp_path / "index", Bucket())
    else:
        with s3_server() as bucket:
            yield Place(tmp_path / "index", bucket)


def test_an_object_that_was_damaged_is_whole_when_it_is_put_again(
    place: Place, tmp_path: Path
) -> None:
    store, source = place.store, tmp_path / "source"
    source.write_bytes(b"head, and the image")
    puts: list[Callable[[], str]] = [
        lambda: store.put_bytes(b"the image"),
        lambda: store.put_file(source, 10),
    ]
    for put in puts:
        hash = put()
        for damaged in (b"the", b"the imagf"):
            place.write(object_name(hash), damaged)
            with pytest.raises(StorageError, match="is damaged"):
                store.read(hash)
            assert put() == hash
            assert store.read(hash) == b"the image"
    assert place.names() == [object_name(hash)]


def test_an_object_that_is_young_and_whole_is_not_replaced(place: Place) -> None:
    for age_s, is_replaced in ((600, False), (7200, True)):
        hash = place.store.put_bytes(b"the image")
        place.write(object_name(hash), b"the image", age_s)
        [before] = place.store.objects()
        place.store.put_bytes(b"the image")
        [after] = place.store.objects()
        assert (after.written > before.written) == is_replaced


def test_a_write_that_fails_half_way_leaves_nothing(place: Place) -> None:
    hash = "ab" * 32

    def write_half() -> None:
        with place.store._writing(f"{place.store._root}/{object_name(hash)}") as target:
            target.write(b"half")
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        write_half()
    assert place.names() == []
    with pytest.raises(StorageError, match=f"{hash} of the index is missing"):
        place.store.read(hash)


def test_an_object_that_is_put_again_while_it_is_vacuumed_stays(place: Place) -> None:
    hashes = {}
    for data in (b"wanted again", b"unwanted"):
        hashes[data] = place.store.put_bytes(data)
        place.write(object_name(hashes[data]), data, age_s=3 * 86400)
    found = place.store.objects()
    assert place.store.put_bytes(b"wanted again") == hashes[b"wanted again"]
    assert [each.hash for each in found if place.store.remove_object(each)] == [hashes[b"unwanted"]]
    assert place.names() == [object_name(hashes[b"wanted again"])]


def test_of_writers_at_once_at_most_one_makes_the_version(place: Place) -> None:
    def write(version: int, data: bytes, start: threading.Barrier, winners: list[bytes]) -> None:
        start.wait()
        try:
            place.store.write_version(version, data)
        except StorageError:
            return
        winners.append(data)

    for version in range(1, 11):
        start, winners = threading.Barrier(4), list[bytes]()
        words = [(version, b"%d" % writer, start, winners) for writer in range(4)]
        threads = [threading.Thread(target=write, args=each) for each in words]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not winners:  # all gave way; who comes alone has it
            place.store.write_version(version, b"alone")
            winners.append(b"alone")
        assert winners == [place.store.read_version(version)]
        with pytest.raises(StorageError, match="was written by somebody else"):
            place.store.write_version(version, b"late")
    assert place.names() == [f"versions/{version:08d}.json" for version in range(1, 11)]


def test_a_writer_gives_way_to_one_at_work_and_not_to_one_that_was_killed(place: Place) -> None:
    place.store.write_version(1, b"one")
    claim = "versions/.00000002.json.1234.part"
    place.write(claim, b"another two")
    if place.bucket:
        with pytest.raises(StorageError, match="or is just being written; open the newest"):
            place.store.write_version(2, b"two")
        assert place.names() == [claim, "versions/00000001.json"]
        place.write(claim, b"another two", age_s=3600)
    place.store.write_version(2, b"two")
    assert place.store.versions() == [1, 2]
    assert place.store.read_version(2) == b"two"
