"""`tamis pipeline`: from sources to sinks, described in a file."""

from tamis.spark.pipeline.config import EXAMPLE, Config, read_config
from tamis.spark.pipeline.run import run_pipeline

__all__ = ["EXAMPLE", "Config", "read_config", "run_pipeline"]
