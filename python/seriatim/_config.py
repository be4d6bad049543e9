"""Transformers configurations -> options of Geometry."""

from __future__ import annotations

from typing import Any

from ._errors import Code, make


def _missing(config: object, name: str) -> Exception:
    message = f"config: {type(config).__name__} has no {name}; only the qwen4_exp family's index is known"
    return make(Code.Unsupported, message, "config", -1, -1)


def geometry_options(config: Any) -> dict[str, object]:
    """What `Geometry.from_config` passes on. Text is assumed: with M-RoPE its three coordinates are equal."""
    text = getattr(config, "text_config", None) or config
    needed = ("indexer_n_heads", "indexer_head_dim", "indexer_budget", "indexer_compress_ratio", "num_attention_heads",
              "num_key_value_heads", "head_dim")
    for name in needed:
        if getattr(text, name, None) is None:
            raise _missing(text, name)
    rope = getattr(text, "rope_parameters", None) or {}
    if rope.get("rope_type", "default") != "default":
        message = f"config: rope_type {rope['rope_type']} needs its inv_freq; pass Geometry(inv_freq=...) yourself"
        raise make(Code.Unsupported, message, "config", -1, -1)
    dtype = str(getattr(text, "dtype", None) or "float32").removeprefix("torch.")
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
