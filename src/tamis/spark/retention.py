"""Old versions of an index, and what may be deleted."""

from __future__ import annotations

import datetime
import os
from collections.abc import Collection
from dataclasses import dataclass

from tamis.errors import ArgumentError
from tamis.spark.index import IndexRef
from tamis.spark.store import Store, StoredObject, absolute_uri
from tamis.spark.versions import forget_stream, needed_versions

# An update writes its objects before the version that names them: young ones may be in the making.
_MIN_AGE = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Vacuum:
    """What was deleted, or would be."""

    versions: list[int]
    objects: list[StoredObject]
    kept: dict[int, str]  # version → why it stays
    is_done: bool

    @property
    def n_bytes(self) -> int:
        return sum(each.n_bytes for each in self.objects)

    def __str__(self) -> str:
        verb = "deleted" if self.is_done else "would delete"
        versions = ", ".join(map(str, self.versions)) or "none"
        lines = [
            f"{verb} versions: {versions}",
            f"{verb} {len(self.objects)} objects, {self.n_bytes:,} bytes",
            *(f"keeps version {version}: {why}" for version, why in sorted(self.kept.items())),
        ]
        return "\n".join(lines)


def vacuum(
    path: str | os.PathLike[str],
    *,
    keep: int = 2,
    keep_versions: Collection[int] = (),
    forget: Collection[str] = (),
    min_age: datetime.timedelta = _MIN_AGE,
    dry_run: bool = True,
) -> Vacuum:
    """Deletes versions that nothing needs, and objects that no version has; says what.

    keep      how many of the newest versions stay in any case
    keep_versions   the numbers of others that stay, too
    forget    ids of streams that will not be started again: what they needed may go
    min_age   younger objects stay, since an update that is under way may need them
    dry_run   delete nothing, only say what would be deleted

    A version that the checkpoint of a stream needs stays, if the stream is one of `write_matches`:
    its last batches may be run again, and must give the same answer. Whoever has fixed a version
    with `match(ref)`, for a stream or a long job, is not known here: name it in `keep_versions`.
    """
    if not isinstance(keep, int) or keep < 1:
        raise ArgumentError(f"keep must be an integer from 1 on, not {keep!r}")
    store = Store(absolute_uri(path))
    versions = store.versions()
    for version in keep_versions:
        if version not in versions:
            there = ", ".join(map(str, versions))
            raise ArgumentError(
                f"keep_versions must be versions of the index, not {version!r}; there are {there}"
            )
    kept = dict.fromkeys(versions[-keep:], f"one of the newest {keep}")
    for version in keep_versions:
        kept.setdefault(version, "named in keep_versions")
    for version, streams in needed_versions(store).items():
        needing = " and of stream ".join(sorted(streams.difference(forget)))
        if needing and version in versions:
            kept.setdefault(version, f"the checkpoint of stream {needing} needs it")
    gone = [version for version in versions if version not in kept]
    used = set()
    for version in kept:
        used |= IndexRef.open(path, version).manifest.pieces()
    limit = datetime.datetime.now(datetime.UTC) - min_age
    objects = [each for each in store.objects() if each.hash not in used and each.written < limit]
    if not dry_run:
        for stream in forget:
            forget_stream(store, stream)
        for version in gone:  # first, so that nothing refers to what is missing
            store.remove_version(version)
        # An update may have put one of them again meanwhile.
        objects = [each for each in objects if store.remove_object(each)]
    return Vacuum(gone, objects, kept, not dry_run)
