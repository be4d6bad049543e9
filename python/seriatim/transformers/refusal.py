"""What is refused, by name and before anything runs. Nothing falls back to dense attention."""

import torch
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.jit._trace import is_tracing
from transformers.cache_utils import Cache, DynamicIndexedLayer
from transformers.masking_utils import find_packed_sequence_indices

from .. import errors


class Unsupported(errors.Unsupported):
    """A model, a cache or an argument that Seriatim does not serve. The message names it and says what does work."""


FORWARD_ARGUMENTS = ("input_ids", "attention_mask", "position_ids", "cache", "inputs_embeds", "use_cache")
# Of attention implementations that pack sequences without a mask.
PACKING_ARGUMENTS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx")


def name_arguments(args, kwargs):
    """One dict of a text model's forward arguments, under the names of Transformers 5.24."""
    named = dict(zip(FORWARD_ARGUMENTS, args))
    named.update(kwargs)
    if named.get("cache") is None and named.get("past_key_values") is not None:
        named["cache"] = named["past_key_values"]
    return named


def check_forward(text_model, named, admit_cache):
    """Raises Unsupported for a call of the text model that Seriatim does not serve. `admit_cache(cache, config)` does
    so for a cache that the family cannot use."""
    _check_mode(text_model, named)
    config = text_model.config
    if named.get("output_attentions") or (named.get("output_attentions") is None
                                          and getattr(config, "output_attentions", False)):
        raise Unsupported("output_attentions: attention weights are never held; ask an eager model for them")
    for name in PACKING_ARGUMENTS:
        if named.get(name) is not None:
            raise Unsupported(f"{name}: packed sequences are not supported; pass one sequence per row of the batch")
    cache = named.get("cache")
    if cache is not None:
        admit_cache(cache, config)
        _check_padding(cache, named.get("attention_mask"))
    else:
        _check_not_packed(config, named)
    mask = named.get("attention_mask")
    if mask is not None and not (isinstance(mask, torch.Tensor) and mask.ndim == 2):
        what = f"a tensor of {mask.ndim} axes" if isinstance(mask, torch.Tensor) else f"a {type(mask).__name__}"
        raise Unsupported(f"attention_mask is {what}: only a padding mask [batch, tokens] is supported")
    if mask is not None and (mask.layout is not torch.strided or mask.device.type != "cpu"):
        raise Unsupported(f"attention_mask is {mask.layout} on {mask.device}: only dense ones on the CPU are supported")
    _check_batch(_inputs_of(named), mask, cache)


def _inputs_of(named):
    return named.get("input_ids") if named.get("inputs_embeds") is None else named["inputs_embeds"]


def _check_batch(inputs, mask, cache):
    """The call, its mask and its cache are of as many sequences: what grows in place would broadcast one to many."""
    if not isinstance(inputs, torch.Tensor):
        return  # the model says so itself
    if mask is not None and len(mask) != len(inputs):
        raise Unsupported(f"attention_mask is of {len(mask)} sequences, the call of {len(inputs)}")
    for layer in cache.layers if cache is not None else ():
        keys = getattr(layer, "keys", None)
        if isinstance(keys, torch.Tensor) and keys.numel() > 0 and len(keys) != len(inputs):
            raise Unsupported(f"cache is of {len(keys)} sequences, the call of {len(inputs)}")


def _check_padding(cache, mask):
    """A cache's layers know which of their slots were padding; no later call may take those for tokens."""
    padding: list[tuple[int, int]] = next(filter(None, (layer.padding() for layer in cache.layers
                                                        if hasattr(layer, "padding"))), [])
    held = cache.get_seq_length()
    for row, (first, last) in enumerate(padding):
        if mask is None and (first > 0 or last < held):
            slot = 0 if first > 0 else last
            raise Unsupported(
                f"attention_mask is left out, and slot {slot} of row {row} of the cache is padding; "
                "pass the mask of all slots")
        given = isinstance(mask, torch.Tensor) and mask.ndim == 2 and row < len(mask)
        if first > 0 and given and bool(mask[row, :first].any()):
            raise Unsupported(
                f"attention_mask: row {row} lets a slot before {first} through, "
                "which was padding when the cache was filled")


