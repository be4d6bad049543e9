"""Transformers configurations -> options of Geometry."""

from __future__ import annotations

import math
from typing import Any

from .errors import Code, make


# Families that select single tokens and attend over latents, by the model_type of their text configuration.
LATENT_MODELS = ("deepseek_v32", "glm_moe_dsa", "hy_v4", "hy_v4_vl_text", "dots3_note_text", "axk2",
                 "mistral_large4_text")


def _missing(config: object, name: str) -> Exception:
    message = f"config: {type(config).__name__} has no {name}; its family's index is not known"
    return make(Code.Unsupported, message, "config", -1, -1)


def geometry_options(config: Any) -> dict[str, object]:
    """What `Geometry.from_config` passes on. Text is assumed: with M-RoPE its three coordinates are equal."""
    text = getattr(config, "text_config", None) or config
    if getattr(text, "model_type", None) in LATENT_MODELS:
        return _latent_options(text)
    needed = ("indexer_n_heads", "indexer_head_dim", "indexer_budget", "indexer_compress_ratio", "num_attention_heads",
              "num_key_value_heads", "head_dim")
    for name in needed:
        if getattr(text, name, None) is None:
            raise _missing(text, name)
    rope = getattr(text, "rope_parameters", None) or {}
    if rope.get("rope_type", "default") != "default":
        message = f"config: rope_type {rope['rope_type']} needs its inv_freq; pass Geometry(inv_freq=...) yourself"
        raise make(Code.Unsupported, message, "config", -1, -1)
    dtype = _dtype_name(text)
    return {
        "group_tokens": text.indexer_compress_ratio,
        "budget_tokens": text.indexer_budget,
        "query_heads": text.num_attention_heads,
        "kv_heads": text.num_key_value_heads,
        "head_dim": text.head_dim,
        "index_heads": text.indexer_n_heads,
        "index_dim": text.indexer_head_dim,
        "index_rotary_dim": int(text.head_dim * rope.get("partial_rotary_factor", 1.0)),
        "rope_theta": float(rope.get("rope_theta", 10000.0)),
        "norm_eps": text.rms_norm_eps,
        "kv_dtype": dtype,
        "index_dtype": dtype,
    }


def _latent_options(text: Any) -> dict[str, object]:
    dtype, in_f32 = _dtype_name(text), text.model_type == "dots3_note_text"
    if in_f32:
        text = text.per_layer_config["indexed_attention"]  # its sliding layers have other sizes
    return {
        "group_tokens": 1,
        "budget_tokens": text.index_topk,
        "query_heads": text.num_attention_heads,
        "kv_heads": 1,
        "head_dim": text.kv_lora_rank + text.qk_rope_head_dim,
        "value_dim": text.kv_lora_rank,
        "values_alias_keys": True,
        "softmax_scale": ((text.qk_nope_head_dim + text.qk_rope_head_dim) ** -0.5
                          * _yarn_scale(text.rope_parameters or {})),
        "index_heads": text.index_n_heads,
        "index_dim": text.index_head_dim,
        "index_rotary_dim": 0,
        "pooling": "none",
        "scale_at": "nowhere" if text.model_type.startswith("hy_v4") else "before_relu",
        "kv_dtype": dtype,
        "index_dtype": "float32" if in_f32 else dtype,
    }


def _yarn_scale(rope: dict[str, Any]) -> float:
    """What a stretched rotation adds to the scale of the logits."""
    if rope.get("rope_type", "default") == "default" or not rope.get("mscale_all_dim"):
        return 1.0
    return float((0.1 * rope["mscale_all_dim"] * math.log(rope["factor"]) + 1.0) ** 2) if rope["factor"] > 1 else 1.0


def _dtype_name(text: Any) -> str:
    return str(getattr(text, "dtype", None) or "float32").removeprefix("torch.")
