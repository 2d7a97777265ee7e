"""A durable matcher: what was acknowledged is there again, whatever happened in between."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tamis
from tamis import _core

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

Change = tuple[Any, ...]
Model = dict[Any, tuple[str, Any]]  # id → predicate, subscriber or None
Seen = dict[Any, tuple[str, list[Any]]]  # id → tree, whom an event for this id alone reaches


@pytest.fixture(autouse=True)
def _no_fault_stays() -> Iterator[None]:
    yield
    _core._clear_fault()


# ── changes, and a model of them ────────────────────────────────────────────────────


def text_of(subscription_id: Any, rest: str = "x = 1") -> str:
    """Each predicate is satisfied by an event that only it understands."""
    return f"({rest}) OR me = '{subscription_id}'"


def circle_of(subscription_id: Any, x: float, y: float) -> str:
    return text_of(subscription_id, f"NEAR({x!r}, {y!r}, 5)")


def apply(matcher: tamis.Matcher, change: Change) -> None:
    match change:
        case ("subscribe", subscription_id, text, subscriber):
            matcher.subscribe(subscription_id, text, subscriber=subscriber)
        case ("subscribe_many", rows):
            columns: dict[str, Any] = {
                "id": [row[0] for row in rows],
                "predicate": [row[1] for row in rows],
            }
            if rows[0][2] is not None:
                columns["subscriber"] = [row[2] for row in rows]
            matcher.subscribe_many(columns)
        case ("unsubscribe", subscription_id):
            matcher.unsubscribe(subscription_id)
        case ("unsubscribe_many", ids):
            matcher.unsubscribe_many(ids)
        case ("move", subscription_id, x, y):
            matcher.move(subscription_id, x, y)
        case ("checkpoint",):
            matcher.checkpoint()
        case _:
            raise AssertionError(change)


def apply_to_model(model: Model, change: Change) -> Model:
    model = dict(model)
    match change:
        case ("subscribe", subscription_id, text, subscriber):
            model[subscription_id] = (text, subscriber)
        case ("subscribe_many", rows):
            model.update({row[0]: (row[1], row[2]) for row in rows})
        case ("unsubscribe", subscription_id):
            del model[subscription_id]
        case ("unsubscribe_many", ids):
            for subscription_id in ids:
                del model[subscription_id]
        case ("move", subscription_id, x, y):
            model[subscription_id] = (circle_of(subscription_id, x, y), model[subscription_id][1])
        case ("checkpoint",):
            pass
    return model


@functools.cache
def tree_of(text: str) -> str:
    return str(tamis.parse(text))


def seen_in(matcher: tamis.Matcher) -> Seen:
    assert len(matcher) == len(list(matcher))
    return {
        each: (
            tree_of(matcher[each]),
            matcher.match({"me": str(each)}, deliver="subscribers"),
        )
        for each in matcher
    }


def expected_of(model: Model) -> Seen:
    return {
        each: (tree_of(text), [each if subscriber is None else subscriber])
        for each, (text, subscriber) in model.items()
    }


SCRIPT: list[Change] = [
    ("subscribe", "a", text_of("a"), None),
    ("subscribe", "b", text_of("b", "y > 2"), "alice"),
    ("subscribe_many", [(f"m{n}", text_of(f"m{n}", f"x = {n}"), "bob") for n in range(5)]),
    ("subscribe", "a", text_of("a", "z LIKE '%é😀%'"), "zoë"),
    ("unsubscribe", "m1"),
    ("subscribe", "c", circle_of("c", 1.0, 2.0), None),
    ("move", "c", 3.5, -4.25),
    ("unsubscribe_many", ["m2", "m3"]),
    ("subscribe", "b", text_of("b", "y > 3"), None),
    ("subscribe_many", [(f"n{n}", text_of(f"n{n}"), None) for n in range(5)]),
    ("checkpoint",),
    ("move", "c", 1e9, 0.1),
    ("subscribe", "m1", text_of("m1", "again = 1"), "bob"),
    ("unsubscribe", "a"),
    ("subscribe_many", [(f"n{n}", text_of(f"n{n}", "x = 2"), "carol") for n in range(2, 7)]),
    ("unsubscribe_many", ["n0", "n6", "b"]),
    ("subscribe", "long", text_of("long", " OR ".join(f"x = {n}" for n in range(60))), "l"),
    ("subscribe", "", text_of("", "x = 7"), ""),
    ("unsubscribe", "m0"),
    ("checkpoint",),
    ("subscribe", "d", circle_of("d", -1.0, 0.5), "alice"),
    ("move", "d", 0.0, 0.0),
    ("checkpoint",),
    ("unsubscribe_many", ["d", "c"]),
    ("subscribe", "last", text_of("last"), "alice"),
]
MODELS: list[Model] = list(itertools.accumulate(SCRIPT, apply_to_model, initial={}))
EXPECTED: list[Seen] = [expected_of(model) for model in MODELS]


def in_child(act: Callable[[int], None]) -> tuple[int, bytes]:
    """Runs `act` in a fork, with a pipe to write to; gives the exit status and what it wrote."""
    pid, reader = start_child(act)
    written = read_all(reader)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), written


def start_child(act: Callable[[int], None]) -> tuple[int, int]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reader)
            act(writer)
            status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    os.close(writer)
    return pid, reader


def read_all(reader: int) -> bytes:
    with os.fdopen(reader, "rb") as file:
        return file.read()


def failure_of(act: Callable[..., object], *arguments: object) -> tamis.StorageError | None:
    try:
        act(*arguments)
    except tamis.StorageError as error:
        return error
    return None


def run_script(path: Path, sync: str, writer: int) -> None:
    """One byte when the matcher is open, and one after each change."""
    matcher = tamis.Matcher.open(path, create=True, sync=sync)
    os.write(writer, b".")
    for change in SCRIPT:
        apply(matcher, change)
        os.write(writer, b".")


def check_goes_on(path: Path, *allowed: Seen, create: bool = False) -> None:
    """The directory holds one of these, takes one more change, and holds that as well."""
    with tamis.Matcher.open(path, create=create) as matcher:
        seen = seen_in(matcher)
        assert seen in allowed
        matcher.subscribe("one more", text_of("one more"), subscriber="x")
    with tamis.Matcher.open(path) as matcher:
        assert seen_in(matcher) == seen | expected_of({"one more": (text_of("one more"), "x")})


# ── closing and opening ─────────────────────────────────────────────────────────────

SYNCS = ["each", "grouped", "none"]


@pytest.mark.parametrize("sync", SYNCS)
def test_everything_survives_closing(tmp_path: Path, sync: str) -> None:
    with tamis.Matcher.open(tmp_path / "m", create=True, sync=sync) as matcher:
        for change in SCRIPT:
            apply(matcher, change)
        assert seen_in(matcher) == EXPECTED[-1]
    check_goes_on(tmp_path / "m", EXPECTED[-1])


def test_every_prefix_of_the_script_survives_closing(tmp_path: Path) -> None:
    for change, expected in zip(SCRIPT, EXPECTED[1:], strict=True):
        with tamis.Matcher.open(tmp_path / "m", create=True, sync="none") as matcher:
            apply(matcher, change)
        with tamis.Matcher.open(tmp_path / "m") as matcher:
            assert seen_in(matcher) == expected


def test_int_ids_survive(tmp_path: Path) -> None:
    model: Model = {
        each: (text_of(each), subscriber)
        for each, subscriber in zip(
            [0, -1, 2**63 - 1, -(2**63)], [None, 5, -(2**63), 2**63 - 1], strict=True
        )
    }
    for is_checkpointed in (False, True):
        path = tmp_path / str(is_checkpointed)
        with tamis.Matcher.open(path, create=True) as matcher:
            for each, (text, subscriber) in model.items():
                matcher.subscribe(each, text, subscriber=subscriber)
            if is_checkpointed:
                matcher.checkpoint()
        with tamis.Matcher.open(path) as matcher:
            assert seen_in(matcher) == expected_of(model)
            with pytest.raises(tamis.TamisError):
                matcher.subscribe("0", "x = 1")
            matcher.unsubscribe(0)
            assert 0 not in matcher


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_odd_texts_survive_as_they_are(tmp_path: Path, is_checkpointed: bool) -> None:
    texts = {
        "é😀\0b": "  x<>1   and\n'a'=y ",
        "": "\"any name\" = 'it''s \U00010000 \uffff'",
        "a" * 9999: "x IN (" + ", ".join(f"'{n}'" for n in range(50_000)) + ")",
        "moved": "NEAR(1, 2, 3) OR NEAR ( 1,2 , 3 )",
    }
    with tamis.Matcher.open(tmp_path / "m", create=True) as matcher:
        for each, text in texts.items():
            matcher.subscribe(each, text, subscriber=each + "!")
        matcher.move("moved", -0.0, 5e-324, area=1)
        texts["moved"] = matcher["moved"]
        if is_checkpointed:
            matcher.checkpoint()
    with tamis.Matcher.open(tmp_path / "m") as matcher:
        assert {each: matcher[each] for each in matcher} == texts
        assert matcher.match({"x": "49999"}) == ["a" * 9999]
        assert matcher.match({"any name": "it's \U00010000 \uffff"}, deliver="subscribers") == ["!"]


def test_space_is_kept_and_never_changed(tmp_path: Path) -> None:
    with tamis.Matcher.open(tmp_path / "m", create=True, space="earth") as matcher:
        matcher.subscribe("pole", "NEAR(0, 90, 1000)")
        matcher.move("pole", 180, -90)
    with tamis.Matcher.open(tmp_path / "m") as matcher:
        assert matcher.space == "earth"
        assert matcher.match({}, at=(13, -90)) == ["pole"]
        matcher.save(tmp_path / "saved")
    with tamis.Matcher.open(tmp_path / "saved", space="earth") as matcher:
        assert matcher.match({}, at=(13, -90)) == ["pole"]
    with pytest.raises(tamis.StorageError, match="earth"):
        tamis.Matcher.open(tmp_path / "m", space="plane")
    tamis.Matcher.open(tmp_path / "m").close()  # the refusal left no lock


def test_save_and_open(tmp_path: Path) -> None:
    memory = tamis.Matcher()
    for change in SCRIPT:
        if change != ("checkpoint",):
            apply(memory, change)
    memory.save(tmp_path / "saved")
    with pytest.raises(tamis.StorageError, match="exists"):
        memory.save(tmp_path / "saved")
    check_goes_on(tmp_path / "saved", EXPECTED[-1])
    tamis.Matcher().save(tmp_path / "empty")
    check_goes_on(tmp_path / "empty", {})
    with pytest.raises(tamis.StorageError):
        memory.save(tmp_path / "no" / "such" / "directory")
    with tamis.Matcher.open(tmp_path / "saved") as durable:
        durable.save(tmp_path / "again")
        durable.unsubscribe("last")
        with tamis.Matcher.open(tmp_path / "again") as other:  # both at once
            assert "last" in other
        seen = seen_in(durable)
    check_goes_on(tmp_path / "saved", seen)


def test_paths_may_end_in_a_slash(tmp_path: Path) -> None:
    with tamis.Matcher.open(f"{tmp_path}/m/", create=True) as matcher:
        matcher.subscribe("a", text_of("a"))
        matcher.checkpoint()
        matcher.save(f"{tmp_path}/saved/")
    check_goes_on(tmp_path / "m", expected_of({"a": (text_of("a"), None)}))
    check_goes_on(tmp_path / "saved", expected_of({"a": (text_of("a"), None)}))


def test_a_relative_path_stays_the_same_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with tamis.Matcher.open("m", create=True) as matcher:
        matcher.subscribe("a", text_of("a"))
        monkeypatch.chdir(tmp_path / "elsewhere")
        matcher.checkpoint()
        matcher.subscribe("b", text_of("b"))
    assert os.listdir(tmp_path / "elsewhere") == []
    model: Model = {"a": (text_of("a"), None), "b": (text_of("b"), None)}
    check_goes_on(tmp_path / "m", expected_of(model))


def test_what_is_no_matcher_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(tamis.StorageError, match="create=True") as caught:
        tamis.Matcher.open(missing)
    assert str(missing) in str(caught.value)
    assert not missing.exists()
    with pytest.raises(tamis.StorageError):
        tamis.Matcher.open(tmp_path / "no" / "parent", create=True)
    assert not (tmp_path / "no").exists()

    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work")
    for create in (False, True):
        with pytest.raises(tamis.StorageError) as caught:
            tamis.Matcher.open(foreign, create=create)
        assert str(foreign) in str(caught.value)
    assert os.listdir(foreign) == ["thesis.txt"]

    file = tmp_path / "file"
    file.write_text("no directory")
    for create in (False, True):
        with pytest.raises(tamis.StorageError):
            tamis.Matcher.open(file, create=create)
    assert file.read_text() == "no directory"
    for sync in ("sometimes", ""):
        with pytest.raises(tamis.ArgumentError):
            tamis.Matcher.open(tmp_path / "m", create=True, sync=sync)
    with pytest.raises(tamis.ArgumentTypeError):
        tamis.Matcher.open(tmp_path / "m", create=True, sync=None)  # type: ignore[arg-type]
    assert not (tmp_path / "m").exists()


def test_foreign_files_in_a_matcher_stay(tmp_path: Path) -> None:
    path = tmp_path / "m"
    tamis.Matcher.open(path, create=True).close()
    names = ["notes.txt", "log-1.wal.old", "log-x", ".hidden"]
    for name in names:
        (path / name).write_text(name)
    with tamis.Matcher.open(path) as matcher:
        matcher.subscribe("a", text_of("a"))
        matcher.checkpoint()
    check_goes_on(path, expected_of({"a": (text_of("a"), None)}))
    assert all((path / name).read_text() == name for name in names)


def test_only_logs_of_our_own_are_cleared_away(tmp_path: Path) -> None:
    path = tmp_path / "m"
    tamis.Matcher.open(path, create=True).close()
    (path / "log-7.wal").write_bytes(b"")  # left by a crash
    (path / "log-1-backup.wal").write_bytes((path / "log-1.wal").read_bytes())
    tamis.Matcher.open(path).close()
    assert not (path / "log-7.wal").exists()
    assert (path / "log-1-backup.wal").exists()


def test_an_empty_directory_becomes_a_matcher(tmp_path: Path) -> None:
    with tamis.Matcher.open(tmp_path, create=True) as matcher:
        matcher.subscribe("a", text_of("a"))
    check_goes_on(tmp_path, expected_of({"a": (text_of("a"), None)}))


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "m"
    with tamis.Matcher.open(path, create=True) as matcher:
        with pytest.raises(tamis.StorageError, match=f"process {os.getpid()}"):
            tamis.Matcher.open(path)
        code = f"import tamis; tamis.Matcher.open({str(path)!r}, create=True)"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert other.returncode == 1
        assert re.search(rf"StorageError: .*process {os.getpid()}", other.stderr)
        matcher.subscribe("a", text_of("a"))
    check_goes_on(path, expected_of({"a": (text_of("a"), None)}))

    code = f"import tamis; m = tamis.Matcher.open({str(path)!r}); print(flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    holder.stdout.readline()
    with pytest.raises(tamis.StorageError, match=f"process {holder.pid}"):
        tamis.Matcher.open(path)
    holder.kill()
    holder.communicate()
    tamis.Matcher.open(path).close()


def test_a_closed_matcher_refuses_changes_and_still_matches(tmp_path: Path) -> None:
    matcher = tamis.Matcher.open(tmp_path / "m", create=True)
    matcher.subscribe("a", circle_of("a", 0.0, 0.0))
    matcher.close()
    matcher.close()
    for change in (
        ("subscribe", "b", text_of("b"), None),
        ("subscribe_many", [("b", text_of("b"), None)]),
        ("unsubscribe", "a"),
        ("unsubscribe_many", ["a"]),
        ("move", "a", 1.0, 1.0),
        ("checkpoint",),
    ):
        with pytest.raises(tamis.TamisError, match="closed"):
            apply(matcher, change)
    expected = expected_of({"a": (circle_of("a", 0.0, 0.0), None)})
    assert seen_in(matcher) == expected
    check_goes_on(tmp_path / "m", expected)


def test_a_matcher_that_is_dropped_gives_the_lock_back(tmp_path: Path) -> None:
    for sync in SYNCS:
        matcher = tamis.Matcher.open(tmp_path / "m", create=True, sync=sync)
        matcher.subscribe(sync, text_of(sync))
        del matcher
    with tamis.Matcher.open(tmp_path / "m") as matcher:
        assert set(matcher) == set(SYNCS)


def test_closing_while_others_change_and_checkpoint(tmp_path: Path) -> None:
    for attempt in range(40):
        path = tmp_path / str(attempt)
        matcher = tamis.Matcher.open(path, create=True, sync="none")
        acknowledged: list[int] = []
        refusals: list[str] = []

        def change(
            matcher: tamis.Matcher = matcher,
            acks: list[int] = acknowledged,
            refusals: list[str] = refusals,
        ) -> None:
            try:
                for n in itertools.count():
                    matcher.subscribe(n, text_of(n))
                    acks.append(n)
            except tamis.TamisError as error:
                refusals.append(str(error))

        def checkpoint(matcher: tamis.Matcher = matcher, refusals: list[str] = refusals) -> None:
            try:
                while True:
                    matcher.checkpoint()
            except tamis.TamisError as error:
                refusals.append(str(error))

        threads = [threading.Thread(target=act, daemon=True) for act in (change, checkpoint)]
        for thread in threads:
            thread.start()
        time.sleep(random.Random(attempt).random() * 0.01)
        matcher.close()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive(), "a call hangs after close"
        assert len(refusals) == 2
        assert all("closed" in reason for reason in refusals)
        with tamis.Matcher.open(path) as matcher:
            assert set(matcher) == set(acknowledged)


def test_a_checkpoint_that_close_overtakes_is_told(tmp_path: Path) -> None:
    """It is made, or it raises; it neither hangs nor returns without having been made."""

    def attempt(path: Path, delay: float) -> None:
        matcher = tamis.Matcher.open(path, create=True, sync="none")
        ids = list(range(3000))  # enough for a merge, which a checkpoint waits for
        matcher.subscribe_many({"id": ids, "predicate": [text_of(each) for each in ids]})
        outcomes: list[str] = []

        def checkpoint() -> None:
            try:
                matcher.checkpoint()
                outcomes.append("made")
            except tamis.TamisError as error:
                outcomes.append(str(error))

        threads = [threading.Thread(target=checkpoint, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(delay)
        matcher.close()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive(), "checkpoint() hangs after close()"
        assert len(outcomes) == 2
        assert all(each == "made" or "closed" in each for each in outcomes)
        if "made" in outcomes:
            assert "logs 1:32\n" not in (path / "MANIFEST").read_text()
        shutil.rmtree(path)

    def act() -> None:  # in a child, so that a thread that hangs is not in the way of other tests
        rng = random.Random(1)
        for n in range(150):
            attempt(tmp_path / str(n), rng.choice([0, rng.random() * 0.002]))

    in_a_child_that_may_crash(act)


# ── crashes ─────────────────────────────────────────────────────────────────────────


def crash_at(path: Path, nth: int, action: str, sync: str) -> bool:
    """Runs the script up to the nth operation and checks what is left; false: it came through."""

    def act(writer: int) -> None:
        _core._set_fault(nth, action)
        run_script(path, sync, writer)

    status, written = in_child(act)
    assert status in (0, 137), f"operation {nth}: the child ended with {status}"
    n_done = len(written) - 1
    # Before the open call has returned there may be no matcher.
    allowed = [{}] if n_done < 0 else EXPECTED[n_done : n_done + 2]
    check_goes_on(path, *allowed, create=n_done < 0)
    return status == 137


@pytest.mark.parametrize("action", ["kill", "kill_midway"])
def test_a_crash_at_every_operation(tmp_path: Path, action: str) -> None:
    nth = 1
    while crash_at(tmp_path / str(nth), nth, action, "each"):
        shutil.rmtree(tmp_path / str(nth))
        nth += 1
    assert nth > 80


@pytest.mark.parametrize("sync", ["grouped", "none"])
def test_crashes_with_the_other_policies(tmp_path: Path, sync: str) -> None:
    n_crashes = sum(
        crash_at(tmp_path / f"{action}{nth}", nth, action, sync)
        for action in ("kill", "kill_midway")
        for nth in range(1, 70, 4)
    )
    assert n_crashes > 20


def test_a_crash_at_every_operation_of_recovery(tmp_path: Path) -> None:
    """Opening what a crash has left may itself be cut short, again and again."""
    n_operations = 0

    def count(writer: int) -> None:
        _core._set_fault(0, "kill")
        run_script(tmp_path / "whole", "each", writer)
        os.write(writer, struct.pack("<I", _core._n_operations()))

    status, written = in_child(count)
    assert status == 0
    n_operations = struct.unpack("<I", written[-4:])[0]
    for first in range(3, n_operations, 7):
        left = tmp_path / f"left{first}"

        def crash(writer: int, left: Path = left, first: int = first) -> None:
            _core._set_fault(first, "kill_midway")
            run_script(left, "each", writer)

        status, written = in_child(crash)
        assert status == 137
        n_done = len(written) - 1
        for second in itertools.count(1):
            path = tmp_path / f"{first}-{second}"
            shutil.copytree(left, path)

            def recover(writer: int, path: Path = path, second: int = second) -> None:
                _core._set_fault(second, "kill_midway")
                matcher = tamis.Matcher.open(path, create=True)
                _core._clear_fault()
                matcher.close()

            status, _ = in_child(recover)
            with tamis.Matcher.open(path, create=n_done < 0) as matcher:
                seen = seen_in(matcher)
            assert seen in ([{}] if n_done < 0 else EXPECTED[n_done : n_done + 2])
            shutil.rmtree(path)
            if status == 0:
                break
            assert status == 137
        assert second > 1


def test_a_crash_at_every_operation_of_save(tmp_path: Path) -> None:
    path = tmp_path / "m"
    with tamis.Matcher.open(path, create=True) as matcher:
        for change in SCRIPT:
            apply(matcher, change)
    saved = tmp_path / "saved"
    for nth in itertools.count(1):

        def save(_: int, nth: int = nth) -> None:
            matcher = tamis.Matcher.open(path)
            _core._set_fault(nth, "kill_midway")
            matcher.save(saved)

        status, _ = in_child(save)
        if saved.exists():
            check_goes_on(saved, EXPECTED[-1])
            shutil.rmtree(saved)
        with tamis.Matcher.open(path) as matcher:
            matcher.save(saved)  # over what the crash has left aside
        check_goes_on(saved, EXPECTED[-1])
        shutil.rmtree(saved)
        if status == 0:
            break
        assert status == 137
    assert nth > 5


@pytest.mark.parametrize("action", ["io_error", "no_space"])
def test_a_crash_after_a_checkpoint_that_failed(tmp_path: Path, action: str) -> None:
    """The failed checkpoint must leave nothing that makes a torn tail look like damage."""
    for nth in itertools.count(1):
        path = tmp_path / str(nth)

        def act(writer: int, path: Path = path, nth: int = nth) -> None:
            matcher = tamis.Matcher.open(path, create=True, sync="each")
            for change in SCRIPT[:10]:
                apply(matcher, change)
            _core._set_fault(nth, action)
            if failure_of(matcher.checkpoint) is None:
                os.write(writer, b"whole")
            _core._clear_fault()
            failure = failure_of(apply, matcher, SCRIPT[11])
            if failure is not None:
                assert "reopen" in str(failure)
                os._exit(137)
            os.write(writer, b".")
            _core._set_fault(1, "kill_midway")
            apply(matcher, SCRIPT[12])

        status, written = in_child(act)
        assert status == 137
        check_goes_on(path, EXPECTED[12 if written.endswith(b".") else 11])
        if written.startswith(b"whole"):
            break
    assert nth > 10


def random_change(n: int, model: Model) -> Change:
    """Change n of a history in which every change is possible: the same for whoever asks."""
    rng = random.Random(n)
    ids = sorted(model)
    kind = rng.random()
    any_id = f"s{rng.randrange(30)}"
    subscriber = rng.choice([None, "alice", "bob", "zoë"])
    circles = [each for each in ids if "NEAR" in model[each][0]]
    if kind < 0.02:
        return ("checkpoint",)
    if kind < 0.2 and ids:
        return ("unsubscribe", rng.choice(ids))
    if kind < 0.3 and len(ids) > 4:
        return ("unsubscribe_many", rng.sample(ids, 4))
    if kind < 0.5 and circles:
        return ("move", rng.choice(circles), rng.uniform(-9, 9), rng.uniform(-9, 9))
    if kind < 0.6:
        many = rng.sample(range(30), 5)
        return ("subscribe_many", [(f"s{m}", text_of(f"s{m}", f"x = {n}"), "m") for m in many])
    if kind < 0.8:
        return ("subscribe", any_id, circle_of(any_id, rng.uniform(-9, 9), 1.0), subscriber)
    return ("subscribe", any_id, text_of(any_id, f"x = {n}"), subscriber)


def check_circles(matcher: tamis.Matcher) -> None:
    """Every circle is where the text says that it is."""
    for each in matcher:
        near = re.search(r"NEAR\(([^,]+), ([^,]+), 5\)", matcher[each])
        if near is not None:
            x, y = float(near[1]), float(near[2])
            assert each in matcher.match({}, at=(x, y))
            assert each not in matcher.match({}, at=(x + 5.5, y))


# With spatial-grid, what is indexed moves in place.
@pytest.mark.parametrize("engine", ["auto", "spatial-grid"])
def test_killed_at_random_moments(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "m"
    rng = random.Random(2026)
    model: Model = {}
    n_next = 0
    n_undone = n_in_flight = 0
    tamis.Matcher.open(path, create=True).close()
    for attempt in range(200):
        sync = SYNCS[attempt % 3]

        def act(writer: int, sync: str = sync, n_next: int = n_next, model: Model = model) -> None:
            matcher = tamis.Matcher.open(path, sync=sync, engine=engine)
            while True:
                change = random_change(n_next, model)
                if change[0] == "move":
                    matcher.flush()
                apply(matcher, change)
                os.write(writer, b".")
                model = apply_to_model(model, change)
                n_next += 1

        pid, reader = start_child(act)
        n_done = 0
        for _ in range(rng.choice([0, 0, 1, 5, 20, 60])):
            n_done += len(os.read(reader, 1))
        time.sleep(rng.random() * 0.006)
        os.kill(pid, signal.SIGKILL)
        n_done += len(read_all(reader))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL

        for _ in range(n_done):
            model = apply_to_model(model, random_change(n_next, model))
            n_next += 1
        with tamis.Matcher.open(path, sync="none", engine=engine) as matcher:
            seen = seen_in(matcher)
            check_circles(matcher)
        further = apply_to_model(model, random_change(n_next, model))
        if seen == expected_of(model):
            n_undone += 1
        else:
            assert seen == expected_of(further), f"round {attempt}, change {n_next}"
            model = further
            n_next += 1
            n_in_flight += 1
    assert n_next > 1000
    assert n_undone > 20


# ── a disk that is full or broken ───────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("action", "n_times", "sync"),
    [
        ("no_space", 1, "each"),
        ("no_space", 2, "each"),  # nor can what was written of the record be cut off
        ("no_space", 10**6, "each"),
        ("io_error", 1, "each"),
        ("no_space", 1, "none"),
        ("io_error", 2, "none"),
    ],
)
def test_a_fault_at_every_operation(tmp_path: Path, action: str, n_times: int, sync: str) -> None:
    for nth in itertools.count(1):
        path = tmp_path / str(nth)
        n_faults = 0
        _core._set_fault(nth, action, n_times)
        matcher: tamis.Matcher | None = None
        while matcher is None:
            try:
                matcher = tamis.Matcher.open(path, create=True, sync=sync)
            except tamis.StorageError:
                n_faults += 1
            assert n_faults <= 2
            if n_faults > 0 and n_times > 2:
                _core._clear_fault()
        model: Model = {}
        for change in SCRIPT:
            for _ in range(4):
                failure = failure_of(apply, matcher, change)
                if failure is None:
                    model = apply_to_model(model, change)
                    break
                n_faults += 1
                assert str(path) in str(failure)
                assert seen_in(matcher) == expected_of(model)  # it has not happened
                if n_times > 2:
                    _core._clear_fault()
                if "reopen" in str(failure):
                    _core._clear_fault()
                    assert failure_of(matcher.close) is not None
                    matcher = tamis.Matcher.open(path, sync=sync)
                    seen = seen_in(matcher)
                    if seen != expected_of(model):
                        # Its sync failed, not its write: it may be there.
                        model = apply_to_model(model, change)
                        assert seen == expected_of(model)
                        break
            else:
                pytest.fail(f"operation {nth}: {change} never succeeds")
        assert model == MODELS[-1]
        assert seen_in(matcher) == EXPECTED[-1]
        if n_faults > 0:
            _core._clear_fault()
        is_hit_at_close = failure_of(matcher.close) is not None
        is_over = n_faults == 0 and not is_hit_at_close
        assert n_faults == 0 or not is_hit_at_close
        assert not is_over or _core._n_operations() <= nth  # only a second sync may fail unseen
        _core._clear_fault()
        del matcher
        check_goes_on(path, expected_of(model))
        shutil.rmtree(path)
        if is_over:
            break
    assert nth > 50


def test_a_fault_at_every_operation_of_save(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    memory = tamis.Matcher()
    memory.subscribe("a", text_of("a"))
    for nth in itertools.count(1):
        _core._set_fault(nth, "no_space")
        try:
            memory.save(path)
        except tamis.StorageError:
            _core._clear_fault()
        else:
            break
        if not path.exists():
            memory.save(path)
        check_goes_on(path, expected_of({"a": (text_of("a"), None)}))
        shutil.rmtree(path)
    assert nth > 5


def test_a_failed_group_sync_is_told(tmp_path: Path) -> None:
    matcher = tamis.Matcher.open(tmp_path / "m", create=True, sync="grouped")
    matcher.subscribe("a", text_of("a"))
    _core._set_fault(2, "io_error")  # the first is the write
    matcher.subscribe("b", text_of("b"))
    while _core._n_operations() < 2:
        time.sleep(0.001)
    time.sleep(0.05)
    with pytest.raises(tamis.StorageError, match="reopen"):
        matcher.subscribe("c", text_of("c"))
    assert set(matcher) == {"a", "b"}
    with pytest.raises(tamis.StorageError):
        matcher.close()
    with tamis.Matcher.open(tmp_path / "m") as matcher:
        assert set(matcher) == {"a", "b"}


# ── damage ──────────────────────────────────────────────────────────────────────────


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


SMALL: list[Change] = [
    ("subscribe", "a", text_of("a"), None),
    ("subscribe_many", [("b", text_of("b"), "z"), ("c", text_of("c"), "z")]),
    ("checkpoint",),
    ("subscribe_many", [("d", text_of("d", "y = 2"), "z"), ("e", text_of("e"), "z")]),
    ("unsubscribe_many", ["d"]),
    ("subscribe", "a", text_of("a", "w = 3"), None),
]
SMALL_SEEN = [
    expected_of(model) for model in itertools.accumulate(SMALL, apply_to_model, initial={})
]


def small_matcher(path: Path) -> tuple[str, str]:
    """Makes a directory with an image and a log behind it; gives their names."""
    with tamis.Matcher.open(path, create=True, sync="none") as matcher:
        for change in SMALL:
            apply(matcher, change)
    manifest = (path / "MANIFEST").read_text()
    image, log = re.search(r"image (\d+):\d+\nlogs (\d+):\d+\n", manifest).groups()  # type: ignore[union-attr]
    return f"image-{image}.tamis", f"log-{log}.wal"


def ends_of_records(log: bytes) -> list[int]:
    ends = [32]
    while ends[-1] < len(log):
        ends.append(ends[-1] + 16 + struct.unpack_from("<Q", log, ends[-1])[0])
    assert ends[-1] == len(log)
    return ends


def open_damaged(path: Path, name: str) -> Seen | None:
    """What is seen, or None: an error that names the file."""
    try:
        with tamis.Matcher.open(path, sync="none") as matcher:
            return seen_in(matcher)  # an image is checked where it is used first
    except tamis.StorageError as error:
        return None if str(path / name) in str(error) else {"another file": (str(error), [])}


def in_a_child_that_may_crash(act: Callable[[], None]) -> None:
    status, complaint = in_child(lambda writer: complain(act, writer))
    assert status == 0, f"the child ended with {status}"
    assert not complaint, complaint.decode()


def complain(act: Callable[[], None], writer: int) -> None:
    try:
        act()
    except BaseException:
        os.write(writer, traceback.format_exc()[-3000:].encode())


@pytest.mark.parametrize("which", ["MANIFEST", "image", "last"])
def test_files_cut_at_every_length(tmp_path: Path, which: str) -> None:
    original = tmp_path / "m"
    image, last = small_matcher(original)
    name = {"MANIFEST": "MANIFEST", "image": image, "last": last}[which]
    data = (original / name).read_bytes()
    ends = ends_of_records(data) if which == "last" else []

    def act() -> None:
        wrong = []
        path = tmp_path / "copy"
        for length in range(len(data)):
            shutil.copytree(original, path)
            (path / name).write_bytes(data[:length])
            seen = open_damaged(path, name)
            expected = None
            if which == "last" and length >= ends[0]:  # the manifest knows of its header
                expected = SMALL_SEEN[3 + sum(end <= length for end in ends[1:])]
            if seen != expected:
                wrong.append((length, seen))
            shutil.rmtree(path)
        assert not wrong, f"{name} of {len(data)} bytes, cut at: {wrong}"

    in_a_child_that_may_crash(act)


@pytest.mark.parametrize("which", ["MANIFEST", "image", "last"])
def test_every_bit_flipped(tmp_path: Path, which: str) -> None:
    original = tmp_path / "m"
    image, last = small_matcher(original)
    name = {"MANIFEST": "MANIFEST", "image": image, "last": last}[which]
    data = (original / name).read_bytes()
    # Damage to the last record of all cannot be told from a write that was cut short.
    last_record = ends_of_records(data)[-2] if which == "last" else len(data)

    def act() -> None:
        path = tmp_path / "copy"
        # An image has many bytes: one bit of each, and another one in the next.
        bits = range(0, 8 * len(data), 9) if which == "image" else range(8 * len(data))
        n_refused = 0
        for bit in bits:
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            shutil.copytree(original, path)
            (path / name).write_bytes(damaged)
            seen = open_damaged(path, name)
            n_refused += seen is None
            if which == "image":  # nothing reads what lies between two sections
                assert seen in (None, SMALL_SEEN[-1]), f"byte {bit // 8} of {len(data)}: {seen}"
            elif bit // 8 < last_record:
                assert seen is None, f"bit {bit % 8} of byte {bit // 8} of {len(data)}: {seen}"
            else:
                assert seen in (None, SMALL_SEEN[-2])
            shutil.rmtree(path)
        assert n_refused > len(bits) / 2

    in_a_child_that_may_crash(act)


@pytest.mark.parametrize("which", ["MANIFEST", "image", "last"])
def test_a_missing_file_is_no_empty_file(tmp_path: Path, which: str) -> None:
    path = tmp_path / "m"
    image, last = small_matcher(path)
    name = {"MANIFEST": "MANIFEST", "image": image, "last": last}[which]
    data = (path / name).read_bytes()
    (path / name).unlink()
    for create in (False, True):
        with pytest.raises(tamis.StorageError, match=re.escape(str(path))):
            tamis.Matcher.open(path, create=create)
    (path / name).write_bytes(data)
    check_goes_on(path, SMALL_SEEN[-1])


def test_files_that_changed_places_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m"
    image, last = small_matcher(path)
    (path / image).rename(path / "x")
    (path / last).rename(path / image)
    (path / "x").rename(path / last)
    with pytest.raises(tamis.StorageError, match=re.escape(str(path / image))):
        tamis.Matcher.open(path)
    (path / image).unlink()
    (path / last).rename(path / image)
    small_matcher(tmp_path / "other")  # with one change less
    with tamis.Matcher.open(tmp_path / "other") as matcher:
        matcher.checkpoint()
    (other_log,) = (tmp_path / "other").glob("log-*.wal")
    other_log.rename(path / last)
    with pytest.raises(tamis.StorageError, match=re.escape(str(path / last))):
        tamis.Matcher.open(path)


def test_a_newer_format_is_refused_as_such(tmp_path: Path) -> None:
    path = tmp_path / "m"
    image, last = small_matcher(path)
    manifest = (path / "MANIFEST").read_bytes()
    body = manifest[: manifest.rindex(b"crc32c ")]
    assert manifest == body + b"crc32c %08x\n" % crc32c(body)  # so our checksum is theirs
    for number, word in ((1, "older"), (2, "older"), (4, "newer")):
        other = body.replace(b"format 3\n", b"format %d\nwhatever else\n" % number)
        (path / "MANIFEST").write_bytes(other + b"crc32c %08x\n" % crc32c(other))
        with pytest.raises(tamis.StorageError, match=rf"MANIFEST.*{word}.*{number}"):
            tamis.Matcher.open(path)
    (path / "MANIFEST").write_bytes(manifest)
    log = (path / last).read_bytes()
    head = log[:8] + struct.pack("<I", 2) + log[12:28]
    (path / last).write_bytes(head + struct.pack("<I", crc32c(head)) + log[32:])
    with pytest.raises(tamis.StorageError, match=rf"{last}.*newer.*2"):
        tamis.Matcher.open(path)
    (path / last).write_bytes(log)
    data = (path / image).read_bytes()
    (own,) = struct.unpack("<I", data[8:12])
    for number, word in (*((each, "older") for each in range(1, own)), (own + 1, "newer")):
        head = data[:8] + struct.pack("<I", number)
        (path / image).write_bytes(head + struct.pack("<I", crc32c(head)) + data[16:])
        with pytest.raises(tamis.StorageError, match=rf"{image}.*{word}.*{number}"):
            tamis.Matcher.open(path)
    (path / image).write_bytes(data)
    check_goes_on(path, SMALL_SEEN[-1])


def test_a_tail_of_zeros_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "m"
    _, last = small_matcher(path)
    for n_zeros in (1, 15, 16, 17, 4096):
        with open(path / last, "ab") as file:
            file.write(bytes(n_zeros))
        with tamis.Matcher.open(path) as matcher:
            assert seen_in(matcher) == SMALL_SEEN[-1]
    check_goes_on(path, SMALL_SEEN[-1])


# ── fork ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sync", SYNCS)
def test_a_fork_may_match_and_not_change(tmp_path: Path, sync: str) -> None:
    path = tmp_path / "m"
    parent = os.getpid()
    with tamis.Matcher.open(path, create=True, sync=sync) as matcher:
        model: Model = {}
        for change in SCRIPT[:10]:
            apply(matcher, change)
            model = apply_to_model(model, change)

        def act() -> None:
            assert seen_in(matcher) == expected_of(model)
            for change in (*SCRIPT[11:19], ("checkpoint",)):
                with pytest.raises(tamis.TamisError):
                    apply(matcher, change)
            with pytest.raises(tamis.StorageError, match=f"process {parent}"):
                tamis.Matcher.open(path)
            assert seen_in(matcher) == expected_of(model)
            matcher.save(tmp_path / "saved by the child")
            with tamis.Matcher.open(tmp_path / "saved by the child") as saved:
                apply(saved, SCRIPT[11])
            matcher.close()
            assert seen_in(matcher) == expected_of(model)

        in_a_child_that_may_crash(act)
        for change in SCRIPT[10:]:
            apply(matcher, change)
        in_a_child_that_may_crash(lambda: None)
        assert seen_in(matcher) == EXPECTED[-1]
    check_goes_on(path, EXPECTED[-1])
    with tamis.Matcher.open(tmp_path / "saved by the child") as saved:
        assert seen_in(saved) == expected_of(apply_to_model(model, SCRIPT[11]))


def test_a_fork_that_lives_on_does_not_hold_the_directory(tmp_path: Path) -> None:
    path = tmp_path / "m"
    matcher = tamis.Matcher.open(path, create=True)
    matcher.subscribe("a", text_of("a"))
    until, go = os.pipe()

    def act(writer: int) -> None:
        os.close(go)
        os.write(writer, b".")
        os.read(until, 1)
        assert matcher.match({"x": 1}) == ["a"]

    pid, reader = start_child(act)
    os.read(reader, 1)
    matcher.subscribe("b", text_of("b"))
    matcher.close()
    with tamis.Matcher.open(path) as again:
        assert set(again) == {"a", "b"}
    os.close(go)
    os.close(until)
    read_all(reader)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_forks_amid_changes_and_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "m"
    is_over = threading.Event()
    with tamis.Matcher.open(path, create=True) as matcher:
        n_done = 0

        def change() -> None:
            nonlocal n_done
            while not is_over.is_set():
                matcher.subscribe(n_done, text_of(n_done))
                n_done += 1
                if n_done % 50 == 0:
                    matcher.checkpoint()

        thread = threading.Thread(target=change)
        thread.start()
        try:
            for _ in range(30):

                def act() -> None:
                    n_seen = len(matcher)
                    assert len(matcher.match({"x": 1})) == n_seen
                    with pytest.raises(tamis.TamisError):
                        matcher.subscribe(-1, text_of(-1))

                in_a_child_that_may_crash(act)
        finally:
            is_over.set()
            thread.join()
    with tamis.Matcher.open(path) as matcher:
        assert set(matcher) == set(range(n_done))


# ── checkpoints ─────────────────────────────────────────────────────────────────────


def n_bytes_of_logs(path: Path) -> int:
    n_bytes = 0
    for file in path.glob("log-*.wal"):
        # A checkpoint in the background may remove a log between its listing and its size.
        with contextlib.suppress(FileNotFoundError):
            n_bytes += file.stat().st_size
    return n_bytes


def test_checkpoints_come_by_themselves(tmp_path: Path) -> None:
    path = tmp_path / "m"
    model: Model = {}
    n_written = 0
    with tamis.Matcher.open(path, create=True, sync="none") as matcher:
        for n in range(48):
            each = f"s{n % 3}"
            text = text_of(each, f"x = '{str(n) * (500_000 // len(str(n)))}'")
            matcher.subscribe(each, text, subscriber=str(n))
            model[each] = (text, str(n))
            n_written += len(text)
        assert n_written > 20 << 20
        # Made in the background, until the logs are short, or short beside the image.
        deadline = time.monotonic() + 60
        while n_bytes_of_logs(path) > max(5 << 20, matcher.stats()["n_image_bytes"] // 4):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert matcher.stats()["n_image_bytes"] > 0
        assert n_bytes_of_logs(path) < n_written // 2
        assert matcher.stats()["checkpoint_error"] == ""
        assert seen_in(matcher) == expected_of(model)
        matcher.checkpoint()
        assert n_bytes_of_logs(path) < 2 << 20
        assert matcher.stats()["n_log_bytes"] == n_bytes_of_logs(path)
    check_goes_on(path, expected_of(model))
    assert n_bytes_of_logs(path) < 2 << 20


def test_checkpoints_leave_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "m"
    sizes = set()
    with tamis.Matcher.open(path, create=True, sync="none") as matcher:
        for n in range(20):
            matcher.subscribe("a", text_of("a", f"x = {n % 10}"))
            matcher.checkpoint()
            sizes.add(n_bytes_of_logs(path))
            assert len(list(path.glob("log-*.wal"))) == len(list(path.glob("image-*.tamis"))) == 1
            assert list((path / "aside").iterdir()) == []
    assert len(sizes) == 1
