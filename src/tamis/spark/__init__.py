"""Matching as a join on Spark: an index of subscriptions, and events as tables and streams.

from tamis import spark as ts
spark = ts.session()
ref = ts.build_index(subscriptions, "/data/alerts")
matches = events.transform(ts.match(ref, id="event_id"))
"""

from __future__ import annotations

from tamis.spark._needed import MissingSparkError
from tamis.spark.building import build_index
from tamis.spark.index import IndexRef
from tamis.spark.matching import match
from tamis.spark.retention import Vacuum, vacuum
from tamis.spark.runtime import session
from tamis.spark.sql import register
from tamis.spark.streaming import to_files, write_matches
from tamis.spark.updating import update_index

__all__ = [
    "IndexRef",
    "MissingSparkError",
    "Vacuum",
    "build_index",
    "match",
    "register",
    "session",
    "to_files",
    "update_index",
    "vacuum",
    "write_matches",
]
