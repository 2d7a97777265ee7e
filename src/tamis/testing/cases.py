"""The hand-written cases under `tests/cases`: texts, events and the expected answers.

`tests/cases/README.md` describes the files. `load_cases` brings the three forms
into one shape, so that a reader has one loop:

    for case in load_cases(folder):
        case.is_invalid ? the text must be refused
                        : every (event, expected ids) of case.events must come out
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tamis.errors import ArgumentError

# The id of the only subscription of a case that has one predicate.
ONLY_ID = "s"

_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "-0.0": -0.0}
_COMMON_KEYS = {"name", "why", "space"}
_FORMS = (
    ({"predicate", "match", "miss"}, {"predicate"}),
    ({"predicates", "events"}, {"predicates", "events"}),
    ({"predicate", "invalid", "offset"}, {"predicate", "invalid"}),
)


class Event(NamedTuple):
    """Attributes and perhaps a position."""

    attributes: dict[str, Any]
    at: tuple[float, float] | None = None


@dataclass(frozen=True)
class Case:
    """Subscriptions and, for each event, the ids that must match; or a text to refuse."""

    name: str
    file: str
    why: str
    space: str
    predicates: Mapping[str, str]  # id → text
    events: tuple[tuple[Event, frozenset[str]], ...]
    is_invalid: bool = False
    offset: int | None = None  # where the caret belongs, in characters, if that is beyond doubt

    def __str__(self) -> str:
        return f"{self.file}-{self.name}"


def load_cases(folder: str | Path) -> list[Case]:
    """Every case of the folder's `*.json` files, in the order of file names and places."""
    cases: list[Case] = []
    files = sorted(Path(folder).glob("*.json"))
    if not files:
        raise ArgumentError(f"folder must hold *.json files of cases, not none: {folder}")
    for file in files:
        entries = json.loads(
            file.read_text(encoding="utf-8"),
            object_hook=_decode_object,
            parse_constant=_refuse_constant,
        )
        cases.extend(_case(entry, file.stem) for entry in entries)
    names = [str(case) for case in cases]
    for name in names:
        if names.count(name) > 1:
            raise ArgumentError(f"names of cases must be unique within a file, not twice {name!r}")
    return cases


def _decode_object(fields: dict[str, Any]) -> Any:
    if fields.keys() == {"$float"}:
        return _FLOATS[fields["$float"]]
    if fields.keys() == {"$repeat"}:
        text, count = fields["$repeat"]
        return text * count
    return fields


def _refuse_constant(name: str) -> Any:
    raise ArgumentError(f'cases must be standard JSON: write {{"$float": …}}, not {name}')


def _case(entry: dict[str, Any], file: str) -> Case:
    where = f"case {entry.get('name')!r} of {file}.json"
    if not any(required <= entry.keys() <= allowed | _COMMON_KEYS for allowed, required in _FORMS):
        raise ArgumentError(f"{where} must have the keys of one form, not {sorted(entry)}")
    if "predicates" in entry:
        predicates = dict(entry["predicates"])
        expectations = [(_event(event), frozenset(event["expect"])) for event in entry["events"]]
    else:
        predicates = {ONLY_ID: entry["predicate"]}
        expectations = [(_event(event), frozenset({ONLY_ID})) for event in entry.get("match", [])]
        expectations += [(_event(event), frozenset()) for event in entry.get("miss", [])]
    if bool(expectations) == bool(entry.get("invalid", False)):
        raise ArgumentError(f"{where} must have events or be invalid, not both or neither")
    if not all(expected <= predicates.keys() for _, expected in expectations):
        raise ArgumentError(f"{where} must expect ids that it subscribes")
    return Case(
        name=entry["name"],
        file=file,
        why=entry.get("why", ""),
        space=entry.get("space", "plane"),
        predicates=predicates,
        events=tuple(expectations),
        is_invalid=bool(entry.get("invalid", False)),
        offset=entry.get("offset"),
    )


def _event(fields: dict[str, Any]) -> Event:
    if not {"attributes"} <= fields.keys() <= {"attributes", "at", "expect"}:
        raise ArgumentError(f"an event must have attributes and may have at, not {sorted(fields)}")
    at = fields.get("at")
    return Event(fields["attributes"], None if at is None else (float(at[0]), float(at[1])))
