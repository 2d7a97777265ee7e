"""What a version of an index consists of."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self

from tamis.errors import StorageError

FORMAT = 1


@dataclass(frozen=True)
class Piece:
    """An object: a part of a file."""

    hash: str
    n_bytes: int


@dataclass(frozen=True)
class File:
    """A file of a shard's directory: its pieces, one behind the other.

    An image is one piece. A log only grows, so each update adds a piece to it.
    """

    name: str
    pieces: tuple[Piece, ...]

    @property
    def n_bytes(self) -> int:
        return sum(piece.n_bytes for piece in self.pieces)


@dataclass(frozen=True)
class Attribute:
    """What a shard's filters ask of an attribute."""

    numbers: bool
    strings: bool
    booleans: bool
    n_needing: int  # filters that no event without it satisfies
    low: float  # the numbers that those accept
    high: float

    def merged(self, other: Attribute) -> Attribute:
        return Attribute(
            self.numbers or other.numbers,
            self.strings or other.strings,
            self.booleans or other.booleans,
            self.n_needing + other.n_needing,
            min(self.low, other.low),
            max(self.high, other.high),
        )


@dataclass(frozen=True)
class Summary:
    """What a shard's filters ask of events. It may ask too little of them, never too much."""

    n_filters: int = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    n_with_area: int = 0  # filters that need a position inside a circle
    box: tuple[float, float, float, float] = (math.inf, math.inf, -math.inf, -math.inf)
    max_radius: float = 0.0

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> Self:
        """Of a matcher's own summary."""
        return cls(
            summary["n_filters"],
            {name: Attribute(**each) for name, each in summary["attributes"].items()},
            summary["n_with_area"],
            tuple(summary["box"]),
            summary["max_radius"],
        )

    def merged(self, other: Summary) -> Summary:
        attributes = dict(self.attributes)
        for name, each in other.attributes.items():
            known = attributes.get(name)
            attributes[name] = each if known is None else known.merged(each)
        low_x, low_y, high_x, high_y = self.box
        return Summary(
            self.n_filters + other.n_filters,
            attributes,
            self.n_with_area + other.n_with_area,
            (
                min(low_x, other.box[0]),
                min(low_y, other.box[1]),
                max(high_x, other.box[2]),
                max(high_y, other.box[3]),
            ),
            max(self.max_radius, other.max_radius),
        )


@dataclass(frozen=True)
class Shard:
    """A part of the subscriptions: the directory of a matcher."""

    files: tuple[File, ...]
    n_subscriptions: int
    summary: Summary

    @cached_property
    def key(self) -> str:
        """The hash of its content: the name of its directory on every node."""
        text = json.dumps([(file.name, [p.hash for p in file.pieces]) for file in self.files])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def n_bytes(self) -> int:
        return sum(file.n_bytes for file in self.files)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        summary = data["summary"]
        return cls(
            tuple(
                File(file["name"], tuple(Piece(**piece) for piece in file["pieces"]))
                for file in data["files"]
            ),
            data["n_subscriptions"],
            Summary(
                summary["n_filters"],
                {name: Attribute(**each) for name, each in summary["attributes"].items()},
                summary["n_with_area"],
                tuple(summary["box"]),
                summary["max_radius"],
            ),
        )


@dataclass(frozen=True)
class Manifest:
    """A version of an index."""

    version: int
    space: str
    engine: str
    parameters: Mapping[str, float]
    id_type: str  # "bigint" or "string", as Spark calls it
    partition_by: str
    created: str
    shards: tuple[Shard, ...]
    tree: Any = None  # of `partitioning`, where they are not spread by id
    rejected: tuple[Piece, ...] = ()  # tables of rows that were not taken, as Parquet
    n_rejected: int = 0

    @property
    def n_subscriptions(self) -> int:
        return sum(shard.n_subscriptions for shard in self.shards)

    @cached_property
    def summary(self) -> Summary:
        """Of all shards."""
        summary = Summary()
        for shard in self.shards:
            summary = summary.merged(shard.summary)
        return summary

    def pieces(self) -> set[str]:
        """The hashes of everything that the version needs."""
        shards = (p for shard in self.shards for file in shard.files for p in file.pieces)
        return {piece.hash for piece in (*shards, *self.rejected)}

    def to_json(self) -> bytes:
        text = json.dumps({"format": FORMAT, **asdict(self)})
        checksum = hashlib.sha256(text.encode()).hexdigest()
        return f'{{"checksum": "{checksum}", "manifest": {text}}}\n'.encode()

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Self:
        try:
            text = data.decode().strip()
            head = '{"checksum": "'
            checksum, body = text[len(head) : len(head) + 64], text[len(head) + 64 :]
            body = body.removeprefix('", "manifest": ')[:-1]
            is_whole = hashlib.sha256(body.encode()).hexdigest() == checksum
        except UnicodeDecodeError:
            is_whole = False
        if not is_whole:
            raise StorageError(f"{where} is damaged: its checksum does not fit its text")
        fields = json.loads(body)
        if (form := fields.pop("format")) != FORMAT:
            raise StorageError(f"{where} has the format {form}, and this Tamis reads {FORMAT}")
        fields["shards"] = tuple(Shard.from_dict(shard) for shard in fields["shards"])
        fields["rejected"] = tuple(Piece(**piece) for piece in fields["rejected"])
        return cls(**fields)
