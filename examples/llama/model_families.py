"""The eight families of llama.cpp with sparse attention. Every key and tensor that its loader asks for, and no more."""

from dataclasses import dataclass

import numpy as np

from model_parts import EXPERTS, EXPERTS_USED, FEED, SIGMOID, SQRT_SOFTPLUS


@dataclass
class Latent:
    heads: int
    plain: int  # dims of a head that do not rotate
    rotary: int
    value: int
    query_rank: int
    rank: int


def qwen4exp(model):
    """A gated delta net on even layers; on odd ones a budget of tokens over pooled groups of four."""
    heads, kv_heads, dim = model.sizes((8, 2, 128), (24, 2, 256))
    streams, stream_rank, state, key_heads, value_heads, window, width = 2, 32, 64, 2, 4, 4, model.width
    recurrent = [layer % 2 == 0 for layer in range(model.layers)]
    model.numbers({"attention.head_count": heads, "attention.head_count_kv": kv_heads, "attention.key_length": dim,
                   "attention.value_length": dim, "rope.dimension_count": 64, "ssm.conv_kernel": window,
                   "ssm.inner_size": state * value_heads, "ssm.state_size": state, "ssm.time_step_rank": value_heads,
                   "ssm.group_count": key_heads, "hyper_connection.count": streams,
                   "hyper_connection.low_rank": stream_rank, "full_attention_interval": 2, "expert_count": EXPERTS,
                   "expert_used_count": EXPERTS_USED, "expert_feed_forward_length": FEED,
                   "expert_shared_feed_forward_length": FEED})
    model.real("rope.freq_base", 1e7)
    model.list("rope.dimension_sections", [11, 11, 10, 0])
    model.list("attention.compress_ratios", [0 if without else 4 for without in recurrent])
    model.indexer_keys(4, 128, 2048)
    model.ends(norm=False)

    def streams_of(name):
        model.ones(name + "_norm.weight", width * streams)
        model.normal(name + "_down.weight", streams * width, stream_rank)
        model.normal(name + "_up.weight", stream_rank, streams * width)

    streams_of("output_hc")
    for layer in range(model.layers):
        name = f"blk.{layer}."
        for half in ("attn", "ffn"):
            streams_of(f"{name}hc_{half}")
            model.normal(f"{name}hc_{half}_inject.weight", streams * width, streams)
        if recurrent[layer]:
            keys, values = state * key_heads, state * value_heads
            model.normal(name + "attn_qkv.weight", width, 2 * keys + values)
            model.normal(name + "attn_gate.weight", width, values)
            model.normal(name + "ssm_conv1d.weight", window, 2 * keys + values)
            model.normal(name + "ssm_dt.bias", value_heads)
            model.given(name + "ssm_a", -np.exp(model.random.standard_normal(value_heads)))
            model.normal(name + "ssm_beta.weight", width, value_heads)
            model.normal(name + "ssm_alpha.weight", width, value_heads)
            model.ones(name + "ssm_norm.weight", state)
            model.normal(name + "ssm_out.weight", values, width)
        else:
            model.plain_attention(layer, heads, kv_heads, dim, gated=True)
            model.plain_indexer(layer, 4, 128)
        model.normal(name + "ffn_gate_inp.weight", width, EXPERTS)
        model.normal(name + "ffn_gate_inp_shexp.weight", width)
        model.expert_weights(layer)


def latents(model, real_index_heads, *, plain=None):
    """What four families share: (latent, index heads)."""
    latent = Latent(*model.sizes((4, 64, 64, 64, 64, 128), (16, 128, 64, 128, 128, 512)))
    if plain is not None:
        latent.plain = latent.value = model.sizes(*plain)
    index_heads = model.sizes(4, real_index_heads)
    model.latent_keys(latent)
    model.indexer_keys(index_heads, 128, 2048)
    model.expert_keys(SIGMOID, dense=1)
    return latent, index_heads


def latent_layers(model, latent, index_heads, selects):
    model.ends()
    for layer in range(model.layers):
        model.latent_attention(layer, latent)
        model.experts(layer, dense=1)
        if selects[layer]:
            model.indexer(layer, index_heads, 128, latent.query_rank)


def deepseek32(model):
    """A budget of tokens in every layer."""
    latent_layers(model, *latents(model, 64), [True] * model.layers)


