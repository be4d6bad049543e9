"""The layer of a DynamicCache that an enabled model over latents turns a DynamicIndexedLayer into.

Transformers keeps a token's latent (as its `keys`) and its rotated part (as its `values`) apart. Seriatim reads both as
one row, so they are kept in one store; `keys` and `values` are views of it, under the names and shapes that
Transformers gives them.
"""

import torch
from transformers.cache_utils import DummyLayer, DynamicIndexedLayer, DynamicSlidingWindowLayer

from ._backend import check_finite
from .cache_layer import GrowingTensor, SeriatimIndexedLayer
from .refusal import check_layers


class LatentIndexedLayer(SeriatimIndexedLayer):
    """A DynamicIndexedLayer whose latents grow in place, in one store. Index keys arrive finished; pooling packs
    them."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._growing_latents = GrowingTensor(2)

    def __copy__(self):
        copied = super().__copy__()
        copied._growing_latents = GrowingTensor(2)
        return copied

    def update(self, key_states, value_states, *args, **kwargs):
        new = torch.cat([key_states, value_states], dim=-1)
        check_finite("keys", new)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        latents = self._growing_latents.append(self._held_latents(), new, views=3)  # with `keys` and `values`
        self.keys, self.values = latents.split([key_states.shape[-1], value_states.shape[-1]], dim=-1)
        self.keys.seriatim_latents = latents
        return self.keys, self.values

    def _held_latents(self):
        keys, values, store = self.keys, self.values, self._growing_latents.store
        if keys.numel() == 0:
            return None
        if store is not None and self._begin(store, keys, values):
            return store.narrow(2, 0, keys.shape[2])
        return torch.cat([keys, values], dim=-1)

    @staticmethod
    def _begin(store, keys, values):
        """Whether both are still views of the store's first rows, after a crop too."""
        rank, rotary = keys.shape[-1], values.shape[-1]
        if store.shape[-1] != rank + rotary or keys.stride() != store.stride() or keys.data_ptr() != store.data_ptr():
            return False
        return rotary == 0 or (values.stride() == store.stride() and values.data_ptr() == store[..., rank:].data_ptr())


def latents_of(kv_latent, k_rotated):
    """One row per slot, latent and rotated part together: [B, 1, T, both]. From our store where there is one."""
    latents = getattr(kv_latent, "seriatim_latents", None)
    if latents is None:  # no cache, or a layer that is not ours: nobody has looked at them
        latents = torch.cat([kv_latent, k_rotated], dim=-1)
        check_finite("keys", latents)
    return latents


class PooledLatentLayer(LatentIndexedLayer):
    """One whose index keys are kept as the model packs them, [key, gate, validity], and pooled when a group closes."""

    def _index_dim(self, raw):
        return (raw.shape[2] - 1) // 2


def adopt_layer(cache, layer_idx, kind=LatentIndexedLayer):
    """Turns the cache's layer into ours when it is first seen. Layers of other kinds than indexed stay."""
    layer = cache.layers[layer_idx]
    if type(layer) is DynamicIndexedLayer:
        cache.layers[layer_idx] = kind.adopt(layer)


def index_layer(cache, layer_idx, kind=LatentIndexedLayer):
    """The cache's layer; one for this call alone where there is no cache."""
    return kind() if cache is None else cache.layers[layer_idx]


def check_cache(cache, attentions):
    """Admits a DynamicCache whose layers are of the kinds that the attentions need, and as long as one another."""
    by_layer = {attention.layer_idx: attention for attention in attentions}
    check_layers(cache, {at: _kind(attention) for at, attention in by_layer.items()}, lambda at,
                 layer: _lengths_of(by_layer[at], layer))


def _borrows(attention):
    return getattr(attention, "is_kv_shared_layer", False)


def _kind(attention):
    if getattr(attention, "sliding_window", None) is not None:
        return DynamicSlidingWindowLayer
    return DummyLayer if _borrows(attention) and attention.indexer is None else DynamicIndexedLayer


def _lengths_of(attention, layer):
    if not _borrows(attention):
        yield layer.get_seq_length()
    if attention.indexer is not None:
        keys = layer.indexer_keys
        yield 0 if keys is None or keys.numel() == 0 else keys.shape[1]
