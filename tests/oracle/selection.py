"""Which tokens a query attends to, from its group scores (contract section 2)."""

import numpy as np


def row_width(visible, group_tokens, budget_tokens):
    """How many tokens a row holds, by the closed form; `select_row` reaches the same number by counting."""
    if visible <= budget_tokens + group_tokens - 1:
        return visible
    return budget_tokens + visible % group_tokens


def best_groups(scores, limit):
    """Positions of the `limit` best groups, best first; NaN never wins."""
    # -(-0.0) and -(+0.0) compare equal, so the stable sort leaves them, and every other tie, to position.
    ranking = np.argsort(-scores, kind="stable")
    ranking = ranking[~np.isnan(scores[ranking])]
    return ranking[:limit]


def select_row(scores, visible, group_tokens, budget_tokens, anchor=0):
    """The row's logical token positions, ascending: chosen groups, then the tail. Only closed groups are looked at."""
    closed = visible // group_tokens
    chosen = np.sort(best_groups(scores[:closed], budget_tokens // group_tokens))
    tokens = (chosen[:, None] * group_tokens + np.arange(group_tokens)).ravel()
    tail = np.arange(closed * group_tokens, visible)
    return np.concatenate([tokens, tail]).astype(np.int64) + anchor


def cut_score(scores, visible, group_tokens, budget_tokens):
    """The lowest score that was chosen; -inf where every group that may win did."""
    closed = scores[: visible // group_tokens]
    limit = budget_tokens // group_tokens
    ranking = best_groups(closed, len(closed))
    if len(ranking) <= limit:
        return np.float32(-np.inf)
    return closed[ranking[limit - 1]]


def pad_row(row, group_tokens, budget_tokens):
    """The row as files store it: fixed width, -1 past its count."""
    stored = np.full(budget_tokens + group_tokens - 1, -1, np.int32)
    stored[: len(row)] = row
    return stored
