"""Small random models of every family that has an indexer: a few layers, small budgets, weights that tell tokens
apart."""

import importlib

import torch

# What all seven latent families call alike. Index heads enough that few scores are exactly 0, weights of either sign.
LATENT = dict(
    vocab_size=97, hidden_size=48, intermediate_size=64, moe_intermediate_size=24, num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=3, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, kv_lora_rank=16,
    q_lora_rank=24,
    qk_rope_head_dim=8, v_head_dim=12, qk_nope_head_dim=16, index_topk=16, index_head_dim=16, index_n_heads=4,
    mlp_layer_types=["dense", "sparse"], initializer_range=0.3,
)
SHARED = dict(indexer_types=["full", "shared"])
# name: (class of the model, class of its config, what the config is told)
FAMILIES = {
    "qwen4_exp": ("Qwen4ExpForCausalLM", "Qwen4ExpTextConfig", dict(
        vocab_size=97, hidden_size=48, num_hidden_layers=2, layer_types=["indexed_attention", "linear_attention"],
        num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2,
        linear_num_value_heads=4, moe_intermediate_size=32, shared_expert_intermediate_size=32, num_experts_per_tok=2,
        num_experts=4,
        hc_count=2, hc_lowrank=16, initializer_range=0.15, indexer_n_heads=4, indexer_kv_heads=1, indexer_head_dim=40,
        indexer_budget=16,
        indexer_compress_ratio=4,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 1.0,
                         "mrope_section": [6, 5, 5],
                         "mrope_interleaved": True})),
    "deepseek_v32": ("DeepseekV32ForCausalLM", "DeepseekV32Config", LATENT),
    "glm_moe_dsa": ("GlmMoeDsaForCausalLM", "GlmMoeDsaConfig", {**LATENT, **SHARED}),
    "hy_v4": ("HYV4ForCausalLM", "HYV4Config", {**LATENT, **SHARED, "learnable_sink_init": 0.5}),
    "hy_v4_vl": ("HYV4VLTextModel", "HYV4VLTextConfig", {
        **LATENT, **SHARED, "learnable_sink_init": -0.5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}}),
    "dots3_note": ("Dots3NoteForCausalLM", "Dots3NoteTextConfig", {
        **LATENT, "layer_types": ["indexed_attention", "sliding_attention"], "sliding_window": 8,
        "shared_experts_intermediate_size": 24}),
    "axk2": ("AXK2ForCausalLM", "AXK2Config", {**LATENT, "gated_norm_rank": 4}),
    "mistral_large4": ("MistralLarge4TextModel", "MistralLarge4TextConfig", {
        **{k: v for k, v in LATENT.items() if k != "q_lora_rank"}, "num_hidden_layers": 3,
        "mlp_layer_types": ["dense", "sparse", "dense"],
        "kv_source_layers": [0, 0, 0], "indexer_types": ["full", "shared", "full"], "no_rope_layers": [1, 1, 1]}),
    "glm5_next": ("Glm5NextTextModel", "Glm5NextTextConfig", {
        **LATENT, "qk_rope_head_dim": 0, "index_kpool": 4,
        "layer_types": ["deepseek_sparse_attention", "linear_attention"],
        "indexer_types": ["full", "full"], "linear_head_dim": 16, "linear_num_heads": 2}),
    "minimax_m3_vl": ("MiniMaxM3VLForCausalLM", "MiniMaxM3VLTextConfig", dict(
        vocab_size=97, hidden_size=48, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16,
        num_experts_per_tok=2, num_local_experts=4, dense_intermediate_size=64, shared_intermediate_size=32,
        initializer_range=0.3,
        index_n_heads=2, index_head_dim=16, index_block_size=8, index_topk_blocks=3, index_local_blocks=1,
        layer_types=["minimax_m3_sparse", "full_attention"],
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0})),
    "deepseek_v4": ("DeepseekV4ForCausalLM", "DeepseekV4Config", dict(
        vocab_size=97, hidden_size=48, moe_intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        head_dim=16, q_lora_rank=24,
        num_experts_per_tok=2, n_routed_experts=4,
        layer_types=["compressed_sparse_attention", "heavily_compressed_attention"],
        mlp_layer_types=["moe", "moe"], compress_rates={"compressed_sparse_attention": 4,
                                                        "heavily_compressed_attention": 16},
        partial_rotary_factor=0.5, sliding_window=8, o_groups=2, o_lora_rank=12, index_n_heads=4, index_head_dim=16,
        index_topk=5,
        initializer_range=0.3)),
}
LATENT_FAMILIES = ("deepseek_v32", "glm_moe_dsa", "hy_v4", "hy_v4_vl", "dots3_note", "axk2", "mistral_large4")


def make_model(family, dtype=torch.float32, implementation="eager", seed=0, **changes):
    torch.manual_seed(seed)
    model_class, config_class, options = FAMILIES[family]
    package = f"transformers.models.{family}"
    config = getattr(importlib.import_module(f"{package}.configuration_{family}"),
                     config_class)(**{**options, "pad_token_id": 0, **changes})
    config._attn_implementation = implementation
    model = getattr(importlib.import_module(f"{package}.modeling_{family}"), model_class)(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 and "norm" in name or "kpool" in name or "position_bias" in name:
                parameter.add_(0.3 * torch.randn(parameter.shape))
    return model.to(dtype).requires_grad_(False)


def draw_ids(batch_size, tokens, seed=1):
    return torch.randint(1, 97, (batch_size, tokens), generator=torch.Generator().manual_seed(seed))
