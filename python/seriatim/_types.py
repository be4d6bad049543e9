"""What arrays look like to a type checker, and the rows that selection gives."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar


class Array(Protocol):
    """A NumPy array, a torch CPU tensor, or anything else that speaks DLPack."""

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


ArrayT = TypeVar("ArrayT", bound=Any)
Integers: TypeAlias = int | Sequence[int] | Array
Path: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Floats: TypeAlias = Sequence[float] | Array


class Rows(NamedTuple, Generic[ArrayT]):
    """Rows of Q queries: a pair that unpacks.

    ``positions`` [Q, capacity] int32 ascend; past each of ``counts`` [Q] int32 they are -1.

    >>> positions, counts = seriatim.select(np.zeros((2, 3), np.float32), group_tokens=2, budget_tokens=4)
    >>> positions.tolist(), counts.tolist()
    ([[0, 1, 2, 3, -1], [0, 1, 2, 3, -1]], [4, 4])
    """

    positions: ArrayT
    counts: ArrayT
