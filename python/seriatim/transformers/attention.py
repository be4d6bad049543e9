"""The attention function: plans rows and attends over them, in place, in blocks of queries."""

from typing import NamedTuple

import torch
from transformers import AttentionInterface, AttentionMaskInterface

from . import latent, minimax_m3, sharded
from ._backend import check_finite
from .refusal import Unsupported
from .runs import Runs, make_run_mask

ATTENTION_NAME = "seriatim"


class Seen(NamedTuple):
    """One call of one attention layer, for those who watch it. Tensors may be written again by the next call.

    Of a layer over latents keys are the latents, values their leading part, queries have the keys' expansion in them,
    and the output is that of the kernels, in the latents' space. The index is None where rows came from another layer.
    """

    attention: torch.nn.Module
    runs: Runs
    index_queries: torch.Tensor | None  # [B, S, index_heads, index_dim]
    index_keys: torch.Tensor | None  # [B, T, index_dim], raw, or finished
    queries: torch.Tensor  # [B, S, heads, head_dim]
    keys: torch.Tensor  # [B, kv_heads, T, head_dim]
    values: torch.Tensor
    rows: torch.Tensor  # [B, S, row capacity] slots, -1 past each count; of row sets [B, S, selections, row capacity]
    counts: torch.Tensor  # [B, S], or [B, S, selections]
    output: torch.Tensor  # [B, S, heads, value_dim]
    head_weights: torch.Tensor | None = None  # [B, S, index_heads] f32
    sinks: torch.Tensor | None = None  # [heads]


# Arguments by which other models change what attention computes.
FOREIGN_ARGUMENTS = ("sliding_window", "softcap", "s_aux", "position_bias", "head_mask", "indices", "block_indices")


def check_arguments(dropout, kwargs):
    if dropout:
        raise Unsupported(f"dropout of {dropout}: call model.eval()")
    for name in FOREIGN_ARGUMENTS:
        if kwargs.get(name) is not None:
            raise Unsupported(f"{name}: this layer's attention has no such argument here")


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
    """query [B, heads, S, head_dim], key and value [B, kv_heads, T, head_dim]: [B, S, heads, head_dim], and no
    weights."""
    hook = getattr(module, "seriatim_hook", None)
    if isinstance(hook, latent.LatentHook):
        return attend_latent(module, query, key, attention_mask, dropout, **kwargs), None
    if isinstance(hook, minimax_m3.BlockHook):
        check_arguments(dropout, kwargs)
        output, seen = minimax_m3.attend(module, query, key, value, attention_mask)
        if hook.watch is not None and seen is not None:
            hook.watch(Seen(module, *seen))
        return output, None
    work = hook.take() if hook is not None else None
    if work is None:
        raise Unsupported(
            f"{type(module).__name__} ran under the attention name {ATTENTION_NAME!r} without "
            "seriatim.transformers.enable(model)")
    check_arguments(dropout, kwargs)
    native, layer, runs, index_queries = work
    if hook.shard is not None:
        if hook.watch is not None:
            raise Unsupported("watching: the rows of a sharded model are not shown")
        return sharded.attend(layer, native, query.transpose(1, 2), index_queries[0], key, value,
                              index_queries[1]), None
    if layer.keys is not key:  # no cache: nobody has looked at them, and they lie as the model left them
        check_finite("keys", key)
        check_finite("values", value)
        key, value = key.contiguous(), value.contiguous()
    batch_size, heads, queries, _ = query.shape
    output = query.new_empty(batch_size, queries, heads, value.shape[-1])
    rows = counts = None
    if hook.watch is not None:
        rows = torch.empty(batch_size, queries, native.row_capacity, dtype=torch.int32, device="cpu")
        counts = torch.empty(batch_size, queries, dtype=torch.int32, device="cpu")
    native.attend(
        runs.first, runs.last, query.transpose(1, 2), index_queries, key, value, layer.panels, layer.panels_max_abs,
        output, rows=rows, counts=counts
    )
    if hook.watch is not None:
        hook.watch(Seen(module, runs, index_queries, layer.indexer_keys, query.transpose(1, 2), key, value, rows,
                        counts, output))
    return output, None


def attend_latent(module, query, latents, attention_mask, dropout, indices=None, sliding_window=None, s_aux=None,
                  **kwargs):
    """The same over latents [B, 1, T, rank + rotary dims], of rows `indices` [B, S, width] or the sliding window."""
    check_arguments(dropout, kwargs)
    hook = module.seriatim_hook
    runs = hook.call.runs
    if hook.rows_as_mask:
        indices = attention_mask
    values, absorbed, output = latent.attend(module, query, latents, runs, indices, sliding_window, s_aux)
    if hook.watch is not None and indices is not None:
        counts = (indices >= 0).sum(dim=-1, dtype=torch.int32)
        index_queries, index_keys, head_weights = (None, None, None) if module.indexer is None else hook.call.index
        hook.watch(Seen(module, runs, index_queries, index_keys, absorbed, latents, latents[..., : module.kv_lora_rank],
                        indices, counts,
                        output, head_weights, s_aux))
    return values


def register():
    AttentionInterface.register(ATTENTION_NAME, attend)
    AttentionMaskInterface.register(ATTENTION_NAME, make_run_mask)
