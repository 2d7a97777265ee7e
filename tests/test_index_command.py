"""`tamis index`: a directory of subscriptions, from files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tamis
from tamis import cli

ROWS = "id,predicate,subscriber\na,x > 1,ann\nb,x > 2,bob\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text(ROWS)
    assert cli.main(["index", "build", "m", "rows.csv"]) == 0
    return tmp_path


def test_build_add_and_remove_change_what_open_sees(folder: Path) -> None:
    Path("more.csv").write_text("id,predicate\nb,x > 9\nc,x > 3\n")
    Path("gone.csv").write_text("id\na\n")
    assert cli.main(["index", "add", "m", "more.csv"]) == 0
    assert cli.main(["index", "remove", "m", "gone.csv"]) == 0
    with tamis.Matcher.open("m") as matcher:
        assert {id: matcher[id] for id in matcher} == {"b": "x > 9", "c": "x > 3"}
    assert sorted(path.name for path in folder.iterdir()) == [
        "gone.csv",
        "m",
        "more.csv",
        "rows.csv",
    ]


def test_info_tells_as_text_and_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["index", "info", "m"]) == 0
    assert "subscriptions  2\nsubscribers    2\n" in capsys.readouterr().out
    assert cli.main(["index", "info", "m", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_subscriptions"] == 2


def test_a_bad_row_changes_nothing_and_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.csv").write_text("id,predicate\nc,x > 3\nd,x >\n")
    Path("unknown.csv").write_text("id\na\nz\n")
    assert cli.main(["index", "add", "m", "bad.csv"]) == 2
    assert "row 1: expected a value, not the end" in capsys.readouterr().err
    assert cli.main(["index", "build", "n", "bad.csv"]) == 2
    assert cli.main(["index", "remove", "m", "unknown.csv"]) == 2
    assert "no subscription has the id 'z'" in capsys.readouterr().err
    with tamis.Matcher.open("m") as matcher:
        assert sorted(matcher) == ["a", "b"]
    assert not Path("n").exists()
    assert not Path("n.building").exists()


def test_build_does_not_touch_what_is_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["index", "build", "m", "rows.csv"]) == 2
    assert "exists already" in capsys.readouterr().err


def test_verify_finds_damage(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["index", "verify", "m"]) == 0
    log = Path("m/log-1.wal")
    log.write_bytes(log.read_bytes()[:-3])
    assert cli.main(["index", "verify", "m"]) == 1
    assert "log-1.wal" in capsys.readouterr().err
