"""Attention for Transformers' models through Seriatim's cache, and the other readings of it that the contrasts need.

An object of these classes is an attention function as Transformers' AttentionInterface calls it, once per layer and
forward. It keeps all earlier tokens itself, so a forward brings the new tokens alone and no KV cache of the model's.
"""

import numpy as np
import torch

import seriatim
from index_keys import GROUP_TOKENS, HEAD_DIM, INDEX_DIM, KV_HEADS, QUERY_HEADS

CAPACITY_TOKENS = 16384
QUERIES_AT_ONCE = 512  # bounds the memory of rows

engine = None  # where plan and attend run; None: the default. Set by Laboratory.set_threads


class Selective:
    """The library's rule: Layer.plan makes the rows, Layer.attend reads them in time order."""

    def __init__(self, index_keys, budget_tokens, layers, sequences=1):
        self.index_keys = index_keys
        self.geometry = seriatim.Geometry(
            group_tokens=GROUP_TOKENS,
            budget_tokens=budget_tokens,
            query_heads=QUERY_HEADS,
            kv_heads=KV_HEADS,
            head_dim=HEAD_DIM,
            index_heads=QUERY_HEADS,
            index_dim=INDEX_DIM,
            index_rotary_dim=0,
        )
        self.layers = layers
        # A page is taken when it is needed, so room for more than any text here costs nothing.
        self.cache = seriatim.Cache(self.geometry, layers=layers, capacity_tokens=CAPACITY_TOKENS * sequences)
        self.sequences = [self.cache.add() for _ in range(sequences)]
        self.step = None

    def __call__(self, module, query, key, value, mask, **options):
        """[B, heads, T, 64] tensors to [B, T, 9, 64]; all layers of a forward are one transaction."""
        layer = module.layer_idx
        if layer == 0:
            self.step = self.cache.begin()
        outputs = [
            self.append_and_attend(sequence, layer, *(x[at].transpose(0, 1) for x in (query, key, value)))
            for at, sequence in enumerate(self.sequences)
        ]
        if layer == self.layers - 1:
            self.step.commit()
        return torch.stack(outputs), None

    def append_and_attend(self, sequence, layer, queries, keys, values):
        first = self.step.layer(sequence, layer).frontier
        index_keys = self.index_keys.keys(layer, keys, first)
        self.step.append(sequence, layer, keys, values, index_keys)
        held = self.step.layer(sequence, layer)
        index_queries = self.index_keys.queries(queries)
        output = queries.new_empty(queries.shape)
        for first_query in range(0, len(queries), QUERIES_AT_ONCE):
            block = torch.arange(first_query, min(first_query + QUERIES_AT_ONCE, len(queries)))
            output[block] = self.attend(held, queries[block], index_queries[block], first + block)
        return output

    def attend(self, held, queries, index_queries, positions):
        rows = held.plan(index_queries, positions, engine=engine)
        return held.attend(queries, positions, rows, engine=engine)


def scores_of(held, index_query, position):
    return held.score(index_query, position).numpy()


def expand(groups):
    return (np.asarray(groups)[:, None] * GROUP_TOKENS + np.arange(GROUP_TOKENS)).ravel()


def rows_from(held, groups_of_each, positions):
    """Rows of the given groups, in the given order, and the tail."""
    storage = np.full((len(positions), held.geometry.row_capacity), -1, np.int32)
    counts = np.zeros(len(positions), np.int32)
    for at, (groups, position) in enumerate(zip(groups_of_each, positions.tolist())):
        visible = position + 1
        tail = np.arange(visible - visible % GROUP_TOKENS, visible)
        row = np.concatenate([expand(groups), tail])
        storage[at, : len(row)] = row
        counts[at] = len(row)
    return torch.from_numpy(storage), torch.from_numpy(counts)


class Window(Selective):
    """No scores: the first group and the newest ones, as many as the budget holds."""

    def attend(self, held, queries, index_queries, positions):
        chosen = self.geometry.budget_groups
        groups = []
        for position in positions.tolist():
            closed = (position + 1) // GROUP_TOKENS
            groups.append(np.r_[0, closed - chosen + 1 : closed] if closed > chosen else np.arange(closed))
        return held.attend(queries, positions, rows_from(held, groups, positions), engine=engine)


class LaterOfEquals(Selective):
    """Ties broken the other way: of groups with equal scores the later ones win. `tied_rows` counts rows this
    changes."""

    tied_rows = 0

    def attend(self, held, queries, index_queries, positions):
        chosen = self.geometry.budget_groups
        groups = []
        for index_query, position in zip(index_queries, positions.tolist()):
            scores = scores_of(held, index_query, position)
            later = np.argsort(-scores[::-1], kind="stable")[:chosen]
            groups.append(np.sort(len(scores) - 1 - later))
        rows = rows_from(held, groups, positions)
        usual, _ = held.plan(index_queries, positions, engine=engine)
        self.tied_rows += int((rows[0] != usual).any(dim=1).sum())
        return held.attend(queries, positions, rows, engine=engine)


class RankOrder(Selective):
    """The same sets, groups read best first and the tail last.

    The library refuses such rows. So the keys and values of each row are copied, in the wanted order, into a cache of
    their own, whose positions follow that order: the same arithmetic, in another order and nothing else.
    """

    queries_at_once = 64

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        capacity = self.geometry.row_capacity
        plain = seriatim.Geometry(
            group_tokens=1, budget_tokens=capacity, query_heads=QUERY_HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM,
            index_heads=1, index_dim=1, index_rotary_dim=0, pooling="none",
        )  # fmt: skip
        self.reordered_cache = seriatim.Cache(plain, layers=[False],
                                              capacity_tokens=2 * self.queries_at_once * capacity)
        self.reordered = self.reordered_cache.add()

    def ranked(self, held, index_query, position):
        scores = scores_of(held, index_query, position)
        return np.argsort(-scores, kind="stable")[: self.geometry.budget_groups]

    def attend(self, held, queries, index_queries, positions):
        groups = [self.ranked(held, index_query, at) for index_query, at in zip(index_queries, positions.tolist())]
        rows, counts = rows_from(held, groups, positions)
        usual, usual_counts = held.plan(index_queries, positions, engine=engine)
        if not (torch.equal(rows.sort(dim=1).values, usual.sort(dim=1).values) and torch.equal(counts, usual_counts)):
            raise AssertionError("rank order changed a set")
        keys, values = held.read(0, int(positions.max()) + 1, like=queries)
        parts = torch.arange(len(queries)).split(self.queries_at_once)
        return torch.cat([self.attend_copied(keys, values, queries[part], rows[part], counts[part]) for part in parts])

    def attend_copied(self, keys, values, queries, rows, counts):
        order = torch.cat([row[:count] for row, count in zip(rows, counts)]).long()
        self.reordered.reset()
        with self.reordered_cache.begin() as step:
            step.append(self.reordered, 0, keys[order], values[order])
        ends = counts.cumsum(0)
        storage = torch.full(rows.shape, -1, dtype=torch.int32)
        for at, (end, count) in enumerate(zip(ends.tolist(), counts.tolist())):
            storage[at, :count] = torch.arange(end - count, end, dtype=torch.int32)
        return self.reordered.layer().attend(queries, ends - 1, (storage, counts), engine=engine)
