"""Hooks of minimax_m3_vl: a choice of blocks of tokens per kv head, each block scored by its best token, the newest one
always in it. Its first layers attend to all tokens and stay torch's, in blocks of queries.

The model counts its blocks from the first slot, here they count from the first token: with left padding the rows are
those of the sequence alone (docs/transformers.md says what the model does then).
"""

import functools
import sys
import threading

import torch

from . import latent, refusal
from ._backend import check_finite
from .refusal import Unsupported
from .runs import runs_of

NAMES = ("minimax_m3_vl",)
TEXT_MODEL = "MiniMaxM3VLTextModel"
SPARSE = "minimax_m3_sparse"
DENSE_QUERIES = 256  # of a full layer that are attended at once


class BlockHook:
    """What an enabled attention layer carries, and what waits between the indexer and the attention function."""

    def __init__(self, natives):
        self.natives = natives
        self.watch = None  # called with what each call was given and answered, rows included
        self._waiting = threading.local()

    def __deepcopy__(self, memo):
        return type(self)(type(self.natives)(self.natives.engine))

    def __reduce__(self):
        return type(self), (self.natives,)

    def put(self, work):
        self._waiting.work = work

    def take(self):
        work, self._waiting.work = getattr(self._waiting, "work", None), None
        return work


def geometry_of(attention, dtype):
    indexer, config = attention.indexer, attention.config
    return {
        "group_tokens": indexer.block_size,
        "budget_tokens": indexer.topk_blocks * indexer.block_size,
        "tail": "group",
        "forced_newest": indexer.local_blocks,
        "selections": indexer.num_heads,
        "query_heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads,
        "head_dim": attention.head_dim,
        "softmax_scale": attention.scaling,
        "index_heads": indexer.num_heads,
        "index_dim": indexer.head_dim,
        "index_rotary_dim": 0,
        "pooling": "unit_max",
        "relu": False,
        "scale_at": "nowhere",
        "kv_dtype": dtype,
        "index_dtype": dtype,
    }


def select_later(indexer, hidden_states, position_embeddings, cache, position_ids):
    """In place of the indexer's forward: projects and keeps; rows are planned when the keys to attend are there."""
    batch_size, queries, _ = hidden_states.shape
    rotate = sys.modules[type(indexer).__module__].apply_rotary_pos_emb
    cos, sin = (part[..., : indexer.head_dim] for part in position_embeddings)
    shape = batch_size, queries, -1, indexer.head_dim
    index_queries = indexer.q_norm(indexer.q_proj(hidden_states).view(shape)).transpose(1, 2)
    index_keys = indexer.k_norm(indexer.k_proj(hidden_states).view(shape)).transpose(1, 2)
    index_queries, index_keys = rotate(index_queries, index_keys, cos, sin)
    layer = _layer_of(cache, indexer.layer_idx)
    layer.update_index(index_keys)
    indexer.seriatim_attention().seriatim_hook.put((layer, index_queries.transpose(1, 2)))


def _layer_of(cache, layer_idx):
    """The cache's layer; one for this call alone where there is no cache."""
    from .block_cache import BlockLayer  # of the model's own class, which is there by now

    return BlockLayer() if cache is None else cache.layers[layer_idx]


def _before_attention(attention, args, kwargs):
    """Turns the cache's layer into ours when it is first seen."""
    from .block_cache import BlockLayer

    cache = kwargs.get("cache")
    if cache is not None and not isinstance(cache.layers[attention.layer_idx], BlockLayer):
        cache.layers[attention.layer_idx] = BlockLayer.adopt(cache.layers[attention.layer_idx])


