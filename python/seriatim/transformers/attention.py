"""The attention function: plans rows and attends over them, in place, in blocks of queries."""

from typing import NamedTuple

import torch
from transformers import AttentionInterface, AttentionMaskInterface

from ._backend import check_finite
from .refusal import Unsupported
from .runs import Runs, make_run_mask

ATTENTION_NAME = "seriatim"


class Seen(NamedTuple):
    """One call of one attention layer, for those who watch it. Tensors may be written again by the next call."""

    attention: torch.nn.Module
    runs: Runs
    index_queries: torch.Tensor  # [B, S, index_heads, index_dim]
    index_keys: torch.Tensor  # [B, T, index_dim], raw
    queries: torch.Tensor  # [B, S, heads, head_dim]
    keys: torch.Tensor  # [B, kv_heads, T, head_dim]
    values: torch.Tensor
    rows: torch.Tensor  # [B, S, row capacity] slots, -1 past each count
    counts: torch.Tensor  # [B, S]
    output: torch.Tensor  # [B, S, heads, value_dim]


# Arguments by which other models change what attention computes.
FOREIGN_ARGUMENTS = ("sliding_window", "softcap", "s_aux", "position_bias", "head_mask", "indices", "block_indices")


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
    """query [B, heads, S, head_dim], key and value [B, kv_heads, T, head_dim]: [B, S, heads, head_dim], and no weights."""
    hook = getattr(module, "seriatim_hook", None)
    work = hook.take() if hook is not None else None
    if work is None:
        raise Unsupported(f"{type(module).__name__} ran under the attention name {ATTENTION_NAME!r} without seriatim.transformers.enable(model)")
    if dropout:
        raise Unsupported(f"dropout of {dropout}: call model.eval()")
    for name in FOREIGN_ARGUMENTS:
        if kwargs.get(name) is not None:
            raise Unsupported(f"{name}: this layer's attention has no such argument here")
    native, layer, runs, index_queries = work
    if layer.keys is not key:  # no cache: nobody has looked at them, and they lie as the model left them
        check_finite("keys", key)
        check_finite("values", value)
        key, value = key.contiguous(), value.contiguous()
    elif key.stride() != value.stride() or key.stride(-1) != 1 or key.stride(-2) != key.shape[-1]:
        key, value = key.contiguous(), value.contiguous()
    batch_size, heads, queries, _ = query.shape
    output = query.new_empty(batch_size, queries, heads, value.shape[-1])
    rows = counts = None
    if hook.watch is not None:
        rows = torch.empty(batch_size, queries, native.row_capacity, dtype=torch.int32)
        counts = torch.empty(batch_size, queries, dtype=torch.int32)
    native.attend(
        runs.first, runs.last, query.transpose(1, 2), index_queries, key, value, layer.panels, layer.panels_max_abs, output, rows=rows, counts=counts
    )
    if hook.watch is not None:
        hook.watch(Seen(module, runs, index_queries, layer.indexer_keys, query.transpose(1, 2), key, value, rows, counts, output))
    return output, None


def register():
    AttentionInterface.register(ATTENTION_NAME, attend)
    AttentionMaskInterface.register(ATTENTION_NAME, make_run_mask)
