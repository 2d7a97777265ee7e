"""Where an index lies: immutable objects under the hash of their bytes, and numbered versions.

    <path>/objects/3f/3f2a…          an image, a piece of a log, a table of rejected rows
    <path>/versions/00000007.json    a manifest: the objects that version 7 consists of

Objects are written before the manifest that names them, and the manifest appears all at once: a
reader sees a whole version or none. Two writers that make the same object write the same bytes.
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

import pyarrow as pa
from pyarrow import fs

from tamis.errors import ArgumentError, StorageError

_CHUNK_BYTES = 1 << 20
# There a file appears when it is closed, and a rename would be a copy.
_OBJECT_STORES = ("s3", "gcs", "abfs")
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
        if not self._exists(self._object(name)):
            self._write(self._object(name), data)
        return name

    def put_file(self, path: Path, begin: int = 0) -> str:
        """Stores a file's bytes from `begin` on; gives back their hash."""
        name = _hash_file(path, begin)
        if self._exists(self._object(name)):
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

    def objects(self) -> list[StoredObject]:
        """Everything under `objects`, also what a writer that was killed has left aside."""
        selector = fs.FileSelector(self._path("objects"), allow_not_found=True, recursive=True)
        return [
            StoredObject(each.base_name, each.path, each.size, each.mtime)
            for each in self._list(selector)
            if each.type == fs.FileType.File
        ]

    def remove_object(self, found: StoredObject) -> None:
        self._remove(found.path)

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
        """Makes a version appear. It is an error if another writer was first."""
        path = self._version(version)
        taken = StorageError(
            f"{self.uri}: version {version} was written by somebody else meanwhile; open the "
            "newest version and make the change again"
        )
        if self._exists(path):
            raise taken
        if not self._is_local:
            self._write(path, data)
            return
        aside = Path(self._aside(path))
        aside.parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(aside, path)  # unlike a rename, this fails where there is one
        except FileExistsError:
            raise taken from None
        finally:
            aside.unlink(missing_ok=True)

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

    def _aside(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        return f"{folder}/.{name}.{uuid.uuid4().hex}.part"

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
        if self._fs.type_name in _OBJECT_STORES:
            with self._fs.open_output_stream(path) as target:
                yield target
            return
        self._fs.create_dir(path.rpartition("/")[0], recursive=True)
        aside = self._aside(path)
        try:
            with self._fs.open_output_stream(aside) as target:
                yield target
            self._fs.move(aside, path)
        except BaseException:
            self._remove(aside)
            raise

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


def _hash_file(path: Path, begin: int = 0) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(begin)
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
