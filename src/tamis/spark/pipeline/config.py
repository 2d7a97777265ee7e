"""The file that describes a pipeline."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from tamis.errors import ArgumentError

EXAMPLE = """\
# A pipeline of Tamis: tamis pipeline run pipeline.toml
# Every format and option of Spark's own readers and writers can stand here; `path` may be left out
# where a format has none, such as kafka and jdbc.

[subscriptions]                 # leave this section out to use the index as it is
format = "csv"
path = "alerts.csv"
options = { header = true }
# schema = "id string, predicate string"
# select = ["upper(id) AS id", "predicate"]   # columns in SQL; those of the source unless told
id = "id"                       # columns
predicate = "predicate"
# subscriber = "subscriber"

[index]
path = "alerts-index"           # a folder, or a URI such as s3://bucket/alerts
engine = "auto"
space = "plane"                 # "earth": NEAR takes longitude, latitude and metres
mode = "permissive"             # "failfast": one bad predicate ends the pipeline
# shards = 4
# partition_by = "id"           # "region" or an attribute: neighbours share a shard

[events]
format = "parquet"              # "workload" with path = "flights" makes some
path = "events.parquet"
# rows = 1000                   # of a workload
# format = "kafka"
# options = { "kafka.bootstrap.servers" = "localhost:9092", subscribe = "events" }
# select = [
#   "concat_ws('-', partition, offset) AS event",
#   "from_json(CAST(value AS STRING), 'temp DOUBLE').temp AS temp",
# ]
id = "event"                    # the column that says which event it is
# columns = ["temp", "area"]    # attributes; all columns unless told
# attrs = ["numbers"]           # map columns with attributes
# position = ["lon", "lat"]
# stream = true                 # read as a stream; the index may change meanwhile
# trigger = "2 seconds"         # of a stream; "available" ends when everything there was matched
# checkpoint = "checkpoint"
# schema = "event long, temp double"

[matches]
format = "parquet"
path = "matches"
# options = { compression = "zstd" }
# mode = "overwrite"            # of a table; "append" unless told where there is no path
# select = ["CAST(event AS STRING) AS key", "to_json(struct(*)) AS value"]
output = "pairs"                # "list" or "count": a row for each event
deliver = "subscriptions"       # "subscribers": each once
keep = []                       # columns of the events that the matches have too
# max_mapped_bytes = 1000000000 # of the index, in each worker at a time; all of it unless told
# route = "auto"                # "always", "never": shuffle the events to where their shards are

[report]
path = "report.html"

