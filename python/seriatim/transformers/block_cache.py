"""The layer of a DynamicCache that an enabled minimax_m3_vl turns its own sparse layer into."""

import torch
from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import MiniMaxM3VLSparseCacheLayer

from ._backend import check_finite
from .cache_layer import GrowingLayer


class BlockLayer(GrowingLayer, MiniMaxM3VLSparseCacheLayer):
    """One whose finished index keys [B, 1, T, index_dim] grow in place, and lie packed for scoring beside."""

    INDEX_AXIS = 2
    # Caches are made with the model's own class, which this one does not replace.
    _layer_type = None  # type: ignore[assignment]

    def _indexed(self):
        return self.idx_keys

    def _raw(self):
        return None if self.idx_keys is None else self.idx_keys[:, 0]

    def update_index(self, idx_k):
        check_finite("index_keys", idx_k)
        ours = self._pooled_from is self.idx_keys
        if torch.is_grad_enabled() and idx_k.requires_grad:
            return super().update_index(idx_k)
        self.idx_keys = self._growing_index.append(self.idx_keys, idx_k)
        if ours:
            self._pooled_from = self.idx_keys
        return self.idx_keys
