"""Measures matching on Spark: `python -m tamis.spark.measure --help`."""
