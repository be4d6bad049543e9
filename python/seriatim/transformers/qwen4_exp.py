"""Hooks of the qwen4_exp family (Qwen4ExpTextAttention and its QSA indexer)."""

import copy
import functools
import sys
import threading

import torch
from transformers.cache_utils import DynamicIndexedLayer

from . import refusal, sharded
from ._backend import BatchLayer
from .cache_layer import SeriatimIndexedLayer
from .refusal import Unsupported
from .runs import runs_of

NAMES = ("qwen4_exp",)
TEXT_MODEL = "Qwen4ExpTextModel"
ROPE_TYPES = ("default", "linear", "llama3")  # frequencies fixed, cos and sin unscaled


class LayerHook:
    """What an enabled attention layer carries: its native side, made when first needed, and what waits between the
    indexer and the attention function of one call."""

    def __init__(self, rotary, engine, shard=None):
        self.rotary, self.engine = rotary, engine
        self.shard = shard  # the group over whose ranks the context lies; None: all of it is here
        self.watch = None  # called with what each call was given and answered, rows included; see `watching`
        self._native, self._made_for = None, None
        self._waiting = threading.local()

    def __deepcopy__(self, memo):
        return type(self)(copy.deepcopy(self.rotary, memo), self.engine, self.shard)

    def __reduce__(self):  # the native side is made anew where it arrives
        return type(self), (self.rotary, self.engine, self.shard)

    def native(self, attention, dtype):
        """The native layer for the weights as they are now."""
        weight, inv_freq = attention.indexer.k_layernorm.weight, self.rotary.inv_freq
        made_for = (dtype, weight.data_ptr(), _version(weight), inv_freq.data_ptr(), _version(inv_freq),
                    attention.scaling)
        if self._made_for != made_for:
            self._native = BatchLayer(geometry_of(attention, self.rotary, dtype), weight.detach().float().tolist(),
                                      self.engine)
            self._made_for = made_for
        return self._native

    def put(self, work):
        self._waiting.work = work

    def take(self):
        work, self._waiting.work = getattr(self._waiting, "work", None), None
        return work


def _version(tensor):
    return 0 if tensor.is_inference() else tensor._version


def geometry_of(attention, rotary, dtype):
    indexer, config = attention.indexer, attention.config
    pairs = rotary.inv_freq.shape[0]
    return {
        "group_tokens": indexer.compress_ratio,
        "budget_tokens": indexer.token_budget,
        "query_heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads,
        "head_dim": attention.head_dim,
        "softmax_scale": attention.scaling,
        "index_heads": indexer.index_n_heads,
        "index_dim": indexer.index_head_dim,
        "index_rotary_dim": 2 * pairs,
        "inv_freq": rotary.inv_freq.detach().float().tolist(),
        "rope_axes": rope_axes(rotary.mrope_section, pairs),
        "norm_eps": indexer.k_layernorm.eps,
        "kv_dtype": dtype,
        "index_dtype": dtype,
    }


def rope_axes(mrope_section, pairs):
    """The M-RoPE coordinate that each pair of dims takes: 0, 1, 2, 0, 1, 2, ... as far as the sections of 1 and 2
    reach."""
    axes = [0] * pairs
    for axis in (1, 2):
        for pair in range(axis, min(3 * mrope_section[axis], pairs), 3):
            axes[pair] = axis
    return axes


def text_models(model):
    return [module for module in model.modules() if type(module).__name__ == TEXT_MODEL]


def indexed_attentions(text_model):
    return [layer.self_attn for layer in text_model.layers if hasattr(getattr(layer, "self_attn", None), "indexer")]


attentions = indexed_attentions  # by the name that `_enable` knows


def check_forward(text_model, named):
    for attention in indexed_attentions(text_model):
        refusal.check_read_in_place(attention.layer_idx, "k_layernorm", attention.indexer.k_layernorm)
    refusal.check_forward(text_model, named, refusal.check_cache)
    positions = named.get("position_ids")
    if isinstance(positions, torch.Tensor) and positions.numel() > 0:
        if positions.is_floating_point():
            raise Unsupported(f"position_ids are {positions.dtype}: only integers are supported")
        least, greatest = (int(bound) for bound in positions.aminmax())
        if least < 0 or greatest >= 2**31:
            raise Unsupported(f"position_ids from {least} to {greatest}: only 0 to 2^31 - 1 is supported")


def check_model(text_model):
    """Raises Unsupported for a model whose layers Seriatim does not serve."""
    rotary, config = text_model.rotary_emb, text_model.config
    if rotary.rope_type not in ROPE_TYPES or rotary.attention_scaling != 1.0:
        raise Unsupported(
            f"rope_type {rotary.rope_type!r} with a scaling of {rotary.attention_scaling}: only "
            f"{', '.join(ROPE_TYPES)} without one")
    if not getattr(config, "is_causal", True):
        raise Unsupported("is_causal is False: only causal attention is supported")
    if not indexed_attentions(text_model):
        raise Unsupported("the model has no indexed attention layer")
    for attention in indexed_attentions(text_model):
        if attention.indexer.index_kv_heads != 1:
            raise Unsupported(f"indexer_kv_heads is {attention.indexer.index_kv_heads}: only 1 is supported")
    for name, parameter in text_model.named_parameters():
        if parameter.device.type != "cpu":
            raise Unsupported(f"{name} is on {parameter.device}: only CPU models are supported")


