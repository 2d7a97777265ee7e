"""Where an index lies: immutable objects under the hash of their bytes, and numbered versions.

    <path>/objects/3f/3f2a…          an image, a piece of a log, a table of rejected rows
    <path>/versions/00000007.json    a manifest: the objects that version 7 consists of

Objects are written before the manifest that names them, and each file appears all at once: a reader
sees a whole version or none. Two writers that make the same object write the same bytes.

An object that is put is written, even if there is one of its name: a damaged one is whole then, and
an old one that `vacuum` was about to delete is young. What is young and whole is left alone: shards
have small objects in common, and many tasks that replace one at once disturb each other.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa
from pyarrow import fs

from tamis.errors import ArgumentError, StorageError

_CHUNK_BYTES = 1 << 20
_WITHOUT_FOLDERS = ("s3", "gcs", "abfs")
# Far less than `min_age` of `vacuum`.
_YOUNG = datetime.timedelta(hours=1)
# Of one object some stores tell the time in seconds, and in a list more exactly.
_CLOCK_STEP = datetime.timedelta(seconds=1)
# A writer publishes within seconds of its claim: one that is so old was killed.
_MAX_CLAIM_AGE = datetime.timedelta(minutes=10)
_VERSION_NAME = re.compile(r"(\d{8,})\.json")


def absolute_uri(path: str | os.PathLike[str]) -> str:
    """A path as it is called in every process: URIs as they are, local paths from the root."""
    text = os.fspath(path)
    return text if "://" in text else os.path.abspath(text)


@dataclass(frozen=True)
class StoredObject:
    """An object as it lies in the store."""

    hash: str
    path: str
    n_bytes: int
    written: datetime.datetime


class Store:
    """The objects and versions at a path or URI that `pyarrow.fs` knows."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        try:
            self._fs, self._root = fs.FileSystem.from_uri(uri)
        except (pa.ArrowInvalid, ValueError) as error:
            raise ArgumentError(
                f"path must be a path or a URI of a file system that PyArrow knows, not {uri!r}: "
                f"{error}"
            ) from error
        self._is_local = isinstance(self._fs, fs.LocalFileSystem)

    # ── objects ──

    def put_bytes(self, data: bytes) -> str:
        """Stores an object; gives back its hash."""
        name = hashlib.sha256(data).hexdigest()
        if not self._is_young_and_whole(name):
            self._write(self._object(name), data)
        return name

    def put_file(self, path: Path, begin: int = 0) -> str:
        """Stores a file's bytes from `begin` on; gives back their hash."""
        name = _hash_file(path, begin)
        if self._is_young_and_whole(name):
            return name
        with path.open("rb") as source, self._writing(self._object(name)) as target:
            source.seek(begin)
            shutil.copyfileobj(source, target, _CHUNK_BYTES)
        return name

    def read(self, name: str) -> bytes:
        """The bytes of an object, which are those it was stored with."""
        with self._reading(name) as source:
            data: bytes = source.read()
        if hashlib.sha256(data).hexdigest() != name:
            raise self._damaged(name)
        return data

    def fetch(self, name: str, target: Path) -> None:
        """Appends an object's bytes to a file."""
        digest = hashlib.sha256()
        with self._reading(name) as source, target.open("ab") as file:
            while chunk := source.read(_CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
        if digest.hexdigest() != name:
            raise self._damaged(name)

    def link(self, name: str, target: Path) -> bool:
        """Gives a local object a second name instead of a copy, if that can be done."""
        if not self._is_local:
            return False
        source = Path(self._object(name))
        if not source.exists():
            raise self._missing(name)
        if _hash_file(source) != name:
            raise self._damaged(name)
        try:
            os.link(source, target)
        except OSError:  # another disk
            return False
        return True

    def _is_young_and_whole(self, name: str) -> bool:
        written = self._fs.get_file_info(self._object(name)).mtime
        if written is None or written < datetime.datetime.now(datetime.UTC) - _YOUNG:
            return False
        try:
            with self._reading(name) as source:
                return _hash(source) == name
        except StorageError:  # just being replaced
            return False

    def objects(self) -> list[StoredObject]:
        """Everything under `objects`, also what a writer that was killed has left aside."""
        selector = fs.FileSelector(self._path("objects"), allow_not_found=True, recursive=True)
        return [
            StoredObject(each.base_name, each.path, each.size, each.mtime)
            for each in self._list(selector)
            if each.type == fs.FileType.File
        ]

    def remove_object(self, found: StoredObject) -> bool:
        """Removes an object, unless it was written again since it was found; says whether.

        What remains: no file system here looks and removes in one step, so one that is written
        between the two is lost.
        """
        written = self._fs.get_file_info(found.path).mtime
        if written is None or written >= found.written + _CLOCK_STEP:
            return False
        self._remove(found.path)
        return True

    # ── versions ──

    def versions(self) -> list[int]:
        """The numbers of the versions there are, in order."""
        selector = fs.FileSelector(self._path("versions"), allow_not_found=True)
        found = (_VERSION_NAME.fullmatch(each.base_name) for each in self._list(selector))
        return sorted(int(match[1]) for match in found if match)

    def read_version(self, version: int) -> bytes:
        try:
            with self._fs.open_input_stream(self._version(version)) as source:
                data: bytes = source.read()
        except FileNotFoundError:
            raise StorageError(
                f"{self.uri}: version {version} is missing; was it vacuumed while it was in use?"
            ) from None
        return data

    def write_version(self, version: int, data: bytes) -> None:
        """Makes a version appear. It is an error if another writer was first.

        A local file system decides who that is. PyArrow can ask no other for that, so there what
        a writer has put aside is its claim to the number: who then sees another's claim, or the
        version, gives way. Of two at once both may, but never both win, as long as the store lists
        what was written before.
        """
        path = self._version(version)
        taken = StorageError(
            f"{self.uri}: version {version} was written by somebody else meanwhile, or is just "
            "being written; open the newest version and make the change again"
        )
        with self._aside(path) as aside:
            with self._fs.open_output_stream(aside) as target:
                target.write(data)
            try:
                if self._is_local:
                    _sync(aside)
                    os.link(aside, path)  # unlike a rename, this fails where there is one
                elif self._has_rival(aside, path):
                    raise taken
                else:
                    self._fs.move(aside, path)
            except (FileExistsError, FileNotFoundError):
                raise taken from None

    def _has_rival(self, aside: str, path: str) -> bool:
        """Whether another writer has a claim to a version, or has written it."""
        folder, _, name = path.rpartition("/")
        claims = {
            each.base_name: each
            for each in self._list(fs.FileSelector(folder))
            if each.base_name.startswith(f".{name}.")
        }
        mine = claims.pop(aside.rpartition("/")[2], None)
        if mine is None:
            return True
        for other in claims.values():
            if other.mtime >= mine.mtime - _MAX_CLAIM_AGE:
                return True
            self._remove(other.path)  # should its writer live after all, it cannot publish now
        return self._exists(path)  # after the claims: who publishes lets go of its claim last

    def remove_version(self, version: int) -> None:
        self._remove(self._version(version))

    # ── notes: small files that are written once ──

    def note(self, name: str, data: bytes) -> bytes:
        """Writes a note unless there is one; gives back what is there then."""
        path = self._path(name)
        if not self._exists(path):
            self._write(path, data)
        with self._fs.open_input_stream(path) as source:
            there: bytes = source.read()
        return there

    def notes(self, folder: str) -> dict[str, bytes]:
        """The notes under a folder, by the part of their names behind it."""
        root = self._path(folder)
        found = {}
        for each in self._list(fs.FileSelector(root, allow_not_found=True, recursive=True)):
            if each.type == fs.FileType.File and not each.base_name.endswith(".part"):
                with self._fs.open_input_stream(each.path) as source:
                    found[each.path[len(root) + 1 :]] = source.read()
        return found

    def remove_note(self, name: str) -> None:
        self._remove(self._path(name))

    # ── files ──

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _object(self, name: str) -> str:
        return self._path(f"objects/{name[:2]}/{name}")

    def _version(self, version: int) -> str:
        return self._path(f"versions/{version:08d}.json")

    def _exists(self, path: str) -> bool:
        return bool(self._fs.get_file_info(path).type == fs.FileType.File)

    def _list(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        found: list[fs.FileInfo] = self._fs.get_file_info(selector)
        return found

    def _remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(path)

    def _write(self, path: str, data: bytes) -> None:
        with self._writing(path) as target:
            target.write(data)

    @contextlib.contextmanager
    def _writing(self, path: str) -> Iterator[pa.NativeFile]:
        """A file that appears when all of it is written.

        Also on object stores: PyArrow closes a stream that it cannot abort, and with that the half
        of an object would appear. What remains: HDFS cannot replace a file in one step, so there
        one that is written again is missing for a moment.
        """
        with self._aside(path) as aside:
            with self._fs.open_output_stream(aside) as target:
                yield target
            self._fs.move(aside, path)

    @contextlib.contextmanager
    def _aside(self, path: str) -> Iterator[str]:
        """A name beside a path; what is still there in the end is removed."""
        folder, _, name = path.rpartition("/")
        if self._fs.type_name not in _WITHOUT_FOLDERS:
            self._fs.create_dir(folder, recursive=True)
        aside = f"{folder}/.{name}.{uuid.uuid4().hex}.part"
        try:
            yield aside
        finally:
            self._remove(aside)

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[pa.NativeFile]:
        try:
            source = self._fs.open_input_stream(self._object(name))
        except FileNotFoundError:
            raise self._missing(name) from None
        with source:
            yield source

    def _missing(self, name: str) -> StorageError:
        return StorageError(
            f"{self.uri}: the object {name} of the index is missing; was it deleted, or this "
            "version vacuumed while it was in use?"
        )

    def _damaged(self, name: str) -> StorageError:
        return StorageError(
            f"{self.uri}: the object {name} of the index is damaged: its bytes are not those that "
            "were written. Restore it from a copy, or build the index again"
        )


def _hash(source: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := source.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _hash_file(path: Path, begin: int = 0) -> str:
    with path.open("rb") as file:
        file.seek(begin)
        return _hash(file)


def _sync(path: str) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