def _check_mode(text_model, named):
    if torch.compiler.is_compiling():
        raise Unsupported("torch.compile and torch.export: an enabled model runs as it is; disable it first")
    if text_model.training:
        raise Unsupported("training mode: there is no gradient and no dropout; call model.eval()")
    inputs = _inputs_of(named)
    if torch.is_grad_enabled():
        wanting = isinstance(inputs, torch.Tensor) and inputs.requires_grad
        if wanting or any(p.requires_grad for p in text_model.parameters()):
            raise Unsupported(
                "gradients: there is no backward pass; call the model under torch.no_grad() or torch.inference_mode()")
    if is_tracing() or get_proxy_mode() is not None:
        raise Unsupported(
            "torch.jit.trace and make_fx would keep what an enabled model computes as constants; disable it first")
    if detect_fake_mode(inputs) is not None:
        raise Unsupported(
            "FakeTensorMode: an enabled model reads its tensors; leave the mode, or disable the model first")
    if isinstance(inputs, torch.Tensor) and inputs.device.type != "cpu":
        raise Unsupported(f"device {inputs.device}: only CPU tensors are supported")
    if torch.is_autocast_enabled("cpu"):
        raise Unsupported("autocast: load or convert the model in the dtype it shall compute in")


def check_read_in_place(layer_idx, name, module):
    """A module whose weight the kernels read has nothing between it and its weight."""
    if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
        raise Unsupported(
            f"layer {layer_idx}: {name} has hooks, or a forward of its own, that would not run; "
            "its weight is read in place")


def _check_not_packed(config, named):
    use_cache = named.get("use_cache")
    if named.get("attention_mask") is not None or (use_cache if use_cache is not None else config.use_cache):
        return  # Transformers takes such rows for one sequence each
    positions = named.get("position_ids")
    if positions is None:
        return
    if positions.ndim == 3:
        if positions.shape[0] == 3:
            return  # M-RoPE alone says nothing about packing
        positions = positions[0]
    if find_packed_sequence_indices(positions) is not None:
        raise Unsupported("position_ids: packed sequences are not supported; pass one sequence per row of the batch")


def check_cache(cache, config):
    """Admits a DynamicCache whose indexed layers grow, and whose layers are as long as one another."""
    indexed = [at for at, layer_type in enumerate(config.layer_types) if layer_type == "indexed_attention"]
    check_layers(cache, {at: DynamicIndexedLayer for at in indexed}, _lengths_of)


def _lengths_of(at, layer):
    yield layer.get_seq_length()
    if layer.is_indexer_initialized and layer.indexer_keys.numel() > 0:
        yield layer.indexer_keys.shape[1]
    if layer.indexer_position_ids is not None:
        yield layer.indexer_position_ids.shape[-1]


def check_layers(cache, kinds, lengths_of):
    """Admits a DynamicCache whose layer `at` is a `kinds[at]`, for each of those, and that holds as many tokens
    everywhere: all that `lengths_of(at, layer)` yields are one number."""
    name = type(cache).__name__
    if not isinstance(cache, Cache):
        raise Unsupported(f"cache is a {name}: only DynamicCache is supported")
    if cache.offloading:
        raise Unsupported(f"cache is a {name} that offloads: only a DynamicCache that stays where it is is supported")
    lengths = set()
    for at, kind in kinds.items():
        if at >= len(cache.layers):
            raise Unsupported(f"cache is a {name} without layers: make it with DynamicCache(config=model.config)")
        layer = cache.layers[at]
        if not isinstance(layer, kind):
            raise Unsupported(
                f"cache is a {name}, its layer {at} a {type(layer).__name__}: only DynamicCache is supported")
        lengths.update(lengths_of(at, layer))
    if len(lengths) > 1:
        raise Unsupported(
            f"cache: its layers hold {sorted(lengths)} tokens, as after a call that failed half-way; build it anew")
