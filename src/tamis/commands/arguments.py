"""Values of options that several commands have."""

from __future__ import annotations

import argparse


def names_pair(text: str) -> tuple[str, str]:
    """Two names of attributes with a comma between."""
    x, _, y = (word.strip() for word in text.partition(","))
    if not x or not y or "," in y:
        raise argparse.ArgumentTypeError(
            f"must be two names with a comma between, like lon,lat, not {text!r}"
        )
    return x, y


def count(text: str) -> int:
    """An integer from 1 on."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer from 1 on, not {text!r}")
    return int(text)
