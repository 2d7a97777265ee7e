"""The errors Tamis raises.

One tree under `TamisError`; each leaf also derives from the builtin that a
caller would catch anyway. Messages read "X must be A, not B" and say a way out.
"""

from __future__ import annotations


class TamisError(Exception):
    """The base of every error that Tamis raises on purpose."""


class LanguageError(TamisError, ValueError):
    """A predicate that cannot be read, with the place in its text.

    `str(error)` shows the text with a caret; `reason`, `text` and `offset`
    (counted in characters) are there for programs.
    """

    def __init__(self, reason: str, text: str = "", offset: int = 0) -> None:
        self.reason = reason
        self.text = text
        self.offset = offset
        super().__init__(reason, text, offset)

    def __str__(self) -> str:
        return f"{self.reason}\n{caret(self.text, self.offset)}" if self.text else self.reason


class EventError(TamisError, ValueError):
    """An event, or a table or file of events, that cannot be read."""


class ArgumentError(TamisError, ValueError):
    """An argument with a value that the call cannot take."""


class ArgumentTypeError(TamisError, TypeError):
    """An argument of a type that the call cannot take."""


class UnknownIdError(TamisError, KeyError):
    """An id that no subscription has."""

    def __str__(self) -> str:
        return str(self.args[0])


class BatchError(TamisError, ValueError):
    """Rows of a batch that cannot be taken; nothing of the batch was taken.

    `errors` holds (row, error) for the first bad rows.
    """

    def __init__(self, message: str, errors: list[tuple[int, Exception]]) -> None:
        super().__init__(message, errors)
        self.errors = errors

    def __str__(self) -> str:
        return str(self.args[0])


class StorageError(TamisError, OSError):
    """A matcher's files that cannot be read or written. Nothing is lost that was there before."""


class UnavailableError(TamisError, RuntimeError):
    """Something this installation or machine does not have, and how to get it."""


CARET_WIDTH = 72


def caret(text: str, offset: int) -> str:
    """The line of `text` around `offset`, cut to a screen's width, with a caret below it."""
    offset = max(0, min(offset, len(text)))
    begin = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    line = text[begin : end if end >= 0 else len(text)].replace("\t", " ")
    column = offset - begin
    shift = max(0, column - CARET_WIDTH * 2 // 3)
    head = "…" if shift else ""
    tail = "…" if len(line) - shift > CARET_WIDTH else ""
    shown = head + line[shift : shift + CARET_WIDTH] + tail
    return f"  {shown}\n  {' ' * (column - shift + len(head))}^"
