"""Hooks of the families of `families`: token-level selection with head weights, attention over latents.

A layer's indexer answers rows, which the model's own code carries to the attention function and to later layers that
share them. `expand_kv` answers latents instead of expanding them per head: keys' expansion goes into the queries,
values' expansion comes after the attention, by the two halves of `kv_b_proj`.
"""

import copy
import functools
import sys
import threading

import torch

from . import refusal
from ._backend import BatchLayer
from .families import BY_TEXT_MODEL, NAMES
from .latent_cache import adopt_layer, check_cache, index_layer, latents_of
from .refusal import Unsupported
from .runs import runs_of

__all__ = ["NAMES", "attentions", "check_forward", "check_model", "hook_model", "text_models", "unhook_model"]


class Natives:
    """The native layers of a model, one per geometry: layers alike share one."""

    def __init__(self, engine):
        self.engine = engine
        self._made = {}

    def __deepcopy__(self, memo):
        return type(self)(self.engine)

    def __reduce__(self):  # native layers are made anew where they arrive
        return type(self), (self.engine,)

    def of(self, geometry):
        key = tuple(geometry.values())
        if key not in self._made:
            self._made[key] = BatchLayer(geometry, [], self.engine)
        return self._made[key]


class LatentHook:
    """What an enabled attention layer carries: its family, and what waits between the steps of one call."""

    rows_as_mask = False  # whether rows reach the attention function in the place of a mask

    def __init__(self, family, natives):
        self.family, self.natives = family, natives
        self.watch = None  # called with what each call was given and answered, rows included
        self.call = threading.local()  # .runs of this call; .index, what the indexer made, if somebody watches

    def __deepcopy__(self, memo):
        return type(self)(self.family, copy.deepcopy(self.natives, memo))

    def __reduce__(self):
        return type(self), (self.family, self.natives)

    def native(self, attention, dtype, index_dtype=None):
        return self.natives.of(geometry_of(self.family, attention, dtype, index_dtype))


def geometry_of(family, attention, dtype, index_dtype):
    """`index_dtype` None: of a call that attends alone, whatever made its rows."""
    indexer, window = attention.indexer, getattr(attention, "sliding_window", None)
    return {
        "index_heads": 1 if index_dtype is None else indexer.n_heads,
        "index_dim": 1 if index_dtype is None else indexer.head_dim,
        "group_tokens": 1,
        "budget_tokens": attention.config.index_topk if window is None else window,
        "query_heads": attention.num_heads,
        "kv_heads": 1,
        "head_dim": attention.kv_lora_rank + attention.qk_rope_head_dim,
        "value_dim": attention.kv_lora_rank,
        "values_alias_keys": True,
        "softmax_scale": attention.scaling,
        "index_rotary_dim": 0,
        "pooling": "none",
        "scale_at": "nowhere" if family.scales_weights else "before_relu",
        "kv_dtype": dtype,
        "index_dtype": dtype if index_dtype is None else index_dtype,
    }


def project(family, indexer, hidden_states, q_resid, position_embeddings, position_ids):
    """Index queries [B, S, heads, dim], keys [B, S, dim] and signed head weights [B, S, heads] f32, by the model's
    modules."""
    heads, dim, rotary = indexer.n_heads, indexer.head_dim, indexer.qk_rope_head_dim
    source = indexer.q_input_norm(hidden_states) if family.queries_from_hidden else q_resid
    queries = indexer.wq_b(source).view(*hidden_states.shape[:2], heads, dim)
    if family.queries_from_hidden:
        queries = indexer.softmax_scaling(queries, position_ids, head_dim_first=False)
    norm = indexer.k_norm
    keys = norm(indexer.wk(hidden_states).to(norm.weight.dtype)).to(hidden_states.dtype).unsqueeze(2)
    if getattr(indexer, "use_rope", True):
        rotate = getattr(sys.modules[type(indexer).__module__], family.rotation)
        cut = [dim - rotary, rotary] if family.rotates_trailing else [rotary, dim - rotary]
        parts = list(zip(queries.split(cut, dim=-1), keys.split(cut, dim=-1)))
        turned = 1 if family.rotates_trailing else 0
        parts[turned] = rotate(*parts[turned], *position_embeddings, unsqueeze_dim=2)
        queries, keys = (torch.cat(halves, dim=-1) for halves in zip(*parts))
    weights = indexer.weights_proj(hidden_states.to(indexer.weights_proj.weight.dtype)).float() * heads**-0.5
    if family.scales_weights:
        weights = weights * indexer.softmax_scale
    return queries, keys.squeeze(2), weights


def _select(indexer, hidden_states, q_resid, position_embeddings, position_ids, cache):
    attention = indexer.seriatim_attention()
    hook = attention.seriatim_hook
    runs = hook.call.runs
    queries, keys, weights = project(hook.family, indexer, hidden_states, q_resid, position_embeddings, position_ids)
    layer = index_layer(cache, indexer.layer_idx)
    held = layer.update_indexer(keys)
    native = hook.native(attention, hidden_states.dtype, keys.dtype)
    layer.pool(native, 1, runs, None)
    rows = torch.empty(*hidden_states.shape[:2], native.row_capacity, dtype=torch.int32, device="cpu")
    native.plan(runs.first, runs.last, held.shape[1], queries, layer.panels, layer.panels_max_abs, rows, weights)
    hook.call.index = (queries, held, weights) if hook.watch is not None else None
    return rows


