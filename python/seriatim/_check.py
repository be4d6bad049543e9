"""Rows of any engine, judged promise by promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import _core
from ._types import Array, Integers, Rows

_SHOWN = 8


@dataclass(frozen=True)
class Finding:
    """One breach: the first entry of a row at fault, and its evidence. -1 and None where there is no such thing."""

    row: int
    promise: str
    entry: int
    entries: int
    token: int
    group: int
    other: int
    score: float | None
    other_score: float | None
    margin: float | None
    what: str


@dataclass(frozen=True)
class Report:
    """What :func:`check` found.

    ``judged`` and ``faults`` count rows by promise; a promise that no row could be judged by has 0 in ``judged``.
    ``findings`` are in the order of rows, the first ones of each promise; all are counted.
    """

    rows: int
    faulty_rows: int
    near_rows: int
    largest_near: float
    judged: dict[str, int]
    faults: dict[str, int]
    findings: tuple[Finding, ...]

    @property
    def conforms(self) -> bool:
        return self.faulty_rows == 0

    def __bool__(self) -> bool:
        return self.conforms

    def __str__(self) -> str:
        if self.conforms:
            near = f", {self.near_rows} of them near" if self.near_rows else ""
            return f"conforms: {self.rows} rows{near}"
        lines = [f"does not conform: {self.faulty_rows} of {self.rows} rows are at fault"]
        lines += [f"  {name}: {count} of {self.judged[name]} rows" for name, count in self.faults.items() if count]
        lines += [f"row {finding.row}: {finding.promise}: {finding.what}" for finding in self.findings[:_SHOWN]]
        if len(self.findings) > _SHOWN:
            lines.append(f"... and {len(self.findings) - _SHOWN} findings more")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<seriatim check: {self}>"

    def to_dataframe(self) -> Any:
        """The findings as a pandas DataFrame, a line each. Needs pandas."""
        import pandas

        return pandas.DataFrame([vars(finding) for finding in self.findings],
                                columns=list(Finding.__dataclass_fields__))


def check(
    rows: Array | Rows[Any],
    *,
    visible: Integers,
    scores: Array | None = None,
    group_tokens: int = 4,
    budget_tokens: int = 2048,
    anchor: int = 0,
    unit: str = "token",
    rule: str = "canonical",
    margin: float = 0.0,
    findings: int = 100,
) -> Report:
    """Judges the rows that any engine selected; ``docs/conformance.md`` says what each promise is.

    ``rows`` [Q, W] int32 or int64 holds token positions, or group numbers with ``unit="group"``; -1 is padding.
    ``visible`` [Q] counts the tokens each query sees. Without ``scores`` [Q, G] float32 membership, ties and repeats
    are not judged. ``rule`` relaxes the order alone: "canonical", "rank", "arrival" or "set". Groups within the
    relative ``margin`` of the cut are near, and no fault.

    >>> import numpy as np
    >>> rows = np.array([[0, 1, 2, 3, 8, 9]], np.int32)
    >>> scores = np.array([[3, 2, 1, 0, 1]], np.float32)
    >>> print(seriatim.check(rows, visible=[10], scores=scores, group_tokens=2, budget_tokens=6))
    does not conform: 1 of 1 rows are at fault
      tie: 1 of 1 rows
    row 0: tie: groups 2 and 4 both score 1; the later was chosen
    """
    if isinstance(rows, Rows):
        rows = rows.positions
    found = _core.check_rows(rows, visible, scores, group_tokens, budget_tokens, anchor, unit, rule, margin, findings)
    return Report(**{**found, "findings": tuple(Finding(**finding) for finding in found["findings"])})


def assert_conforms(rows: Array | Rows[Any], **arguments: Any) -> Report:
    """For tests: :func:`check`, and an AssertionError that says which rows break which promise, what each demands, and
    where to look first. Takes what check takes; gives its report."""
    __tracebackhide__ = True
    report = check(rows, **arguments)
    if not report.conforms:
        broken = [name for name, count in report.faults.items() if count]
        demands = "\n".join(f"{name}: {_core.explain(name)}" for name in broken)
        raise AssertionError(f"{report}\n\nWhat is demanded:\n{demands}")
    return report
