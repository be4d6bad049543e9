"""Index keys and queries to group scores, with every rounding of contract section 3."""

import numpy as np

from rounding import ROUND_TO, dot32, fma32

ONE = np.float32(1)


def inverse_frequencies(theta, rotary_dim):
    """theta to inv_freq in two roundings: the power, then its reciprocal."""
    exponents = np.arange(0, rotary_dim, 2, dtype=np.longdouble) / rotary_dim
    powers = (np.longdouble(theta) ** exponents).astype(np.float32)
    return ONE / powers


def pool(raw_keys, group_tokens, storage):
    """[T, d] raw keys to [G, d] means of the complete groups, summed in token order."""
    closed = len(raw_keys) // group_tokens
    groups = raw_keys[: closed * group_tokens].reshape(closed, group_tokens, -1)
    total = groups[:, 0]
    for token in range(1, group_tokens):
        total = total + groups[:, token]
    return ROUND_TO[storage](total / np.float32(group_tokens))


def rms_norm(x, weight, eps, storage):
    """x over its root mean square, times 1 + weight."""
    mean_square = dot32(x, x) / np.float32(x.shape[-1])
    inverse = ONE / np.sqrt(mean_square + np.float32(eps))
    return ROUND_TO[storage]((x * inverse[..., None]) * (ONE + weight))


def rotate(x, positions, inv_freq, storage):
    """Rotates the leading dims, halves layout; the dims past 2 * len(inv_freq) pass through."""
    rounded = ROUND_TO[storage]
    angle = positions.astype(np.float32)[:, None] * inv_freq
    # The angle is an f32 value; 64 mantissa bits leave double rounding of its cosine no practical chance.
    cos = rounded(np.cos(angle.astype(np.longdouble)).astype(np.float32))
    sin = rounded(np.sin(angle.astype(np.longdouble)).astype(np.float32))
    half = len(inv_freq)
    first, second, rest = x[:, :half], x[:, half : 2 * half], x[:, 2 * half :]
    turned_first = rounded(rounded(first * cos) - rounded(second * sin))
    turned_second = rounded(rounded(second * cos) + rounded(first * sin))
    return np.concatenate([turned_first, turned_second, rest], axis=1)


def pooled_keys(raw_keys, weight, eps, inv_freq, anchor, group_tokens, storage):
    """[T, d] raw keys to the [G, d] keys that queries are scored against."""
    means = pool(raw_keys, group_tokens, storage)
    starts = anchor + group_tokens * np.arange(len(means), dtype=np.int64)
    return rotate(rms_norm(means, weight, eps, storage), starts, inv_freq, storage)


def group_scores(queries, keys, head_weights=None, relu=True, scale_at="after_sum"):
    """[Q, H, d] queries against [G, d] keys: [Q, G] scores. head_weights is [Q, H]; `scale_at` says where 1 / sqrt(d)
    stands."""
    dots = dot32(queries[:, :, None, :], keys[None, None, :, :])
    inverse = np.float32(1 / np.sqrt(np.float64(queries.shape[-1])))
    if scale_at == "before_relu":
        dots = dots * inverse
    if relu:
        dots = np.maximum(dots, np.float32(0))
    if scale_at == "after_relu":
        dots = dots * inverse
    total = np.zeros((dots.shape[0], dots.shape[2]), np.float32)
    for head in range(dots.shape[1]):
        if head_weights is None:
            total = total + dots[:, head]
        else:
            total = fma32(head_weights[:, head, None], dots[:, head], total)
    return total / np.sqrt(np.float32(queries.shape[-1])) if scale_at == "after_sum" else total
