"""Part 2 of the contract: forced groups, candidates, unit maxima, entries, gated pooling, rows over two stores."""

import numpy as np

from rounding import ROUND_TO, dot32

ONE = np.float32(1)


def group_count(units, group_units, tail):
    """G of so many units: with tail `group` the newest, partial one counts."""
    return -(-units // group_units) if tail == "group" else units // group_units


def unit_max(scores, group_units):
    """[N] scores of the visible units to the maxima of their groups, the newest, partial one too (section 10)."""
    groups = [scores[i : i + group_units] for i in range(0, len(scores), group_units)]
    return np.array([np.nan if np.isnan(g).any() else g.max() for g in groups], np.float32)


def forced_groups(groups, first=0, newest=0, named=()):
    """F, ascending (section 11, rule 3)."""
    return sorted(set(range(min(first, groups))) | set(range(max(groups - newest, 0), groups)) | set(named))


def select_set(scores, keep, forced=(), outside=False, candidates=None):
    """Section 11: the forced groups and the best of the other candidates, ascending. Scores of forced groups, and of
    groups that are no candidates, are never looked at."""
    if not outside and len(forced) > keep:
        raise ValueError(f"{len(forced)} groups forced inside a budget of {keep}")
    others = [g for g in (range(len(scores)) if candidates is None else candidates) if g not in set(forced)]
    best = sorted(others, key=lambda g: (-scores[g], g))[: keep if outside else keep - len(forced)]
    return sorted(set(forced) | set(best))


def groups_of_coarse(coarse, coarse_units, group_units, groups):
    """The groups inside an ascending list of coarse groups, cut at G (section 12)."""
    each = coarse_units // group_units
    return [g for c in coarse for g in range(c * each, min((c + 1) * each, groups))]


def expand(chosen, group_units, units):
    """Chosen groups to those of their units that the query sees."""
    return [u for g in chosen for u in range(g * group_units, min((g + 1) * group_units, units))]


def closed_entries(tokens, stride, close=None):
    """E(n) of section 14."""
    close = close or stride
    return 0 if tokens < close else (tokens - close) // stride + 1


def softmax_slots(logits):
    """[slots, d] to weights: exp within 2 ulp, the denominator a chain in slot order."""
    top = logits.max(axis=0)
    weights = np.exp((logits - top).astype(np.float64)).astype(np.float32)
    total = np.zeros_like(top)
    for slot in weights:
        total = total + slot
    return weights / total


def gated_entry(values, logits, storage):
    """[slots, d] values and f32 logits to one entry before norm and rotation (section 14, rule 4)."""
    rounded = ROUND_TO[storage]
    total = np.zeros(values.shape[1], np.float32)
    for slot in rounded(values * rounded(softmax_slots(logits))):
        total = total + slot
    return rounded(total)


def rotate_trailing(x, position, inv_freq, storage):
    """The trailing dims in pairs (2i, 2i + 1), f32 inside, one rounding at the end."""
    rounded = ROUND_TO[storage]
    angle = (np.float32(position) * inv_freq).astype(np.longdouble)
    cos, sin = rounded(np.cos(angle).astype(np.float32)), rounded(np.sin(angle).astype(np.float32))
    turned, start = x.copy(), len(x) - 2 * len(inv_freq)
    first, second = x[start::2], x[start + 1 :: 2]
    turned[start::2] = rounded(first * cos - second * sin)
    turned[start + 1 :: 2] = rounded(second * cos + first * sin)
    return turned


def finished_entries(values, gates, bias, weight, eps, inv_freq, stride, overlap, storage):
    """Raw projections [T, d] (or [T, 2d] with overlap: first half of the window before, last half of the own one) to
    finished entries [E, d]."""
    rounded = ROUND_TO[storage]
    dim = values.shape[1] // 2 if overlap else values.shape[1]
    entries = []
    for w in range(closed_entries(len(values), stride)):
        own = slice(w * stride, (w + 1) * stride)
        x = values[own, -dim:]
        z = gates[own, -dim:] + bias[:, -dim:]
        if overlap and w > 0:
            before = slice((w - 1) * stride, w * stride)
            x = np.concatenate([values[before, :dim], x])
            z = np.concatenate([gates[before, :dim] + bias[:, :dim], z])
        pooled = gated_entry(x, z.astype(np.float32), storage)
        inverse = ONE / np.sqrt(dot32(pooled, pooled) / np.float32(dim) + np.float32(eps))
        entries.append(rotate_trailing(rounded(weight * (pooled * inverse)), w * stride, inv_freq, storage))
    return np.array(entries, np.float32).reshape(-1, dim)


def two_store_row(scores, tokens, stride, keep, window):
    """One query of an entry layer: the entries, then the tokens of the window (section 15). Without scores: all."""
    entries = closed_entries(tokens, stride)
    chosen = list(range(entries)) if scores is None else select_set(scores[:entries], keep)
    return chosen, list(range(max(tokens - window, 0), tokens))
