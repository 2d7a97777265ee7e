"""Which version of an index a batch of a stream is matched with.

    <path>/streams/<id of the stream>/<number of the batch>    the version, as text

It is written once, before the batch is matched, and read when the batch is run again: a retry or a
restart gives the same answer. The id is that of Spark's checkpoint, so another checkpoint is
another stream.
"""

from __future__ import annotations

from tamis.spark.index import IndexRef
from tamis.spark.store import Store

# Spark runs again the last batch alone; a few more are kept for who goes back by hand.
_BATCHES_KEPT = 10


def version_of_batch(path: str, stream: str, batch: int) -> IndexRef:
    """The version that the batch was begun with; the newest one if it was not begun yet."""
    store = Store(path)
    newest = IndexRef.open(path)
    recorded = int(store.note(_name(stream, batch), str(newest.version).encode()))
    for name in store.notes(f"streams/{stream}"):
        if int(name) <= batch - _BATCHES_KEPT:
            store.remove_note(f"streams/{stream}/{name}")
    return newest if recorded == newest.version else IndexRef.open(path, recorded)


def needed_versions(store: Store) -> dict[int, set[str]]:
    """The versions that streams may need again, with those streams."""
    needed: dict[int, set[str]] = {}
    for name, data in store.notes("streams").items():
        needed.setdefault(int(data), set()).add(name.split("/")[0])
    return needed


def forget_stream(store: Store, stream: str) -> None:
    for name in store.notes(f"streams/{stream}"):
        store.remove_note(f"streams/{stream}/{name}")


def _name(stream: str, batch: int) -> str:
    return f"streams/{stream}/{batch:010d}"
