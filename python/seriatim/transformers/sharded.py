"""Sparse layers whose context lies spread over the ranks of a group.

Every rank runs the whole model on the same input. Of a sparse layer's keys, values and index keys each rank keeps its
own range of the tokens, in a ShardedCache in the place of the DynamicCache's tensors; a prompt is shared out evenly,
what follows goes to the last rank until the ranges are worth moving.
"""

from typing import Any

import torch
from transformers.cache_utils import DynamicIndexedLayer

from .._core import Geometry, ShardedCache
from ._backend import CALL_QUERIES, check_finite
from .cache_layer import SeriatimIndexedLayer
from .refusal import Unsupported

CAPACITY_TOKENS = 1 << 24  # of a rank; memory is taken as it is needed
REBALANCE_TOKENS = 256  # how often it is asked whether ranges should move


class ShardedIndexedLayer(SeriatimIndexedLayer):
    """A DynamicIndexedLayer that holds no tensors: tokens are in `store`, as far as they are this rank's."""

    def __init__(self, group=None, **kwargs):
        super().__init__(**kwargs)
        self.group = group
        self.store = None  # a ShardedCache of one layer
        self.users = []  # its sequences, one per row of the batch
        self._tokens = 0
        self._waiting_index = None  # of the call that is under way

    def __copy__(self):
        raise Unsupported("cache: a sharded one is not copied")

    __deepcopy__ = __reduce__ = lambda self, *_: self.__copy__()

    def get_seq_length(self, *args, **kwargs):
        return self._tokens

    def update_indexer(self, indexer_key_states):
        check_finite("index_keys", indexer_key_states)
        self._waiting_index = indexer_key_states

    def update(self, key_states, value_states, *args, **kwargs):
        check_finite("keys", key_states)
        check_finite("values", value_states)
        return key_states, value_states

    def take(self, keys, values, geometry, norm_weight, coordinates):
        """Appends the tokens of one call, all of them or none, on every rank."""
        index_keys: Any = self._waiting_index
        self._waiting_index = None
        batch_size, tokens = index_keys.shape[:2]
        if self.store is None:
            self.store = ShardedCache(self.group, Geometry(**geometry), layers=[norm_weight],
                                      capacity_tokens=CAPACITY_TOKENS)
            self.users = [self.store.add(0, self.store.even_cuts(tokens)) for _ in range(batch_size)]
        with self.store.begin() as step:
            for row, user in enumerate(self.users):
                step.append(user, 0, keys[row].transpose(0, 1), values[row].transpose(0, 1), index_keys[row],
                            coordinates=coordinates[:, row].T)
        before, self._tokens = self._tokens, self._tokens + tokens
        if before and self._tokens // REBALANCE_TOKENS != before // REBALANCE_TOKENS:
            for user in self.users:
                user.rebalance()

    def reset(self):
        self.__dict__.update(type(self)(self.group).__dict__)

    def crop(self, tokens_to_remove):
        if tokens_to_remove > 0:
            raise ValueError("crop: a negative number says how many tokens go")
        self._tokens = max(0, self._tokens + tokens_to_remove)
        for user in self.users:
            user.truncate(self._tokens)
        if self.indexer_position_ids is not None:
            self.indexer_position_ids = self.indexer_position_ids[..., : self._tokens]

    def _refuse(self, *_):
        raise Unsupported("cache: rows of a sharded one are neither reordered nor repeated nor selected")

    reorder_cache = batch_repeat_interleave = batch_select_indices = _refuse


def sharded_layer(cache, layer_idx, group):
    """The cache's layer, turned into ours when first seen; one for this call alone where there is no cache."""
    if cache is None:
        return ShardedIndexedLayer(group)
    layer = cache.layers[layer_idx]
    if not isinstance(layer, ShardedIndexedLayer):
        if type(layer) is not DynamicIndexedLayer or layer.get_seq_length() > 0:
            raise Unsupported(
                f"cache: layer {layer_idx} is a {type(layer).__name__} of {layer.get_seq_length()} tokens; a sharded "
                "model takes a new DynamicCache")
        positions = layer.indexer_position_ids
        layer = cache.layers[layer_idx] = ShardedIndexedLayer(group)
        layer.indexer_position_ids = positions
    return layer


def check_runs(runs, slots):
    if any(runs.first) or any(last != slots for last in runs.last):
        raise Unsupported("attention_mask: a sharded model takes batches without padding")


def attend(layer, native, queries, index_queries, keys, values, coordinates):
    """queries [B, S, heads, head_dim] and the newest tokens: [B, S, heads, value_dim], the same on every rank."""
    geometry, norm_weight = native
    layer.take(keys, values, geometry, norm_weight, coordinates)
    batch_size, count = queries.shape[:2]
    output = queries.new_empty(*queries.shape[:3], values.shape[-1])
    first = layer.get_seq_length() - count
    at_once = CALL_QUERIES if batch_size * count > CALL_QUERIES else count
    views = [user.layer() for user in layer.users]
    for begin in range(0, count, at_once):
        end = min(begin + at_once, count)
        positions = torch.arange(first + begin, first + end)
        groups = [range(batch_size)] if at_once == count else [[row] for row in range(batch_size)]
        for rows in groups:
            planned = layer.group.plan([(views[row], index_queries[row, begin:end], positions) for row in rows])
            out = layer.group.attend([(views[row], queries[row, begin:end], positions) for row in rows], planned)
            output[list(rows), begin:end] = out.view(len(rows), end - begin, *out.shape[1:])
    return output