[spark]
master = "local[*]"
# conf = { "spark.driver.memory" = "4g", "spark.log.level" = "ERROR" }
"""


@dataclass(frozen=True)
class Subscriptions:
    path: str = ""
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str = ""
    select: list[str] = field(default_factory=list)
    id: str = "id"
    predicate: str = "predicate"
    subscriber: str = ""


@dataclass(frozen=True)
class Index:
    path: str = ""
    engine: str = "auto"
    space: str = "plane"
    mode: str = "permissive"
    shards: int = 0
    partition_by: str = "id"


@dataclass(frozen=True)
class Events:
    path: str = ""
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str = ""
    select: list[str] = field(default_factory=list)
    id: str = ""
    columns: list[str] = field(default_factory=list)
    attrs: list[str] = field(default_factory=list)
    position: list[str] = field(default_factory=list)
    stream: bool = False
    trigger: str = "available"
    checkpoint: str = ""
    rows: int = 0  # of a workload


@dataclass(frozen=True)
class Matches:
    path: str = ""
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    mode: str = ""
    select: list[str] = field(default_factory=list)
    output: str = "pairs"
    deliver: str = "subscriptions"
    keep: list[str] = field(default_factory=list)
    max_mapped_bytes: int = 0
    route: str = "auto"


@dataclass(frozen=True)
class Report:
    path: str = ""


@dataclass(frozen=True)
class Spark:
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Config:
    """What a pipeline does."""

    subscriptions: Subscriptions | None
    index: Index
    events: Events
    matches: Matches
    report: Report
    spark: Spark


_SECTIONS: dict[str, type[Any]] = {
    "subscriptions": Subscriptions,
    "index": Index,
    "events": Events,
    "matches": Matches,
    "report": Report,
    "spark": Spark,
}
_NEEDED = {"index": ("path",), "events": ("id",)}
FILE_FORMATS = ("parquet", "json", "csv", "orc", "text", "xml", "avro")
_MODES = ("overwrite", "append", "error", "ignore")


def read_config(path: str | Path | None, settings: Mapping[str, str] | None = None) -> Config:
    """A pipeline from a file, and settings such as events.path=… that win over it."""
    tables: dict[str, Any] = {}
    where = "the settings"
    if path is not None:
        where = str(path)
        try:
            tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ArgumentError(f"{path}: {error}") from error
    for name, text in (settings or {}).items():
        section, _, key = name.partition(".")
        _check_section(section, where)
        table = tables.setdefault(section, {})
        if isinstance(table, dict):  # anything else is an error below
            table[key] = _value(section, key, text, where)
    for section in tables:
        _check_section(section, where)
    made = {
        name: _section(kind, name, tables.get(name, {}), where)
        for name, kind in _SECTIONS.items()
        if name in tables or name != "subscriptions"
    }
    config = Config(**{"subscriptions": None, **made})
    _check_together(config, where)
    return config


def _check_together(config: Config, where: str) -> None:
    """What no section knows alone."""
    for name in ("subscriptions", "events", "matches"):
        section = getattr(config, name)
        if section is None or section.path or "path" in section.options:
            continue
        if section.format in (*FILE_FORMATS, "workload"):
            raise ArgumentError(
                f"{where}: {name}.path must be given, since its format is {section.format}"
            )
    if config.events.stream and not config.events.checkpoint:
        raise ArgumentError(f"{where}: a stream needs events.checkpoint")
    if config.events.stream and config.events.format == "workload":
        raise ArgumentError(f"{where}: a workload is no stream; write it to files and read those")
    if config.events.position and len(config.events.position) != 2:
        raise ArgumentError(f"{where}: events.position must be two names")
    if config.matches.mode and config.events.stream:
        raise ArgumentError(
            f"{where}: matches.mode is for tables; a stream appends each batch, or has a folder "
            "for it under matches.path, which it replaces when the batch is run again"
        )
    if config.matches.mode not in ("", *_MODES):
        raise ArgumentError(
            f"{where}: matches.mode must be {', '.join(_MODES)}, not {config.matches.mode!r}"
        )


def _check_section(name: str, where: str) -> None:
    if name not in _SECTIONS:
        raise ArgumentError(
            f"{where}: there is no section {name!r}; there are {', '.join(_SECTIONS)}"
        )


def _section(kind: type[Any], name: str, table: Any, where: str) -> Any:
    if not isinstance(table, dict):
        raise ArgumentError(f"{where}: {name} must be a section, not {table!r}")
    hints = get_type_hints(kind)
    for key, value in table.items():
        wanted = hints.get(key)
        if wanted is None:
            known = ", ".join(f.name for f in fields(kind))
            raise ArgumentError(f"{where}: {name} has no {key!r}; it has {known}")
        if not _fits(value, wanted):
            raise ArgumentError(f"{where}: {name}.{key} must be {_shown(wanted)}, not {value!r}")
    for key in _NEEDED.get(name, ()):
        if not table.get(key):
            raise ArgumentError(f"{where}: {name}.{key} must be given")
    texts = {
        key: _texts(value, f"{where}: {name}.{key}")
        for key, value in table.items()
        if isinstance(value, dict)
    }
    return kind(**{**table, **texts})


def _texts(options: dict[str, Any], where: str) -> dict[str, str]:
    """Options as Spark takes them: 1000 is "1000", true is "true"."""
    for name, value in options.items():
        if not isinstance(value, str | int | float):
            dots = "; a name with dots needs quotes" if isinstance(value, dict) else ""
            raise ArgumentError(
                f"{where}: {name} must be a text, a number, true or false, not {value!r}{dots}"
            )
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }


def _fits(value: Any, wanted: Any) -> bool:
    if wanted in (str, int, bool):
        return type(value) is wanted
    if isinstance(value, list):
        return wanted == list[str] and all(isinstance(each, str) for each in value)
    return isinstance(value, dict) and wanted == Mapping[str, str]


def _shown(wanted: Any) -> str:
    names = {str: "a text", int: "an integer", bool: "true or false", list[str]: "a list of texts"}
    return names.get(wanted, "a table of options")


def _value(section: str, key: str, text: str, where: str) -> Any:
    wanted = get_type_hints(_SECTIONS[section]).get(key)
    if wanted in (list[str], Mapping[str, str]) and text.startswith(("[", "{")):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise ArgumentError(f"{where}: {section}.{key}: {error}") from error
    if wanted is int and text.isdecimal():
        return int(text)
    if wanted is bool and text in ("true", "false"):
        return text == "true"
    if wanted == list[str]:
        return [part.strip() for part in text.split(",")]
    if wanted == Mapping[str, str]:
        pairs = (part.partition("=") for part in text.split(","))
        return {name.strip(): value.strip() for name, _, value in pairs}
    return text
