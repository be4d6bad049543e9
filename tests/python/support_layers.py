"""Small layers that every test can look at whole."""

import pathlib

import numpy as np

import seriatim

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

SMALL = dict(group_tokens=4, budget_tokens=16, query_heads=4, kv_heads=2, head_dim=8, index_heads=2, index_dim=8,
             index_rotary_dim=4)


class Tokens:
    """Random keys, values, index keys and queries of one layer."""

    def __init__(self, count, seed=0, kv_heads=2, head_dim=8, query_heads=4, index_heads=2, index_dim=8):
        rng = np.random.default_rng(seed)
        draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)
        self.keys, self.values = draw(count, kv_heads, head_dim), draw(count, kv_heads, head_dim)
        self.index_keys, self.index_queries = draw(count, index_dim), draw(count, index_heads, index_dim)
        self.queries = draw(count, query_heads, head_dim)


def filled(geometry, tokens, anchor=0, kind=np.asarray, engine=None):
    """A cache of one sequence that holds the tokens."""
    cache = seriatim.Cache(geometry, capacity_tokens=4096, engine=engine)
    user = cache.add(anchor)
    with cache.begin() as step:
        step.append(user, 0, kind(tokens.keys), kind(tokens.values), kind(tokens.index_keys))
    return cache, user