def attend(attention, query, keys, values, attention_mask):
    """query [B, heads, S, head_dim]: [B, S, heads, head_dim], and for those who watch all of a `Seen` but the layer."""
    hook, runs = attention.seriatim_hook, runs_of(attention_mask)
    if attention.indexer is None:
        return attend_to_all(query, keys, values, runs, attention.scaling), None
    layer, index_queries = hook.take()
    if layer.keys is not keys:  # no cache: nobody has looked at them, and they lie as the model left them
        check_finite("keys", keys)
        check_finite("values", values)
        keys, values = keys.contiguous(), values.contiguous()
    native = hook.natives.of(geometry_of(attention, query.dtype))
    layer.pool(native, 1, runs, None)
    batch_size, heads, queries, _ = query.shape
    output = query.new_empty(batch_size, queries, heads, values.shape[-1])
    rows = counts = None
    if hook.watch is not None:
        sets = (batch_size, queries) if native.selections == 1 else (batch_size, queries, native.selections)
        rows = torch.empty(*sets, native.row_capacity, dtype=torch.int32, device="cpu")
        counts = torch.empty(*sets, dtype=torch.int32, device="cpu")
    native.attend(runs.first, runs.last, query.transpose(1, 2), index_queries, keys, values, layer.panels,
                  layer.panels_max_abs, output, rows=rows, counts=counts)
    return output, (runs, index_queries, layer.idx_keys[:, 0], query.transpose(1, 2), keys, values, rows, counts,
                    output)


def attend_to_all(query, keys, values, runs, scale):
    """A full layer: torch's attention over the tokens of each sequence, with no mask of all queries x keys."""
    slots, queries = keys.shape[2], query.shape[2]
    output = torch.zeros_like(query)
    for sequence, (first, last) in enumerate(zip(*runs)):
        for begin in range(max(first, slots - queries), last, DENSE_QUERIES):
            end = min(begin + DENSE_QUERIES, last)
            at = slice(begin - (slots - queries), end - (slots - queries))
            seen = slice(first, end)
            mask = torch.arange(first, end) <= torch.arange(begin, end)[:, None]
            output[sequence, :, at] = torch.nn.functional.scaled_dot_product_attention(
                query[sequence : sequence + 1, :, at], keys[sequence : sequence + 1, :, seen],
                values[sequence : sequence + 1, :, seen], attn_mask=mask, scale=scale, enable_gqa=True)[0]
    return output.transpose(1, 2)


def text_models(model):
    return [module for module in model.modules() if type(module).__name__ == TEXT_MODEL]


def attentions(text_model):
    return [layer.self_attn for layer in text_model.layers]


def sparse(text_model):
    return [attention for attention in attentions(text_model) if attention.indexer is not None]


def check_model(text_model):
    """Raises Unsupported for a model whose layers Seriatim does not serve."""
    if not sparse(text_model):
        raise Unsupported(f"the model has no layer of type {SPARSE}")
    for attention in sparse(text_model):
        indexer, config = attention.indexer, attention.config
        if config.num_key_value_heads % indexer.num_heads != 0:
            raise Unsupported(f"index_n_heads is {indexer.num_heads}: it must divide the "
                              f"{config.num_key_value_heads} key-value heads")
        if indexer.local_blocks > indexer.topk_blocks:
            raise Unsupported(f"index_local_blocks is {indexer.local_blocks}, more than the "
                              f"{indexer.topk_blocks} blocks that are chosen")
    latent.check_on_cpu(text_model)


def check_forward(text_model, named):
    refusal.check_forward(text_model, named, lambda cache, config: _check_cache(cache, text_model))


def _check_cache(cache, text_model):
    from transformers.cache_utils import DynamicLayer

    kinds = {attention.layer_idx: DynamicLayer for attention in attentions(text_model)}
    for attention in sparse(text_model):
        kinds[attention.layer_idx] = sys.modules[type(attention).__module__].MiniMaxM3VLSparseCacheLayer
    refusal.check_layers(cache, kinds, _lengths_of)


def _lengths_of(at, layer):
    yield layer.get_seq_length()
    if hasattr(layer, "idx_keys"):
        yield 0 if layer.idx_keys is None else layer.idx_keys.shape[2]


def hook_model(text_model, engine):
    """Gives the handles of what it registered."""
    natives, handles = latent.Natives(engine), []
    for attention in attentions(text_model):
        attention.seriatim_hook = BlockHook(natives)
        if attention.indexer is not None:
            handles.append(attention.register_forward_pre_hook(_before_attention, with_kwargs=True))
            attention.indexer.seriatim_attention = latent.ParentOf(attention)
            attention.indexer.forward = functools.partial(select_later, attention.indexer)
    return handles


def unhook_model(text_model):
    for attention in attentions(text_model):
        del attention.seriatim_hook
        if attention.indexer is not None:
            del attention.indexer.seriatim_attention, attention.indexer.forward
