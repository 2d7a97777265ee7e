"""A reference to a version of an index, which every process can follow."""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from tamis.errors import StorageError
from tamis.spark.manifest import Manifest
from tamis.spark.store import Store, absolute_uri

REJECTED_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("predicate", pa.string()),
        ("reason", pa.string()),
        ("offset", pa.int64()),  # in characters, where the predicate is wrong
        # What else the row had.
        ("subscriber", pa.string()),
        ("change", pa.string()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("area", pa.int32()),
    ]
)


@dataclass(frozen=True)
class IndexRef:
    """A version of an index: where it lies, and its number. It never changes.

    The hash of its manifest tells it from another of the same number, at a path where an index was
    deleted and built anew.
    """

    path: str
    version: int
    hash: str

    @classmethod
    def open(cls, path: str | os.PathLike[str], version: int | None = None) -> Self:
        """The newest version of the index at a path or URI, or the one with a number."""
        uri = absolute_uri(path)
        versions = Store(uri).versions()
        if not versions:
            raise StorageError(f"{uri}: there is no index; make one with build_index")
        if version is None:
            version = versions[-1]
        elif version not in versions:
            there = ", ".join(map(str, versions[-5:]))
            raise StorageError(
                f"{uri}: has no version {version}; there are {there}. Was it vacuumed?"
            )
        ref = cls(uri, version, hash_of(Store(uri).read_version(version)))
        _ = ref.manifest
        return ref

    def newest(self) -> IndexRef:
        """The newest version there is now."""
        return IndexRef.open(self.path)

    @property
    def manifest(self) -> Manifest:
        return _read_manifest(self)

    @property
    def store(self) -> Store:
        return _open_store(self.path)

    @property
    def n_subscriptions(self) -> int:
        return self.manifest.n_subscriptions

    @property
    def n_rejected(self) -> int:
        """Rows that were not taken when this version was made."""
        return self.manifest.n_rejected

    def rejected(self, spark: SparkSession) -> DataFrame:
        """The rows that were not taken when this version was made, each with the reason.

        id, predicate, subscriber, change, x, y and area are the row's, null where it had none;
        `offset` is the place in the predicate that could not be read.
        """
        tables = [
            pq.read_table(io.BytesIO(self.store.read(piece.hash)))
            for piece in self.manifest.rejected
        ]
        everything = pa.concat_tables(
            [REJECTED_SCHEMA.empty_table(), *tables], promote_options="default"
        )
        return spark.createDataFrame(everything)

    def __str__(self) -> str:
        return f"{self.path} (version {self.version})"


@lru_cache(maxsize=64)
def _open_store(path: str) -> Store:
    return Store(path)


def hash_of(manifest: bytes) -> str:
    return hashlib.sha256(manifest).hexdigest()


@lru_cache(maxsize=64)
def _read_manifest(ref: IndexRef) -> Manifest:
    data = ref.store.read_version(ref.version)
    manifest = Manifest.from_json(data, f"{ref.path}: the manifest of version {ref.version}")
    if hash_of(data) != ref.hash:
        raise StorageError(
            f"{ref.path}: version {ref.version} is another one now; was the index deleted and "
            "built anew? Open it again"
        )
    return manifest
