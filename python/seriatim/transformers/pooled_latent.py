"""Hooks of glm5_next: pools of consecutive tokens by a softmax per channel, the incomplete tail unscored, rows that
later layers share, attention over latents without rotation; linear layers between, which stay the model's.

Its mask says nothing about keys and its rows reach the attention function in the mask's place. What waits between the
steps is therefore put on each layer before the model runs, by `check_forward`.
"""

import functools

import torch

from . import latent, refusal
from ._backend import check_finite
from .families import Family
from .latent_cache import PooledLatentLayer, adopt_layer, check_cache, index_layer
from .refusal import Unsupported
from .runs import Runs

FAMILY = Family("glm5_next", "Glm5NextTextModel")
NAMES = (FAMILY.name,)
PANEL_GROUPS = 16


class PooledHook(latent.LatentHook):
    rows_as_mask = True


class GatedPools:
    """Pools groups as the model does, into the order that scoring reads: what a native layer's `pool` does
    elsewhere."""

    def __init__(self, indexer):
        self.indexer = indexer

    def pool(self, first, last, pooled_groups, packed, positions, panels):
        """Of every sequence the groups after those that are pooled. Gives the largest magnitude that was written."""
        tokens, dim, largest = self.indexer.index_kpool, self.indexer.head_dim, 0.0
        bias = self.indexer.index_kpool_compress_ape.float()
        for sequence, (begin, end, done) in enumerate(zip(first, last, pooled_groups)):
            groups = (end - begin) // tokens
            if done >= groups:
                continue
            parts = packed[sequence, begin + done * tokens : begin + groups * tokens].view(groups - done, tokens, -1)
            keys, gates = parts[..., :dim], parts[..., dim : 2 * dim]
            pooled = ((gates.float() + bias).softmax(dim=1).to(keys.dtype) * keys).sum(dim=1)
            check_finite("index_keys", pooled)
            at = torch.arange(done, groups, device="cpu")
            panels[sequence][at // PANEL_GROUPS, :, at % PANEL_GROUPS] = pooled
            largest = max(largest, float(pooled.abs().max()))
        return largest


def select_pools(indexer, hidden_states, q_resid, attention_mask, cache=None):
    """In place of the indexer's forward: rows [B, S, budget + pool - 1] int32 of slots, ascending, -1 past each row's
    end."""
    attention = indexer.seriatim_attention()
    hook = attention.seriatim_hook
    runs, dtype = hook.call.runs, hidden_states.dtype
    queries = indexer.wq_b(q_resid).view(*hidden_states.shape[:2], indexer.n_heads, indexer.head_dim)
    keys = indexer.k_norm(indexer.wk(hidden_states))
    gates = torch.nn.functional.linear(hidden_states, indexer.index_kpool_compress_gate)
    weights = indexer.weights_proj(hidden_states.to(indexer.weights_proj.weight.dtype)).float() * indexer.n_heads**-0.5

    layer = index_layer(cache, indexer.layer_idx, PooledLatentLayer)
    held = layer.update_indexer(torch.cat([keys, gates, attention_mask.to(dtype)[..., None]], dim=-1))
    layer.pool(GatedPools(indexer), indexer.index_kpool, runs, None)
    geometry = latent.geometry_of(FAMILY, attention, dtype, dtype)
    native = hook.natives.of({**geometry, "group_tokens": indexer.index_kpool,
                              "pooling": "none" if indexer.index_kpool == 1 else "mean"})
    rows = torch.empty(*hidden_states.shape[:2], native.row_capacity, dtype=torch.int32, device="cpu")
    native.plan(runs.first, runs.last, held.shape[1], queries, layer.panels, layer.panels_max_abs, rows, weights)
    hook.call.index = (queries, held, weights) if hook.watch is not None else None
    return rows


def rows_for_mask(attention, topk_indices, query_states, kv_length):
    """In place of build_attention_mask_from_topk: the rows, and no mask."""
    return topk_indices


def _before_attention(attention, args, kwargs):
    if kwargs.get("cache") is not None:
        adopt_layer(kwargs["cache"], attention.layer_idx, PooledLatentLayer)


def text_models(model):
    return [module for module in model.modules() if type(module).__name__ == FAMILY.text_model]


def attentions(text_model):
    """Those of indexed layers; linear ones have no latents to expand."""
    return [layer.self_attn for layer in text_model.layers if hasattr(layer.self_attn, "kv_b_proj")]


def check_model(text_model):
    """Raises Unsupported for a model whose layers Seriatim does not serve."""
    if not text_model.config.index_kpool_always_select_tail:
        raise Unsupported("index_kpool_always_select_tail is False: the tail is always attended")
    for attention in attentions(text_model):
        latent.check_expansion(attention)
    latent.check_on_cpu(text_model)


def check_forward(text_model, named):
    for attention in attentions(text_model):
        latent.check_expansion(attention)
    refusal.check_forward(text_model, named, lambda cache, config: check_cache(cache, attentions(text_model)))
    inputs = named.get("input_ids") if named.get("inputs_embeds") is None else named["inputs_embeds"]
    if inputs is None:
        return  # the model says so itself
    layers, cache = attentions(text_model), named.get("cache")
    past = cache.layers[layers[0].layer_idx].get_seq_length() if cache is not None and layers else 0
    runs = Runs.of_call(inputs.shape[0], past + inputs.shape[1], named.get("attention_mask"))
    for attention in layers:
        attention.seriatim_hook.call.runs = runs


def hook_model(text_model, engine):
    """Gives the handles of what it registered."""
    natives, handles = latent.Natives(engine), []
    for attention in attentions(text_model):
        attention.seriatim_hook = PooledHook(FAMILY, natives)
        attention.expand_kv = functools.partial(latent.hand_out_latents, attention)
        attention.build_attention_mask_from_topk = functools.partial(rows_for_mask, attention)
        handles.append(attention.register_forward_pre_hook(_before_attention, with_kwargs=True))
        if attention.indexer is not None:
            attention.indexer.seriatim_attention = latent.ParentOf(attention)
            attention.indexer.forward = functools.partial(select_pools, attention.indexer)
    return handles


def unhook_model(text_model):
    for attention in attentions(text_model):
        del attention.build_attention_mask_from_topk
    latent.unhook(attentions(text_model))
