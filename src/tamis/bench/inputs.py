"""What the processes of a run share while they measure one workload.

    <run>/.work/<digest>/subscriptions.arrow    made once, then mapped by every process
                         truth-<n>-<deliver>.npz    naive's answers to the sampled events
                         …                          directories of durable matchers

It goes when the next workload comes, and with the run's end.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from tamis.bench.plan import Cell
from tamis.bench.results import WORK_FOLDER
from tamis.workloads import Workload

if TYPE_CHECKING:
    from tamis.bench.child import Channel


class Inputs:
    """The shared files of one workload."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def subscriptions(self) -> Path:
        return self.folder / "subscriptions.arrow"

    def truth(self, n_events: int, deliver: str) -> Path:
        return self.folder / f"truth-{n_events}-{deliver}.npz"

    def workload(self, cell: Cell) -> Workload:
        """The cell's workload, with its subscriptions from the file."""
        return cast(Workload, StoredWorkload(cell.make_workload(), self.subscriptions))


class Workspace:
    """The folder of inputs, of one workload at a time."""

    def __init__(self, run_folder: Path) -> None:
        self._root = run_folder / WORK_FOLDER

    def inputs(self, cell: Cell) -> Inputs:
        text = json.dumps([cell.workload, cell.overrides])
        folder = self._root / hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        if not folder.is_dir():
            self.remove()
            folder.mkdir(parents=True)
        return Inputs(folder)

    def remove(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)


class StoredWorkload:
    """A workload whose subscriptions are mapped instead of made again."""

    def __init__(self, workload: Workload, path: Path) -> None:
        self._workload = workload
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workload, name)

    def subscriptions(self) -> pa.RecordBatchReader:
        file = pa.ipc.open_file(pa.memory_map(str(self._path)))

        def batches() -> Iterator[pa.RecordBatch]:
            for place in range(file.num_record_batches):
                yield file.get_batch(place)

        return pa.RecordBatchReader.from_batches(file.schema, batches())


def write_subscriptions(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """The task that makes the file of a workload's subscriptions."""
    cell, inputs = Cell.from_json(spec["cell"]), Inputs(spec["inputs"])
    workload = cell.make_workload()
    aside = inputs.subscriptions.with_suffix(".tmp")
    reader = workload.subscriptions()
    n_rows = 0
    with pa.OSFile(str(aside), "wb") as sink, pa.ipc.new_file(sink, reader.schema) as file:
        for batch in reader:
            channel.phase(f"making subscriptions {n_rows:,} of {workload.n_subscriptions:,}")
            file.write_batch(batch)
            n_rows += len(batch)
    aside.replace(inputs.subscriptions)
    return {"n_subscriptions": n_rows}
