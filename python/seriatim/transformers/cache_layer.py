"""The layer of a DynamicCache that an enabled model turns a layer with index keys into.

Transformers' cache stays the owner of keys, values and raw index keys, with the attributes and the meaning it gives
them, so that everything that knows a DynamicIndexedLayer (generate, crop, beams, an eager model afterwards) finds one.
Two things
differ: they grow in place instead of being copied for each token, and the pooled keys of closed groups are kept beside
them. Pooled keys depend on nothing but their own tokens, so they are always either kept or made again, with the same
bits.

A tensor that was handed out never changes: what grows in place is written behind all that anybody was given. After a
crop that place is taken again, and then only if nobody holds a tensor that reaches there; else what is kept is copied
first, once.
"""

import sys
from typing import TYPE_CHECKING

import torch
from transformers.cache_utils import DynamicIndexedLayer

from ._backend import check_finite

if TYPE_CHECKING:  # what stands behind GrowingLayer in every class that has it
    from transformers.cache_utils import DynamicLayer as Behind
else:
    Behind = object

PANEL_GROUPS = 16  # how the library stores pooled keys: [panels][index_dim][16]


def _holders(tensor):
    """How many tensors see the memory of `tensor`, itself included, NumPy arrays and DLPack capsules of one counted as
    it."""
    storage = tensor.untyped_storage()
    others = 2**31 if storage.is_shared() else 0  # other processes
    return torch._C._storage_Use_Count(storage._cdata) - 1 + others  # the storage that asks is one


class GrowingTensor:
    """Tensors that grow along one axis: `append` gives a view of a store that has room for more."""

    def __init__(self, axis):
        self.axis = axis
        self.store = None
        self.written = 0  # of the store, by whoever appended last

    def __reduce__(self):
        return type(self), (self.axis,)  # a copy makes a store of its own when it first grows

    def append(self, held, new, views=1):
        """`views`: how many tensors show what is held, `held` among them, that are the caller's and given up
        afterwards."""
        axis, added = self.axis, new.shape[self.axis]
        length = 0 if held is None or held.numel() == 0 else held.shape[axis]
        if not self._has_room(held, length, new, views):
            shape = list(new.shape)
            shape[axis] = length + added + (length + added) // 4 + 64
            store = new.new_empty(shape)
            if length:
                store.narrow(axis, 0, length).copy_(held)
            self.store = store
        self.store.narrow(axis, length, added).copy_(new)
        self.written = length + added
        return self.store.narrow(axis, 0, self.written)

    def _has_room(self, held, length, new, views):
        """Whether `held` begins the store, `new` fits behind it, and nobody was given what stands there."""
        store = self.store
        if store is None or length == 0 or length + new.shape[self.axis] > store.shape[self.axis]:
            return False
        if store.is_inference() and not torch.is_inference_mode_enabled():
            return False
        if held.data_ptr() != store.data_ptr() or held.stride() != store.stride() or held.shape[0] != store.shape[0]:
            return False
        return length == self.written or _holders(store) == 1 + views


class PooledStore:
    """Pooled keys in the order that scoring reads, which copies of a layer share until one of them writes otherwise."""

    def __init__(self, panels, max_abs, written):
        self.panels = panels  # [B, panels, index_dim, 16]
        self.max_abs = max_abs  # no element is larger in magnitude
        self.written = written  # groups, per sequence

    def __reduce__(self):  # a process that it is sent to writes too, and torch sends memory, not its copy
        return type(self), (self.panels.clone(), self.max_abs, list(self.written))