def rotate_newest(rotary, x, position_ids):
    """In place of the rotary embedding's forward: cos and sin of the newest tokens alone.

    The model asks for those of the whole context, because its indexer rotates all pooled keys in every step; every
    other reader takes the newest. The positions of the whole context go along.
    """
    cos, sin = type(rotary).forward(rotary, x, position_ids[..., -x.shape[1] :])
    cos.seriatim_positions = position_ids
    return cos, sin


def select_later(indexer, hidden_states, position_embeddings, attention_mask, cache):
    """In place of the indexer's forward: projects, keeps and pools; rows are planned when the keys to attend are there.

    Gives a mask that lets everything through, of one element.
    """
    batch_size, seq_length, _ = hidden_states.shape
    cos, sin = position_embeddings
    runs = runs_of(attention_mask)
    attention = indexer.seriatim_attention()
    hook = attention.seriatim_hook
    rotate = sys.modules[type(indexer).__module__].apply_rotary_pos_emb

    index_dim = indexer.index_head_dim
    qk = indexer.index_qk_proj(hidden_states).view(batch_size, seq_length, -1, index_dim)
    queries, raw_keys = qk[:, :, : indexer.index_n_heads], qk[:, :, indexer.index_n_heads]
    queries = rotate(indexer.q_layernorm(queries), cos=cos[:, -seq_length:], sin=sin[:, -seq_length:], unsqueeze_dim=2)

    if hook.shard is not None:
        return _select_on_ranks(attention, queries, raw_keys, runs, cos.seriatim_positions, cache)
    layer = indexed_layer(cache, indexer.layer_idx)
    layer.update_indexer(raw_keys)
    native = hook.native(attention, hidden_states.dtype)
    layer.pool(native, indexer.compress_ratio, runs, cos.seriatim_positions)
    hook.put((native, layer, runs, queries))
    return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=hidden_states.device)


def _select_on_ranks(attention, queries, raw_keys, runs, positions, cache):
    """The same where the context lies spread: everything waits for the keys."""
    hook, tokens = attention.seriatim_hook, raw_keys.shape[1]
    layer = sharded.sharded_layer(cache, attention.layer_idx, hook.shard)
    sharded.check_runs(runs, layer.get_seq_length() + tokens)
    layer.update_indexer(raw_keys)
    native = (geometry_of(attention, hook.rotary, raw_keys.dtype),
              attention.indexer.k_layernorm.weight.detach().float().tolist())
    newest = positions if positions.ndim == 3 else positions.expand(3, *positions.shape)
    hook.put((native, layer, runs, (queries, newest[..., -tokens:])))
    return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=raw_keys.device)


def indexed_layer(cache, layer_idx):
    """The cache's layer, turned into ours when first seen; one for this call alone where there is no cache."""
    if cache is None:
        return SeriatimIndexedLayer()
    layer = cache.layers[layer_idx]
    if not isinstance(layer, SeriatimIndexedLayer):
        if type(layer) is not DynamicIndexedLayer:
            raise Unsupported(f"cache: layer {layer_idx} is a {type(layer).__name__}; only DynamicCache is supported")
        layer = cache.layers[layer_idx] = SeriatimIndexedLayer.adopt(layer)
    return layer


class _ParentOf:
    """A module's parent, out of sight of nn.Module, which would list it as a child."""

    def __init__(self, parent):
        self._parent = (parent,)

    def __call__(self):
        return self._parent[0]


def hook_model(text_model, engine, shard=None):
    """Gives the handles of what it registered: none."""
    for attention in indexed_attentions(text_model):
        hook_layer(attention, text_model.rotary_emb, engine, shard)
    hook_rotary(text_model)
    return []


def unhook_model(text_model):
    for attention in indexed_attentions(text_model):
        unhook_layer(attention)
    unhook_rotary(text_model)


def hook_layer(attention, rotary, engine, shard=None):
    attention.seriatim_hook = LayerHook(rotary, engine, shard)
    attention.indexer.seriatim_attention = _ParentOf(attention)
    attention.indexer.forward = functools.partial(select_later, attention.indexer)


def unhook_layer(attention):
    del attention.seriatim_hook, attention.indexer.seriatim_attention, attention.indexer.forward


def hook_rotary(text_model):
    text_model.rotary_emb.forward = functools.partial(rotate_newest, text_model.rotary_emb)


def unhook_rotary(text_model):
    del text_model.rotary_emb.forward
