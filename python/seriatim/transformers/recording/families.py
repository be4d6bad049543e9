"""The families that ship an indexer: how a dump names what they select, and whether a capture can hold what they
compute."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from ..refusal import Unsupported
from . import selection


class Family(NamedTuple):
    select: Callable[..., Any]  # see selection.py
    group_tokens: Callable[[Any], int]  # of an indexer
    budget_tokens: Callable[[Any], int]
    unit: str = "token"  # what an entry of a row counts
    padding: bool = True  # whether a padded sequence still has a visible run
    capture: str = ""  # "latent", "groups" or "blocks"; else why not
    scale_at: str = "after_sum"


def _latent(scale_at="before_relu"):
    return Family(selection.token_rows, lambda indexer: 1, lambda indexer: indexer.index_topk, capture="latent",
                  scale_at=scale_at)


FAMILIES = {
    "qwen4_exp": Family(selection.group_rows, lambda i: i.compress_ratio, lambda i: i.token_budget, capture="groups"),
    "deepseek_v32": _latent(),
    "glm_moe_dsa": _latent(),
    "hy_v4": _latent(scale_at="nowhere"),
    "hy_v4_vl": _latent(scale_at="nowhere"),
    "dots3_note": _latent(),
    "axk2": _latent(),
    "mistral_large4": _latent(),
    "glm5_next": Family(
        selection.pool_rows, lambda i: i.index_kpool, lambda i: i.index_topk,
        capture="its pools are sums gated by a softmax, and captures know means alone"),
    "minimax_m3_vl": Family(
        selection.block_rows, lambda i: i.block_size, lambda i: i.block_size * i.topk_blocks, unit="group",
        padding=False, capture="blocks"),
    "deepseek_v4": Family(
        selection.entry_rows, lambda i: i.compress_rate, lambda i: i.compress_rate * i.index_topk, unit="group",
        padding=False,
        capture="it attends to pooled entries and a window of tokens, and captures know one store of tokens"),
}


class IndexedLayer(NamedTuple):
    family_name: str
    family: Family
    layer_idx: int
    text_model: nn.Module  # what holds the layers
    attention: nn.Module
    indexer: nn.Module


def indexed_layers(model):
    """The layers of `model` that select. Raises Unsupported where there are none, or of a family that is not known."""
    layers = []
    for name, module in model.named_modules():
        if not name.endswith("indexer"):
            continue
        family_name = type(module).__module__.split(".")[-2:][0]
        if family_name not in FAMILIES:
            raise Unsupported(
                f"record: {type(module).__name__} of {family_name!r} is not known; known are {', '.join(FAMILIES)}")
        above, _, inside = name.rpartition("layers.")
        attention = model.get_submodule(f"{above}layers.{inside.split('.')[0]}.self_attn")
        layers.append(IndexedLayer(family_name, FAMILIES[family_name], attention.layer_idx,
                                   model.get_submodule(above.rstrip(".")), attention, module))
    if not layers:
        family_name = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
        raise Unsupported(f"record: {family_name!r} has no layer that selects; known are {', '.join(FAMILIES)}")
    for layer in layers:
        _check(layer)
    return layers


def _check(layer):
    if getattr(layer.indexer, "index_kpool_always_select_tail", True) is False:
        raise Unsupported(
            "record: index_kpool_always_select_tail is False, and a row without its newest tokens has no place "
            "in a dump")
    if getattr(layer.indexer, "index_kv_heads", 1) != 1:
        raise Unsupported(f"record: indexer_kv_heads is {layer.indexer.index_kv_heads}: only 1 is known")


def named_arguments(module, args, kwargs):
    """What a forward was called with, by name."""
    return inspect.signature(type(module).forward).bind(module, *args, **kwargs).arguments


def check_cache(layer, cache):
    """Slots of a cache are tokens up to the newest; where it holds room ahead, no query could be told from padding."""
    if cache is not None and getattr(cache.layers[layer.layer_idx], "is_compileable", False):
        raise Unsupported(
            f"record: cache is a {type(cache).__name__}, whose slots stand ready before they are filled; "
            "use DynamicCache")


def check_padding(layer, mask):
    if layer.family.padding or mask is None:
        return
    if not hasattr(mask, "ndim") or mask.ndim != 2 or not bool(mask.bool().all()):
        raise Unsupported(
            f"record: attention_mask pads, and {layer.family_name} counts its "
            f"{'blocks' if layer.family_name == 'minimax_m3_vl' else 'entries'} "
            "from slot 0, padding included: such a sequence has no visible run. Record each text on its own"
        )