def glm_dsa(model):
    """Even layers select, odd ones use the row of the layer before."""
    selects = [layer % 2 == 0 for layer in range(model.layers)]
    latent, index_heads = latents(model, 32, plain=(64, 192))
    model.list("attention.indexer.types", [int(value) for value in selects])
    latent_layers(model, latent, index_heads, selects)


def dots3note(model):
    """Even layers select, odd ones attend to a window."""
    selects = [layer % 2 == 0 for layer in range(model.layers)]
    latent, index_heads = latents(model, 64)
    model.numbers({"attention.kv_lora_rank_swa": latent.rank, "rope.dimension_count_swa": latent.rotary,
                   "attention.key_length_mla_swa": latent.plain + latent.rotary, "attention.sliding_window": 512,
                   "attention.value_length_mla_swa": latent.value,
                   "attention.key_length_swa": latent.rank + latent.rotary, "attention.value_length_swa": latent.rank})
    model.real("rope.freq_base_swa", 1e4)
    model.list("attention.sliding_window_pattern", [not value for value in selects])
    model.list("attention.indexer.types", selects)
    latent_layers(model, latent, index_heads, selects)
    for layer in range(model.layers):
        model.ones(f"blk.{layer}.attn_k_norm.weight", latent.rotary)
        model.normal(f"blk.{layer}.attn_gate.weight", model.width, latent.heads)


def hy_v4(model):
    """As glm-dsa, with sinks and four streams."""
    streams, selects = 4, [layer % 2 == 0 for layer in range(model.layers)]
    latent, index_heads = latents(model, 16, plain=(64, 192))
    model.list("attention.indexer.types", [int(value) for value in selects])
    model.numbers({"hyper_connection.count": streams})
    model.real("hyper_connection.epsilon", 1e-6)
    model.real("hyper_connection.magnitude", 1.0)
    model.mixed_output(streams)
    latent_layers(model, latent, index_heads, selects)
    for layer in range(model.layers):
        model.normal(f"blk.{layer}.attn_sinks.weight", latent.heads, scale=1.0)
        model.normal(f"blk.{layer}.attn_gate.weight", model.width, latent.heads * latent.value)
        model.mixed_streams(layer, streams, 2 * streams, 2)


def minimax_m3(model):
    """A budget of blocks for each kv head; the first layer is dense."""
    heads, kv_heads, dim, index_dim, rotary = model.sizes((8, 2, 64, 64, 32), (64, 4, 128, 128, 64))
    model.numbers({"attention.head_count": heads, "attention.head_count_kv": kv_heads, "attention.key_length": dim,
                   "attention.value_length": dim, "rope.dimension_count": rotary, "attention.indexer.block_size": 128,
                   "attention.indexer.local_blocks": 1})
    model.real("rope.freq_base", 5e6)
    model.indexer_keys(kv_heads, index_dim, 16)
    model.expert_keys(SIGMOID, dense=1)
    model.ends()
    for layer in range(model.layers):
        model.ones(f"blk.{layer}.attn_norm.weight", model.width)
        model.plain_attention(layer, heads, kv_heads, dim)
        model.experts(layer, dense=1)
        if layer >= 1:
            model.plain_indexer(layer, kv_heads, index_dim)


def glm5_next(model):
    """Linear attention on odd layers; on even ones latents without rotation, and a budget over pools of 16."""
    latent = Latent(*model.sizes((4, 64, 0, 64, 64, 128), (16, 256, 0, 256, 128, 512)))
    index_heads, delta_dim, streams, pool, width = model.sizes(4, 32), 64, 4, 16, model.width
    recurrent = [layer % 2 == 1 for layer in range(model.layers)]
    model.latent_keys(latent, [0 if without else 1 for without in recurrent])
    model.indexer_keys(index_heads, 128, 2048)
    model.numbers({"attention.indexer.kpool": pool, "ssm.conv_kernel": 4, "kda.head_dim": delta_dim,
                   "hyper_connection.count": streams, "hyper_connection.sinkhorn_iterations": 4})
    model.truth("attention.indexer.kpool_select_tail", True)
    model.real("attention.layer_norm_epsilon", 1e-6)
    model.real("hyper_connection.epsilon", 1e-6)
    model.real("swiglu_clamp_exp", 10.0)
    model.expert_keys(SIGMOID, dense=1)
    model.ends()
    for layer in range(model.layers):
        name = f"blk.{layer}."
        model.mixed_streams(layer, streams, (2 + streams) * streams, 3)
        if recurrent[layer]:
            inner = delta_dim * latent.heads
            model.ones(name + "attn_norm.weight", width)
            for part in "qkv":
                model.normal(f"{name}ssm_conv1d_{part}.weight", 4, 1, inner)
                model.normal(f"{name}attn_{part}.weight", width, inner)
            for part, shape in {"f_a": (width, delta_dim), "f_b": (delta_dim, inner), "beta": (width, latent.heads),
                                "g_a": (width, delta_dim), "g_b": (delta_dim, inner)}.items():
                model.normal(f"{name}ssm_{part}.weight", *shape)
            model.given(name + "ssm_a", -np.exp(model.random.standard_normal(latent.heads)))
            model.normal(name + "ssm_dt.bias", inner)
            model.ones(name + "ssm_norm.weight", delta_dim)
            model.normal(name + "attn_output.weight", inner, width)
        else:
            model.latent_attention(layer, latent)
            model.indexer(layer, index_heads, 128, latent.query_rank)
            model.normal(name + "indexer_compressor_gate.weight", width, 128)
            model.normal(name + "indexer_compressor_ape.weight", 128, pool)
        model.experts(layer, dense=1)


