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


def test_plan_tells_engines_as_text_and_as_json(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("events.csv").write_text("x\n" + "3\n" * 50)
    capsys.readouterr()
    assert cli.main(["index", "plan", "m"]) == 0
    assert "as planned when it was saved" in capsys.readouterr().out
    assert cli.main(["index", "plan", "m", "--events", "events.csv"]) == 0
    assert "50 events seen lately: 1.0 attributes each" in capsys.readouterr().out
    assert cli.main(["index", "plan", "m", "--events", "events.csv", "--json"]) == 0
    (segment,) = json.loads(capsys.readouterr().out)["segments"]
    assert segment["n_filters"] == 2
    assert segment["groups"][0]["estimates"]


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
    (log,) = Path("m").glob("log-*.wal")
    log.write_bytes(log.read_bytes()[:-3])
    assert cli.main(["index", "verify", "m"]) == 1
    assert log.name in capsys.readouterr().err


def test_info_tells_the_bytes_of_image_and_logs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told() -> dict[str, int]:
        capsys.readouterr()
        assert cli.main(["index", "info", "m", "--json"]) == 0
        stats = json.loads(capsys.readouterr().out)
        return {name: stats[name] for name in ("n_image_bytes", "n_logs", "n_log_bytes")}

    def there() -> dict[str, int]:
        logs = list(Path("m").glob("log-*.wal"))
        return {
            "n_image_bytes": sum(each.stat().st_size for each in Path("m").glob("image-*.tamis")),
            "n_logs": len(logs),
            "n_log_bytes": sum(each.stat().st_size for each in logs),
        }

    assert told() == there()
    assert told()["n_image_bytes"] > 0
    assert cli.main(["index", "add", "m", "rows.csv"]) == 0
    assert told() == there()
    assert cli.main(["index", "info", "m"]) == 0
    n_bytes = there()
    assert (
        f"image          {n_bytes['n_image_bytes']} bytes\n"
        f"logs           1, {n_bytes['n_log_bytes']} bytes\n"
    ) in capsys.readouterr().out


def test_info_and_verify_work_beside_a_writer_and_change_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tamis.Matcher.open("m") as writer:
        writer.subscribe("c", "x > 3")
        before = {path: path.read_bytes() for path in Path("m").rglob("*") if path.is_file()}
        capsys.readouterr()
        assert cli.main(["index", "info", "m"]) == 0
        assert cli.main(["index", "verify", "m"]) == 0
        out = capsys.readouterr().out
        assert "subscriptions  3\n" in out
        assert "m: whole, 3 subscriptions" in out
        after = {path: path.read_bytes() for path in Path("m").rglob("*") if path.is_file()}
        assert after == before
        assert cli.main(["index", "add", "m", "rows.csv"]) == 2
        assert "is open for writing" in capsys.readouterr().err
        writer.checkpoint()
        assert cli.main(["index", "verify", "m"]) == 0


def test_verify_reads_every_byte_of_the_image(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also texts, which opening leaves for later."""
    (image,) = Path("m").glob("image-*.tamis")
    whole = image.read_bytes()
    at = whole.index(b"x\xf82")  # "x > 2", packed
    image.write_bytes(whole[:at] + b"y" + whole[at + 1 :])
    tamis.Matcher.open("m").close()
    capsys.readouterr()
    assert cli.main(["index", "verify", "m"]) == 1
    assert image.name in capsys.readouterr().err
    assert cli.main(["index", "info", "m"]) == 0  # which does not look at them
    image.unlink()
    assert cli.main(["index", "verify", "m"]) == 1
    assert image.name in capsys.readouterr().err