class PooledBeside:
    """What a cache layer keeps beside its index keys: the pooled keys of closed groups, in the order of scoring."""

    _store: PooledStore | None

    def _indexed(self):
        """The tensor that holds the index keys: another one there makes pooled keys stale."""
        raise NotImplementedError

    def _raw(self):
        """The index keys [B, T, index_dim], or None."""
        return self._indexed()

    @property
    def panels(self):
        return None if self._store is None else self._store.panels

    @property
    def panels_max_abs(self):
        return 0.0 if self._store is None else self._store.max_abs

    def padding(self):
        """(first, last) of every sequence: slots before and after held no tokens when the model last ran. [] if not
        known."""
        raw = self._raw()
        held = 0 if raw is None or raw.numel() == 0 else raw.shape[1]
        if held == 0:
            return []
        return [(first, last if last < min(held, self._slots) else held) for first,
                last in zip(self._pooled_first, self._last)]

    def _crop_pooled(self, operation, tokens_to_remove):
        ours = self._pooled_from is self._indexed()
        operation(tokens_to_remove)
        if ours and self._indexed() is not None and self.panels is not None:
            tokens = self._raw().shape[1]
            self._pooled_groups = [
                max(0, min(groups, (tokens - first) // self._group_tokens)) for groups,
                first in zip(self._pooled_groups, self._pooled_first)
            ]
            self._pooled_from = self._indexed()
        else:
            self._pooled_from = None

    def _with_pooled(self, operation, argument, on_rows):
        """An operation on the rows of the batch, and the same on the rows of the pooled keys."""
        ours = self._pooled_from is self._indexed() and self._store is not None
        operation(argument)
        if not ours:
            return self._forget_pooled()
        groups, first, last, written = on_rows(
            torch.tensor([self._pooled_groups, self._pooled_first, self._last, self._store.written], dtype=torch.int64,
                         device="cpu").T
        ).T.tolist()
        self._store = PooledStore(on_rows(self.panels), self.panels_max_abs, written)
        self._pooled_groups, self._pooled_first, self._last = groups, first, last
        self._pooled_from = self._indexed()

    def _forget_pooled(self):
        self._store = None
        self._pooled_groups = []  # per sequence
        self._pooled_first = []  # the slot that its groups count from
        self._last, self._slots = [], 0  # the slot after its last token, of so many
        self._pooled_from = None  # the index keys that they were made of; another tensor there makes them stale
        self._group_tokens = 0

    def pool(self, native, group_tokens, runs, positions):
        """Pools the groups that are complete and not pooled yet. Afterwards `panels` holds every complete group."""
        raw = self._raw()
        batch_size = raw.shape[0]
        stale = self._pooled_from is not self._indexed() or len(self._pooled_groups) != batch_size
        if stale or self._group_tokens != group_tokens:
            self._forget_pooled()
            self._pooled_groups, self._pooled_first = [0] * batch_size, list(runs.first)
            self._group_tokens = group_tokens
        groups = [(last - first) // group_tokens for first, last in zip(*runs)]
        kept = [
            min(pooled, wanted) if was == first else 0
            for pooled, wanted, was, first in zip(self._pooled_groups, groups, self._pooled_first, runs.first)
        ]
        if kept != groups or self._store is None:
            self._make_room(kept, groups, raw)
            dense = raw if raw.stride(1) == raw.shape[2] and raw.stride(2) == 1 else raw.contiguous()
            largest = native.pool(runs.first, runs.last, kept, dense, positions, self.panels)
            self._store.max_abs = max(self._store.max_abs, largest)
            self._store.written = [new if new > old else was for was, old,
                                   new in zip(self._store.written, kept, groups)]
        self._pooled_groups, self._pooled_first, self._pooled_from = groups, list(runs.first), self._indexed()
        self._last, self._slots = list(runs.last), raw.shape[1]

    def _make_room(self, kept, groups, raw):
        """A store that has room for `groups`, of which `kept` stay, and where nobody else reads what is written."""
        needed = max(1, -(-max(groups, default=0) // PANEL_GROUPS))
        have = 0 if self.panels is None else self.panels.shape[1]
        writable = self._store is not None and (torch.is_inference_mode_enabled() or not self.panels.is_inference())
        rewrites = self._store is not None and any(old < min(new, was) for old, new,
                                                   was in zip(kept, groups, self._store.written))
        # ours, and the question's
        if have >= needed and writable and not (rewrites and sys.getrefcount(self._store) > 2):
            return
        panels = raw.new_empty(raw.shape[0], max(have, needed + needed // 4), self._index_dim(raw), PANEL_GROUPS)
        if have:
            panels[:, :have] = self.panels
        self._store = PooledStore(panels, self.panels_max_abs, list(kept))

    def _index_dim(self, raw):
        return raw.shape[2]


class GrowingLayer(PooledBeside, Behind):
    """Before a DynamicLayer with index keys: it grows in place and keeps pooled keys."""

    INDEX_AXIS = 1  # of the index keys' tensor, along which tokens follow each other

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._growing_keys, self._growing_values = GrowingTensor(2), GrowingTensor(2)
        self._growing_index = GrowingTensor(self.INDEX_AXIS)
        self._forget_pooled()

    @classmethod
    def adopt(cls, layer):
        """What `layer` holds, without a copy."""
        adopted = cls()
        adopted.__dict__.update(layer.__dict__)
        return adopted

    def __copy__(self):
        # Two layers must not write behind the same tokens: the copy makes a store of its own.
        copied = type(self).adopt(self)
        copied._growing_keys, copied._growing_values = GrowingTensor(2), GrowingTensor(2)
        copied._growing_index = GrowingTensor(self.INDEX_AXIS)
        return copied

    def update(self, key_states, value_states, *args, **kwargs):
        check_finite("keys", key_states)
        check_finite("values", value_states)
        if torch.is_grad_enabled() and (key_states.requires_grad or value_states.requires_grad):
            return super().update(key_states, value_states, *args, **kwargs)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = self._growing_keys.append(self.keys, key_states)
        self.values = self._growing_values.append(self.values, value_states)
        return self.keys, self.values

    def reset(self):
        super().reset()
        self.__dict__.update(type(self)().__dict__)

    def crop(self, tokens_to_remove):
        self._crop_pooled(super().crop, tokens_to_remove)

    def reorder_cache(self, beam_idx):
        self._with_pooled(super().reorder_cache, beam_idx, lambda rows: rows.index_select(0, beam_idx.to(rows.device)))

    def batch_repeat_interleave(self, repeats):
        self._with_pooled(super().batch_repeat_interleave, repeats, lambda rows: rows.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices):
        self._with_pooled(super().batch_select_indices, indices, lambda rows: rows[indices, ...])


class SeriatimIndexedLayer(GrowingLayer, DynamicIndexedLayer):
    """A DynamicIndexedLayer that grows in place and keeps pooled keys."""

    def _indexed(self):
        return self.indexer_keys

    def update_indexer(self, indexer_key_states):
        check_finite("index_keys", indexer_key_states)
        ours = self._pooled_from is self.indexer_keys
        if torch.is_grad_enabled() and indexer_key_states.requires_grad:
            return super().update_indexer(indexer_key_states)
        if not self.is_indexer_initialized:
            self.lazy_initialization_indexer(indexer_key_states)
        self.indexer_keys = self._growing_index.append(self.indexer_keys, indexer_key_states)
        if ours:
            self._pooled_from = self.indexer_keys
        return self.indexer_keys