def select_rows(indexer, hidden_states, q_resid, position_embeddings, attention_mask, position_ids=None, cache=None):
    """In place of the indexer's forward: rows [B, S, budget] int32 of slots, ascending, -1 past each row's end."""
    return _select(indexer, hidden_states, q_resid, position_embeddings, position_ids, cache)


def select_rows_from_hidden(indexer, hidden_states, position_embeddings, attention_mask, position_ids=None, cache=None):
    """The same, for an indexer that takes no query latents."""
    return _select(indexer, hidden_states, None, position_embeddings, position_ids, cache)


def hand_out_latents(attention, kv_nope, k_rot):
    """In place of the attention's expand_kv: latents as keys, their leading part as values, of one head."""
    latents = latents_of(kv_nope, k_rot)
    return latents, latents[..., : attention.kv_lora_rank]


def attend(attention, query, latents, runs, rows, window, sinks):
    """query [B, heads, S, nope + rotary]: [B, S, heads, value_dim], and what the kernels were given and gave."""
    hook, heads, nope = attention.seriatim_hook, attention.num_heads, attention.qk_nope_head_dim
    expand = attention.kv_b_proj.weight.view(heads, nope + attention.v_head_dim, attention.kv_lora_rank)
    absorbed = torch.cat([torch.matmul(query[..., :nope], expand[:, :nope]), query[..., nope:]], dim=-1).transpose(1, 2)
    output = query.new_empty(*absorbed.shape[:3], attention.kv_lora_rank)
    if rows is None and window is None:
        raise Unsupported(
            f"layer {attention.layer_idx} attends without rows: only indexed, sharing and sliding layers are supported")
    native = hook.native(attention, query.dtype)
    native.attend_rows(
        runs.first, runs.last, absorbed, latents, output, rows=rows,
        sinks=[] if sinks is None else sinks.detach().float().tolist()
    )
    values = torch.matmul(output.transpose(1, 2), expand[:, nope:].transpose(1, 2)).transpose(1, 2)
    return values, absorbed, output


def _before_attention(attention, args, kwargs):
    """What the indexer and the cache's layer must know, and cannot see of the model's arguments."""
    attention.seriatim_hook.call.runs = runs_of(kwargs.get("attention_mask"))
    if kwargs.get("cache") is not None:
        adopt_layer(kwargs["cache"], attention.layer_idx)


class ParentOf:
    """A module's parent, out of sight of nn.Module, which would list it as a child."""

    def __init__(self, parent):
        self._parent = (parent,)

    def __call__(self):
        return self._parent[0]


def text_models(model):
    return [module for module in model.modules() if type(module).__name__ in BY_TEXT_MODEL]


def attentions(text_model):
    return [layer.self_attn for layer in text_model.layers]


def check_model(text_model):
    """Raises Unsupported for a model whose layers Seriatim does not serve."""
    if not getattr(text_model.config, "is_causal", True):
        raise Unsupported("is_causal is False: only causal attention is supported")
    for attention in attentions(text_model):
        check_expansion(attention)
        at, kind = attention.layer_idx, text_model.config.layer_types[attention.layer_idx]
        if kind not in ("indexed_attention", "sliding_attention"):
            raise Unsupported(
                f"layer {at} is of type {kind}: only indexed_attention and sliding_attention are supported")
    check_on_cpu(text_model)


def check_expansion(attention):
    expand = attention.kv_b_proj
    if type(expand) is not torch.nn.Linear or expand.bias is not None:
        raise Unsupported(
            f"layer {attention.layer_idx}: kv_b_proj is a {type(expand).__name__}; "
            "only a Linear without bias can be absorbed")
    refusal.check_read_in_place(attention.layer_idx, "kv_b_proj", expand)


def check_on_cpu(text_model):
    for name, parameter in text_model.named_parameters():
        if parameter.device.type != "cpu":
            raise Unsupported(f"{name} is on {parameter.device}: only CPU models are supported")


def check_forward(text_model, named):
    for attention in attentions(text_model):  # again: adapters and quantizers replace modules of an enabled model
        check_expansion(attention)
    refusal.check_forward(text_model, named, lambda cache, config: check_cache(cache, attentions(text_model)))


def hook_model(text_model, engine):
    """Gives the handles of what it registered."""
    family, natives, handles = BY_TEXT_MODEL[type(text_model).__name__], Natives(engine), []
    for attention in attentions(text_model):
        attention.seriatim_hook = LatentHook(family, natives)
        attention.expand_kv = functools.partial(hand_out_latents, attention)
        handles.append(attention.register_forward_pre_hook(_before_attention, with_kwargs=True))
        indexer = attention.indexer
        if indexer is not None:
            indexer.seriatim_attention = ParentOf(attention)
            indexer.forward = functools.partial(select_rows_from_hidden if family.queries_from_hidden else select_rows,
                                                indexer)
    return handles


def unhook_model(text_model):
    unhook(attentions(text_model))


def unhook(hooked):
    for attention in hooked:
        del attention.seriatim_hook, attention.expand_kv
        if attention.indexer is not None:
            del attention.indexer.seriatim_attention, attention.indexer.forward