def deepseek4(model):
    """A window beside compressed entries: of 4 tokens with a budget, of 128 without, or none."""
    heads, dim, rotary, query_rank, groups, output_rank, index_heads = model.sizes(
        (8, 128, 64, 64, 2, 32, 4), (16, 512, 64, 128, 4, 64, 64))
    streams, width = 4, model.width
    ratios = [(0, 4, 128, 4)[layer % 4] for layer in range(model.layers)]
    model.numbers({"attention.head_count": heads, "attention.head_count_kv": 1, "attention.key_length": dim,
                   "attention.value_length": dim, "attention.q_lora_rank": query_rank, "rope.dimension_count": rotary,
                   "attention.sliding_window": 128, "attention.output_group_count": groups, "hash_layer_count": 0,
                   "attention.output_lora_rank": output_rank, "hyper_connection.count": streams,
                   "hyper_connection.sinkhorn_iterations": 4})
    model.real("rope.freq_base", 1e4)
    model.real("attention.compress_rope_freq_base", 1.6e5)
    model.real("hyper_connection.epsilon", 1e-6)
    model.real("swiglu_clamp_exp", 10.0)
    model.list("attention.compress_ratios", ratios)
    model.indexer_keys(index_heads, 128, 512)
    model.expert_keys(SQRT_SOFTPLUS)
    model.ends()
    model.mixed_output(streams)

    def compressor(name, values, ratio):
        model.normal(name + "_kv.weight", width, values)
        model.normal(name + "_gate.weight", width, values)
        model.normal(name + "_ape.weight", values, ratio)

    for layer, ratio in enumerate(ratios):
        name = f"blk.{layer}."
        model.ones(name + "attn_norm.weight", width)
        model.normal(name + "attn_sinks.weight", heads, scale=1.0)
        model.normal(name + "attn_q_a.weight", width, query_rank)
        model.ones(name + "attn_q_a_norm.weight", query_rank)
        model.normal(name + "attn_q_b.weight", query_rank, heads * dim)
        model.normal(name + "attn_kv.weight", width, dim)
        model.ones(name + "attn_kv_a_norm.weight", dim)
        model.normal(name + "attn_output_a.weight", heads * dim // groups, output_rank * groups)
        model.normal(name + "attn_output_b.weight", groups * output_rank, width)
        model.mixed_streams(layer, streams, (2 + streams) * streams, 3)
        if ratio:
            compressor(name + "attn_compressor", dim * (2 if ratio == 4 else 1), ratio)
            model.ones(name + "attn_compressor_norm.weight", dim)
        if ratio == 4:
            model.normal(name + "indexer.proj.weight", width, index_heads)
            model.indexed(name + "indexer.attn_q_b.weight", query_rank, index_heads * 128)
            compressor(name + "indexer_compressor", 2 * 128, ratio)
            model.ones(name + "indexer_compressor_norm.weight", 128)
        model.experts(layer)


FAMILIES = {"qwen4exp": qwen4exp, "deepseek32": deepseek32, "glm-dsa": glm_dsa, "dots3note": dots3note, "hy_v4": hy_v4,
            "minimax-m3": minimax_m3, "glm5-next": glm5_next, "deepseek4": deepseek4}
