"""The errors of the library, one class per code."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """What kind of failure it was; the same numbers and names as in C and C++."""

    InvalidArgument = 1
    NotANumber = 2
    NotFinite = 3
    Overflow = 4
    NotContiguous = 5
    NotChronological = 6
    Capacity = 7
    OutOfMemory = 8
    Corrupt = 9
    Unsupported = 10
    Io = 11
    NotFound = 12
    PeerLost = 14


class Error(Exception):
    """Base of every error that the library reports. On any of them outputs and caches are exactly as they were.

    ``code`` says what kind it is, ``argument`` which argument is at fault ("" where none is), ``row`` and ``index``
    where in it, ``ask`` which of the asks of one call (-1 where there is no such coordinate).

    >>> import numpy as np
    >>> try:
    ...     seriatim.select(np.array([[1.0, 2.0], [3.0, np.nan]], np.float32))
    ... except seriatim.Error as error:
    ...     print(error.code.name, error.argument, error.row, error.index)
    NotANumber scores 1 1
    """

    code: Code = Code.InvalidArgument
    argument: str = ""
    row: int = -1
    index: int = -1
    ask: int = -1

    def __str__(self) -> str:  # KeyError would show its argument's repr
        return str(self.args[0]) if self.args else ""


class InvalidArgument(Error, ValueError):
    """A shape, stride, dtype, count or option that does not fit."""

    code = Code.InvalidArgument


class NotANumber(Error, ValueError):
    """A NaN score."""

    code = Code.NotANumber


class NotFinite(Error, ValueError):
    """A non-finite key, value, query or index key."""

    code = Code.NotFinite


class Overflow(Error, OverflowError):
    """Finite input whose score or logit passed f32, or whose output its dtype; or a size past 64 bits."""

    code = Code.Overflow


class NotContiguous(Error, ValueError):
    """A position that is not the successor of the frontier."""

    code = Code.NotContiguous


class NotChronological(Error, ValueError):
    """A row that is not ascending, or not of the canonical shape."""

    code = Code.NotChronological


class Capacity(Error, RuntimeError):
    """More tokens than the cache or workspace was made for."""

    code = Code.Capacity


class OutOfMemory(Error, MemoryError):
    """The system refused memory."""

    code = Code.OutOfMemory


class Corrupt(Error, ValueError):
    """A file that is truncated, damaged or contradicts itself."""

    code = Code.Corrupt


class Unsupported(Error, NotImplementedError):
    """A version, dtype or feature that this build does not know."""

    code = Code.Unsupported


class Io(Error, OSError):
    """The system refused to read or write a file."""

    code = Code.Io


class NotFound(Error, KeyError):
    """A name, or a sequence, that is not there."""

    code = Code.NotFound


class PeerLost(Error, ConnectionError):
    """Another process of a group ended, or did not answer in time."""

    code = Code.PeerLost


_BY_CODE: dict[int, type[Error]] = {kind.code: kind for kind in Error.__subclasses__()}


def make(code: int, message: str, argument: str, row: int, index: int, ask: int = -1) -> Error:
    """The exception for a failure that the extension module reports."""
    error = _BY_CODE[code](message)
    error.argument = argument
    error.row = row
    error.index = index
    error.ask = ask
    return error
