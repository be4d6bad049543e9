"""How a captured row compares with the canonical one: exact, tie, near or wrong."""

from typing import NamedTuple

import numpy as np

# Relative to the larger of the two scores compared. Index dtypes of 8 or 11 bits round pooled keys after every step.
NEAR_MARGIN = {"F32": 1e-5, "F16": 1e-2, "BF16": 1e-2}


class Verdict(NamedTuple):
    kind: str
    margin: float  # the largest relative distance from the cut among the groups that differ
    detail: str  # for "wrong": what is wrong first


def judge(captured, canonical, scores, cut, anchor, group_tokens, near_margin):
    """`captured` and `canonical` are rows without padding; `scores` are this query's."""
    if len(captured) != len(canonical):
        return Verdict("wrong", np.inf, f"{len(captured)} tokens, expected {len(canonical)}")
    if np.array_equal(captured, canonical):
        return Verdict("exact", 0.0, "")
    if (np.diff(captured) <= 0).any():
        return Verdict("wrong", np.inf, "not ascending")
    odd_tokens = np.setxor1d(captured, canonical)
    groups, sizes = np.unique((odd_tokens - anchor) // group_tokens, return_counts=True)
    if groups[0] < 0 or groups[-1] >= len(scores):
        return Verdict("wrong", np.inf, f"token {odd_tokens[0]} or {odd_tokens[-1]} belongs to no closed group")
    if (sizes != group_tokens).any():
        return Verdict("wrong", np.inf, f"group {groups[sizes != group_tokens][0]} is split")
    distance = np.abs(scores[groups].astype(np.float64) - cut)
    larger = np.maximum(np.abs(scores[groups]), np.abs(cut)).astype(np.float64)
    margins = np.where(distance == 0, 0.0, distance / np.where(larger == 0, 1.0, larger))
    if (margins == 0).all():
        return Verdict("tie", 0.0, "")
    worst = float(margins.max())
    if worst <= near_margin:
        return Verdict("near", worst, "")
    return Verdict("wrong", worst, f"group {groups[margins > near_margin][0]} is {worst:.3g} from the cut")
