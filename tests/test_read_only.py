"""Matchers that are opened to be read: by many processes, beside a writer, from damaged files."""

from __future__ import annotations

import functools
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tamis

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

ENGINES = [each.name for each in tamis.engines() if each.available and each.exact]
N_MANY = 100_000


def start_child(act: Callable[[], None]) -> int:
    """Runs `act` in a fork, whose exit code is 0 if it came to its end."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(100)  # a hang ends in a signal
            act()
            status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    return pid


def end_of_child(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_child(act: Callable[[], None]) -> None:
    code = end_of_child(start_child(act))
    assert code == 0, f"the child ended with {code}"


def files_of(path: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(file): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def small_rows() -> dict[str, list[str]]:
    """Predicates of every kind, each with an event of its own: `me` is its id."""
    forms = [
        "x = 1",
        "x BETWEEN 2 AND 4",
        "city = 'Łódź'",
        "name LIKE '%b_'",
        "x IS NULL AND y > 2",
    ]
    forms += ["NEAR(1, 2, 3)", "b = TRUE", "NOT x IN (1, 2, 3)"]
    ids = [f"s{number}" for number in range(40)]
    return {
        "id": ids,
        "predicate": [
            f"({forms[at % len(forms)]}) OR me = '{each}'" for at, each in enumerate(ids)
        ],
        "subscriber": [f"owner {at % 7}" for at in range(len(ids))],
    }


@pytest.fixture
def small(tmp_path: Path) -> Path:
    matcher = tamis.Matcher()
    matcher.subscribe_many(small_rows())
    matcher.save(tmp_path / "small")
    return tmp_path / "small"


def check_is_small(matcher: tamis.Matcher) -> None:
    rows = small_rows()
    assert {each: matcher[each] for each in matcher} == dict(
        zip(rows["id"], rows["predicate"], strict=True)
    )
    for each, owner in zip(rows["id"], rows["subscriber"], strict=True):
        event = {"me": each, "x": 77, "y": 0}
        found = [id for id in matcher.match(event) if not matcher[id].startswith("(NOT")]
        assert found == ([] if matcher[each].startswith("(NOT") else [each])
        assert owner in matcher.match(event, deliver="subscribers")
    assert matcher.explain("s0", {"x": 1}).matched


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "m"
    matcher = tamis.Matcher()
    matcher.subscribe_many(
        {
            "id": list(range(N_MANY)),
            "predicate": [
                f"bucket = {n // 10} AND price BETWEEN {n % 10} AND 100 AND kind = 'kind {n % 8}'"
                for n in range(N_MANY)
            ],
            "subscriber": [n % 5000 for n in range(N_MANY)],
        }
    )
    matcher.save(path)
    return path


def check_is_many(matcher: tamis.Matcher, begin: int = 0) -> None:
    for bucket in range(begin, N_MANY // 10, 997):
        n = bucket * 10 + 3
        event = {"bucket": bucket, "price": 5, "kind": f"kind {n % 8}"}
        expected = [each for each in range(bucket * 10, bucket * 10 + 6) if each % 8 == n % 8]
        assert sorted(matcher.match(event)) == expected
        assert matcher[n].startswith(f"bucket = {bucket} ")


# ── what may be done ────────────────────────────────────────────────────────────────


def test_changes_are_refused_and_the_rest_works(small: Path, tmp_path: Path) -> None:
    before = files_of(small)
    with tamis.Matcher.open(small, read_only=True) as matcher:
        calls: list[Callable[[], object]] = [
            lambda: matcher.subscribe("s1", "TRUE"),
            lambda: matcher.subscribe("new", "TRUE", subscriber="x"),
            lambda: matcher.subscribe_many({"id": ["new"], "predicate": ["TRUE"]}),
            lambda: matcher.unsubscribe("s1"),
            lambda: matcher.unsubscribe_many(["s1", "s2"]),
            lambda: matcher.move("s5", 0, 0),
            lambda: matcher.move_many({"id": ["s5"], "x": [0], "y": [0]}),
            lambda: matcher.checkpoint(),
        ]
        for call in calls:
            with pytest.raises(tamis.ArgumentError, match="opened with read_only=True"):
                call()
            check_is_small(matcher)
        matcher.flush()
        stats = matcher.stats()
        assert stats["n_subscriptions"] == 40
        assert stats["n_subscribers"] == 7
        matcher.save(tmp_path / "saved")
    check_is_small(matcher)  # closed
    with pytest.raises(tamis.ArgumentError):
        matcher.subscribe("s1", "TRUE")
    assert files_of(small) == before
    with tamis.Matcher.open(tmp_path / "saved") as saved:
        check_is_small(saved)
        saved.subscribe("s1", "TRUE")


def test_what_cannot_be_read_is_refused(small: Path, tmp_path: Path) -> None:
    with pytest.raises(tamis.ArgumentError, match="create"):
        tamis.Matcher.open(small, read_only=True, create=True)
    with pytest.raises(tamis.StorageError, match="no MANIFEST"):
        tamis.Matcher.open(tmp_path / "missing", read_only=True)
    assert not (tmp_path / "missing").exists()
    with pytest.raises(tamis.StorageError, match="space is plane"):
        tamis.Matcher.open(small, read_only=True, space="earth")
    for image in small.glob("image-*.tamis"):
        image.rename(tmp_path / "elsewhere")
        with pytest.raises(tamis.StorageError, match=image.name):
            tamis.Matcher.open(small, read_only=True)


def test_a_torn_tail_is_left_to_the_writer(small: Path) -> None:
    with tamis.Matcher.open(small) as matcher:
        matcher.subscribe("late", "x = 5")
    log = next(small.glob("log-*.wal"))
    with open(log, "ab") as file:
        file.write(b"\x07\0\0")
    before = files_of(small)
    with tamis.Matcher.open(small, read_only=True) as reader:
        assert reader["late"] == "x = 5"
    assert files_of(small) == before


# ── many processes ──────────────────────────────────────────────────────────────────


def test_many_processes_read_while_one_writes(small: Path) -> None:
    with tamis.Matcher.open(small) as writer:

        def act() -> None:
            for _ in range(5):
                with tamis.Matcher.open(small, read_only=True) as reader:
                    check_is_small(reader)
                with pytest.raises(tamis.StorageError, match="is open for writing"):
                    tamis.Matcher.open(small)

        for child in [start_child(act) for _ in range(4)]:
            assert end_of_child(child) == 0
        check_is_small(writer)
        writer.subscribe("late", "x = 5")
        with tamis.Matcher.open(small, read_only=True) as reader:
            assert reader["late"] == "x = 5"
            writer.unsubscribe("late")
            writer.checkpoint()  # the files that the reader has are gone
            assert reader["late"] == "x = 5"
            assert "late" in reader.match({"x": 5})


def test_a_reader_beside_a_writer_that_checkpoints_all_the_time(tmp_path: Path) -> None:
    """Opening always succeeds, and gives a state from between its beginning and its end."""
    path = tmp_path / "m"
    ids = list(range(60))
    shared = mmap.mmap(-1, 24)  # begun, done, is over

    def note(place: int, value: int) -> None:
        shared[place * 8 : place * 8 + 8] = struct.pack("<q", value)

    def noted(place: int) -> int:
        return struct.unpack("<q", shared[place * 8 : place * 8 + 8])[0]

    tamis.Matcher.open(path, create=True).close()

    def write() -> None:
        with tamis.Matcher.open(path, sync="none") as matcher:
            state = 0
            while not noted(2):
                state += 1
                note(0, state)
                matcher.subscribe_many(
                    {
                        "id": ids,
                        "predicate": [f"x = {state} OR a{state % 5} = {id}" for id in ids],
                        "subscriber": [id + state for id in ids],
                    }
                )
                note(1, state)
                if state % 3:
                    matcher.checkpoint()

    def read_all() -> None:
        until = time.monotonic() + 3
        n_opened, seen = 0, set()
        while time.monotonic() < until or n_opened < 5:
            low = noted(1)
            engine = ENGINES[n_opened % len(ENGINES)]
            with tamis.Matcher.open(
                path, read_only=True, engine=engine, verify=n_opened % 3 == 0
            ) as reader:
                high = noted(0)
                states = {int(reader[id].split()[2]) for id in reader}
                assert len(states) == 1, f"a mixture of states: {states}"
                (state,) = states
                assert low <= state <= high
                for deliver, expected in (
                    ("subscriptions", ids),
                    ("subscribers", [id + state for id in ids]),
                ):
                    assert sorted(reader.match({"x": state}, deliver=deliver)) == expected
                    assert reader.match({"x": state - 1}, deliver=deliver) == []
                assert sorted(reader) == ids
            n_opened += 1
            seen.add(state)
        assert len(seen) > 1

    writer = start_child(write)
    try:
        while noted(1) == 0:
            time.sleep(0.01)
        codes = [end_of_child(each) for each in [start_child(read_all) for _ in range(2)]]
    finally:
        note(2, 1)
        code = end_of_child(writer)
    assert codes == [0, 0]
    assert code == 0


_COSTS = """
import sys
from pathlib import Path
import tamis

