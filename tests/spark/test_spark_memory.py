"""An index that is larger than the memory of a worker, shown with a limit on its addresses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tamis import EventError, Matcher, workloads
from tamis.spark.building import Rejected, built_shard, new_matcher, now, publish
from tamis.spark.index import IndexRef
from tamis.spark.manifest import Manifest
from tamis.spark.matching import _lists
from tamis.spark.store import Store
from tamis.spark.worker import IDS_PER_ANSWER, Request, match_events

N_SHARDS = 6
WORKLOAD = {"key": "fpga-default", "n_subscriptions": 180_000}
N_EVENTS = 200

WORKER = """
import json, re, resource, sys
from tamis import workloads
from tamis.spark.index import IndexRef
from tamis.spark.worker import Request, match_events

path, limit, *sweeps = sys.argv[1:]
ref = IndexRef.open(path)
events = workloads.get("fpga-default", n_subscriptions=180_000).events(200).read_all()
events = events.combine_chunks().to_batches()[0]
largest = max(shard.n_bytes for shard in ref.manifest.shards)
size = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + int(limit), size + int(limit)))
request = Request("subscriptions", "ids", False, largest if sweeps else None)
found = [a for a in match_events(ref, events, request)]
counts = [int(n) for answer in found for n in answer.counts]
print(json.dumps([counts, [id for answer in found for id in answer.ids.to_pylist()]]))
"""


@pytest.fixture(scope="module")
def ref(tmp_path_factory: pytest.TempPathFactory) -> IndexRef:
    workload = workloads.get(**WORKLOAD)
    manifest = Manifest(1, "plane", "tuple-key", {}, "bigint", "id", now(), ())
    store = Store(str(tmp_path_factory.mktemp("large") / "index"))
    built = []
    rows = workload.subscriptions().read_all()
    for number in range(N_SHARDS):
        with new_matcher(manifest) as matcher:
            matcher.subscribe_many(rows.take(pa.array(range(number, len(rows), N_SHARDS))))
            built.append(built_shard(store, number, matcher, Rejected()))
    return publish(store, manifest, {}, built, N_SHARDS, "failfast")


def test_a_worker_with_less_memory_than_the_index_sweeps_over_it(
    ref: IndexRef, tmp_path: Path
) -> None:
    sizes = [shard.n_bytes for shard in ref.manifest.shards]
    limit = sum(sizes) * 2 // 3
    assert max(sizes) < limit // 3

    def run(*sweeps: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", WORKER, ref.path, str(limit), *sweeps],
            env={"TAMIS_SPARK_CACHE": str(tmp_path), "MALLOC_ARENA_MAX": "1"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    whole = run()
    assert whole.returncode != 0
    assert "memory" in whole.stderr.lower(), whole.stderr
    swept = run("sweep")
    assert swept.returncode == 0, swept.stderr
    matcher = Matcher(engine="tuple-key")
    workload = workloads.get(**WORKLOAD)
    matcher.subscribe_many(workload.subscriptions().read_all())
    expected = matcher.match_many(workload.events(N_EVENTS).read_all())
    counts, ids = json.loads(swept.stdout)
    assert counts == expected.counts.tolist()
    assert sorted(ids) == sorted(expected.ids.to_pylist())
    assert sum(counts) > 0


@pytest.mark.parametrize("n_shards", [1, 3])
def test_dense_events_after_sparse_ones_come_in_answers_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_shards: int
) -> None:
    monkeypatch.setenv("TAMIS_SPARK_CACHE", str(tmp_path / "cache"))
    manifest = Manifest(1, "plane", "tuple-key", {}, "bigint", "id", now(), ())
    store = Store(str(tmp_path / "index"))
    built = []
    for number in range(n_shards):
        with new_matcher(manifest) as matcher:
            ids = list(range(number, 2000, n_shards))
            matcher.subscribe_many({"id": ids, "predicate": ["a > 0"] * len(ids)})
            built.append(built_shard(store, number, matcher, Rejected()))
    ref = publish(store, manifest, {}, built, n_shards, "failfast")
    values = np.repeat([0, 1, 0], [30_000, 12_000, 5000])
    events = pa.record_batch({"a": values})
    begin = 0
    for answer in match_events(ref, events, Request("subscriptions", "ids", False)):
        assert answer.begin == begin
        assert (answer.counts == 2000 * values[begin : begin + len(answer.counts)]).all()
        assert answer.ids is not None
        assert len(answer.ids) == answer.counts.sum() <= 2 * IDS_PER_ANSWER
        begin += len(answer.counts)
    assert begin == len(values)


def test_more_matches_than_a_list_holds_are_an_error() -> None:
    with pytest.raises(EventError, match=r"2,147,483,648 matches, .* use output='pairs'"):
        _lists(np.array([0, 2**31]), pa.array([1]))
