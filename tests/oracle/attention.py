"""Attention over one row in f64 (contract section 4), as plain as it can be said."""

import numpy as np


def attend(queries, keys, values, scale, sinks=None):
    """[H_q, d] queries over the row's [n, H_kv, d] keys and [n, H_kv, d_v] values.

    A sink is a logit per query head that has no value. Gives f64 output [H_q, d_v] and log-sum-exp [H_q]; an empty row
    gives zeros and -inf.
    """
    query_heads, kv_heads = queries.shape[0], keys.shape[1]
    if len(keys) == 0:
        return np.zeros((query_heads, values.shape[2])), np.full(query_heads, -np.inf)
    reader_of = np.arange(query_heads) // (query_heads // kv_heads)
    k = keys.astype(np.float64)[:, reader_of]
    v = values.astype(np.float64)[:, reader_of]
    logits = np.einsum("hd,nhd->hn", queries.astype(np.float64), k) * scale
    sink = np.full(query_heads, -np.inf) if sinks is None else sinks.astype(np.float64)
    top = np.maximum(logits.max(axis=1), sink)
    weights = np.exp(logits - top[:, None])
    total = weights.sum(axis=1) + np.exp(sink - top)
    return np.einsum("hn,nhd->hd", weights, v) / total[:, None], top + np.log(total)