def private_dirty_bytes():
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * 1024

def use(matcher):
    for bucket in range(50, len(matcher) // 10, 997):
        kind = f"kind {(bucket * 10 + 3) % 8}"
        assert matcher.match({"bucket": bucket, "price": 5, "kind": kind})
        matcher[bucket]

before = private_dirty_bytes()
readers = [tamis.Matcher.open(sys.argv[1], read_only=True, threads=1) for _ in range(4)]
for reader in readers:
    use(reader)
print((private_dirty_bytes() - before) // 4)

before = private_dirty_bytes()
with tamis.Matcher.open(sys.argv[1], threads=1) as matcher:
    for n in range(100):
        matcher.subscribe(n, "bucket = -1", subscriber=n + 10**6)
    assert sorted(matcher.match({"bucket": -1})) == list(range(100))
    use(matcher)
    print(private_dirty_bytes() - before)
"""


def test_processes_share_the_pages_that_they_do_not_change(many: Path, tmp_path: Path) -> None:
    shutil.copytree(many, tmp_path / "m")
    n_image_bytes = sum(file.stat().st_size for file in many.glob("image-*.tamis"))
    assert n_image_bytes > 10 << 20
    # A process of its own: in a fork, counting references makes pages private.
    done = subprocess.run(
        [sys.executable, "-c", _COSTS, str(tmp_path / "m")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    of_reader, of_writer = map(int, done.stdout.split())
    assert of_reader < n_image_bytes / 8
    assert of_writer < n_image_bytes / 2
    with tamis.Matcher.open(tmp_path / "m") as matcher:
        assert sorted(matcher.match({"bucket": -1})) == list(range(100))


# ── fork ────────────────────────────────────────────────────────────────────────────


def test_a_fork_reads_on(small: Path) -> None:
    matcher = tamis.Matcher.open(small, read_only=True, engine=ENGINES[0])

    def act() -> None:
        check_is_small(matcher)
        matcher.flush()
        check_is_small(matcher)
        with pytest.raises(tamis.ArgumentError, match="read_only"):
            matcher.subscribe("new", "TRUE")
        with tamis.Matcher.open(small, read_only=True) as another:
            check_is_small(another)
        matcher.close()

    for _ in range(3):
        in_child(act)
    with tamis.Matcher.open(small) as writer:  # a child of a writer may read, not write
        writer.subscribe("late", "x = 5")

        def beside_the_parent() -> None:
            with tamis.Matcher.open(small, read_only=True) as reader:
                assert reader["late"] == "x = 5"

        in_child(beside_the_parent)
    check_is_small(matcher)


def test_forks_amid_reading_and_indexing(many: Path) -> None:
    """Another engine indexes what was saved, in the background, while children are made."""
    for _ in range(4):
        matcher = tamis.Matcher.open(many, read_only=True, engine="ocm")
        thread = threading.Thread(target=check_is_many, args=(matcher,))
        thread.start()

        def act(matcher: tamis.Matcher = matcher) -> None:
            check_is_many(matcher, 5)
            matcher.flush()
            check_is_many(matcher, 6)

        in_child(act)
        thread.join()


# ── another engine than the one that saved ──────────────────────────────────────────


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_another_engine_indexes_in_the_background(
    many: Path, tmp_path: Path, engine: str, read_only: bool
) -> None:
    path = tmp_path / "m"
    shutil.copytree(many, path)
    with tamis.Matcher.open(path, engine=engine, read_only=read_only) as matcher:
        check_is_many(matcher)  # at once
        if not read_only:
            matcher.subscribe(-1, "bucket = -1")
            matcher.unsubscribe(0)
        matcher.flush()
        stats = matcher.stats()
        assert {segment["engine"] for segment in stats["segments"]} == {engine}
        assert all(segment["is_indexed"] for segment in stats["segments"])
        assert stats["n_merges"] > 0
        check_is_many(matcher, 1)
        if not read_only:
            matcher.checkpoint()
    if read_only:
        return
    with tamis.Matcher.open(path, engine=engine) as matcher:  # its own index, this time
        assert engine != "naive" or matcher.stats()["n_merges"] == 0
        check_is_many(matcher, 1)
        assert matcher.match({"bucket": -1}) == [-1]
        assert 0 not in matcher


def test_other_parameters_index_in_the_background(tmp_path: Path) -> None:
    saved = tamis.Matcher(engine="ocm")
    saved.subscribe_many(small_rows())
    saved.save(tmp_path / "m")
    name, preset = next(iter(tamis_parameters("ocm").items()))
    given = {name: preset / 2 if preset > 1 else 1 - preset}
    with tamis.Matcher.open(
        tmp_path / "m", engine="ocm", parameters=given, read_only=True
    ) as matcher:
        check_is_small(matcher)
        matcher.flush()
        assert matcher.stats()["n_merges"] > 0
        check_is_small(matcher)


def tamis_parameters(engine: str) -> dict[str, float]:
    (found,) = [each for each in tamis.engines() if each.name == engine]
    return {each.name: each.preset for each in found.parameters}


# ── damage ──────────────────────────────────────────────────────────────────────────


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def sections_of(image: bytes) -> dict[str, tuple[int, int]]:
    """Name → place and length, from the directory at the end of an image."""
    at, n_bytes = struct.unpack("<QQ", image[-64:-48])
    directory = image[at : at + n_bytes]
    (n_sections,), at = struct.unpack("<Q", directory[:8]), 8
    sections = {}
    for _ in range(n_sections):
        (n_name,) = struct.unpack_from("<Q", directory, at)
        name = directory[at + 8 : at + 8 + n_name].decode()
        begin, length = struct.unpack_from("<QQ", directory, at + 8 + n_name)
        at += 24 + n_name + -(-length // 2**20) * 4
        sections[name] = (begin, length)
    assert at == len(directory)
    return sections


def rewrite(image: Path, data: bytes) -> None:
    """Another file of that name: the one before may still be mapped."""
    aside = image.with_suffix(".new")
    aside.write_bytes(data)
    aside.replace(image)


DAMAGED = object()


def unless_damaged(image: Path, call: Callable[[], Any]) -> Any:
    """What the call gives, or DAMAGED if it says that the image is."""
    try:
        return call()
    except tamis.StorageError as error:
        if image.name not in str(error):
            raise
        return DAMAGED


USES: list[Callable[[tamis.Matcher], Any]] = [
    lambda each: each.match({"me": "s3", "x": 1}),
    lambda each: each.match_many([{"x": 1}]).counts.tolist(),
    lambda each: each["s0"],
    lambda each: each.explain("s0", {"x": 1}).matched,
    list,
    lambda each: each.flush(),
]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_flipped_bit_in_any_section_is_found(tmp_path: Path, engine: str) -> None:
    """By verify=True always; otherwise on opening, or when what is damaged is first used."""
    path = tmp_path / "m"
    matcher = tamis.Matcher(engine=engine)
    matcher.subscribe_many(small_rows())
    matcher.save(path)
    (image,) = path.glob("image-*.tamis")
    whole = image.read_bytes()
    sections = sections_of(whole)
    found_late = set()
    for name, (begin, length) in sections.items():
        if length == 0:
            continue
        for at in {begin, begin + length // 2, begin + length - 1}:
            damaged = bytearray(whole)
            damaged[at] ^= 1 << at % 8
            rewrite(image, damaged)
            for read_only in (True, False):
                with pytest.raises(tamis.StorageError, match=image.name):
                    tamis.Matcher.open(path, engine=engine, read_only=read_only, verify=True)
            opened = unless_damaged(
                image, lambda: tamis.Matcher.open(path, engine=engine, read_only=True)
            )
            if opened is DAMAGED:
                continue
            found_late.add(name)
            n_raised = 0
            for use in (*USES, *USES):  # it is told again
                answer = unless_damaged(image, functools.partial(use, opened))
                n_raised += answer is DAMAGED
                assert answer is DAMAGED or answer == use(matcher)
            assert n_raised > 0, f"damage in {name} at {at - begin} is not found"
            with pytest.raises(tamis.StorageError, match=image.name):
                opened.save(tmp_path / "copy")
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
            opened.close()
    rewrite(image, whole)
    with tamis.Matcher.open(path, engine=engine, verify=True) as again:
        check_is_small(again)
    # Opening reads what leads elsewhere, and leaves the bulk for later.
    assert "texts" in found_late
    assert {"s0/g0/table/numbers", "s0/g0/table/bytes"} <= found_late
    assert not found_late & {"meta", "names", "totals", "slots", "subscribers", "slot_table"}


def text_heavy(path: Path) -> tuple[Path, int]:
    """A matcher whose texts are several blocks; the last one has ids of subscribers alone."""
    ids = [f"{number:06d}" for number in range(30_000)]
    matcher = tamis.Matcher()
    matcher.subscribe_many(
        {
            "id": ids,
            "predicate": [f"x = {number}" for number in range(len(ids))],
            "subscriber": [f"{number:0150d}" for number in range(len(ids))],
        }
    )
    matcher.save(path)
    (image,) = path.glob("image-*.tamis")
    begin, length = sections_of(image.read_bytes())["texts"]
    assert length > 3 << 20
    return image, begin + length - 10


def test_damaged_texts_neither_crash_nor_mix_up_a_matcher_that_is_changed(tmp_path: Path) -> None:
    """The ids of subscribers are needed when the last of theirs is gone: on the merging thread."""
    path = tmp_path / "m"
    image, at = text_heavy(path)
    damaged = bytearray(image.read_bytes())
    damaged[at] ^= 1
    rewrite(image, damaged)

    def act() -> None:
        with tamis.Matcher.open(path) as matcher:
            for number in range(0, 30_000, 7):
                event = {"x": number + 3}
                before = matcher.match(event)
                assert before == [f"{number + 3:06d}"]
                for call in (
                    lambda number=number: matcher.subscribe(f"new {number}", "x = -1"),
                    lambda number=number: matcher.unsubscribe(f"{number:06d}"),
                    lambda number=number: matcher.subscribe(
                        f"{number + 1:06d}", "x = -2", subscriber=f"{number:0150d}"
                    ),
                ):
                    unless_damaged(image, call)
                if number > 700:
                    break
            # What was taken is there and is answered; what was refused left no trace.
            for event, text in (({"x": -1}, "x = -1"), ({"x": -2}, "x = -2")):
                for each in matcher.match(event):
                    assert matcher[each] == text
            for number in range(100):
                (answer,) = matcher.match({"x": number}) or [None]
                if answer is not None:
                    assert matcher[answer] == f"x = {number}"
            unless_damaged(image, matcher.flush)

    in_child(act)


def test_damaged_texts_do_not_crash_the_merge_of_what_died_before(tmp_path: Path) -> None:
    path = tmp_path / "m"
    text_heavy(path)
    with tamis.Matcher.open(path) as matcher:
        matcher.unsubscribe_many([f"{number:06d}" for number in range(100)])
        matcher.checkpoint()  # with their filters, which are dead
    (image,) = path.glob("image-*.tamis")
    damaged = bytearray(image.read_bytes())
    begin, length = sections_of(bytes(damaged))["texts"]
    damaged[begin + length - 10] ^= 1
    rewrite(image, damaged)

    def act() -> None:
        matcher = tamis.Matcher.open(path, engine="ocm", read_only=True)
        unless_damaged(image, matcher.flush)  # another engine: all is merged
        assert matcher.match({"x": 500}) == [f"{500:06d}"]
        assert matcher.match({"x": 50}) == []

    in_child(act)


# ── a directory that changes while it is opened ─────────────────────────────────────


def write_manifest(path: Path, image: str, logs: str) -> None:
    number = image.removeprefix("image-").removesuffix(".tamis")
    n_bytes = (path / image).stat().st_size
    body = f"tamis matcher\nformat 3\narity 2\nspace plane\nimage {number}:{n_bytes}\nlogs {logs}\n"
    (path / "MANIFEST.new").write_text(f"{body}crc32c {crc32c(body.encode()):08x}\n")
    os.replace(path / "MANIFEST.new", path / "MANIFEST")


def test_a_reader_that_begins_anew_forgets_what_it_was_merging(many: Path, tmp_path: Path) -> None:
    """A checkpoint took away the files that the first manifest names, while the reader, which has
    another engine, was indexing them already."""
    path = tmp_path / "m"
    shutil.copytree(many, path)
    with tamis.Matcher.open(path, sync="none") as matcher:
        for number in range(12_000):  # a log that takes a while to read
            matcher.subscribe(-1 - number % 50, f"idle = {number}")
    del matcher  # and its mapping, which the test looks for below
    (image,) = (each.name for each in path.glob("image-*.tamis"))
    (log,) = (each.name for each in path.glob("log-*.wal"))
    new = tamis.Matcher()
    new.subscribe_many({"id": [1, 2], "predicate": ["bucket = 1 AND y = 1", "bucket = 2"]})
    new.save(tmp_path / "new")
    shutil.copy(tmp_path / "new" / "image-1.tamis", path / "image-77.tamis")
    number = log.removeprefix("log-").removesuffix(".wal")
    write_manifest(path, image, f"{number}:32 999:32")  # the last of them is not there

    def act() -> None:
        def swap() -> None:
            while str(path / image) not in Path("/proc/self/maps").read_text():
                time.sleep(0.001)
            write_manifest(path, "image-77.tamis", f"{int(number) + 2}:0")

        (path / f"log-{int(number) + 2}.wal").write_bytes(b"")
        thread = threading.Thread(target=swap)
        thread.start()
        matcher = tamis.Matcher.open(path, engine="ocm", read_only=True)
        thread.join()
        for _ in range(2):
            assert sorted(matcher) == [1, 2]
            assert matcher.match({"bucket": 1, "y": 1}) == [1]
            assert matcher.match({"bucket": 2, "price": 5, "kind": "kind 4"}) == [2]
            assert matcher.match({"bucket": 3, "price": 5, "kind": "kind 0"}) == []
            assert matcher.match({"idle": 11_999}) == []
            matcher.flush()
        (segment,) = matcher.stats()["segments"]
        assert segment["n_filters"] == 2

    in_child(act)
