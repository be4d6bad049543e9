"""Runs the QSA attention layer of Transformers on random input and keeps what it was given and what it answered.

The layer is used as it is. Everything is read through module hooks and a registered attention function; no forward
is replaced.
"""

from dataclasses import dataclass, field

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import create_causal_mask, eager_mask
from transformers.models.qwen4_exp import modeling_qwen4_exp as qwen4
from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig

GROUP_TOKENS = 4
BUDGET_TOKENS = 2048
INDEX_ROTARY_DIM = 64
ROPE_THETA = 10_000_000.0
MROPE_SECTION = [11, 11, 10]
HIDDEN_SIZE = 64
ATTENTION_NAME = "seriatim_recorder"

# Under a name without a mask function the layer would get no mask at all.
AttentionMaskInterface.register(ATTENTION_NAME, eager_mask)


@dataclass
class Recording:
    """What one forward pass showed; batch dimension removed, in the layer's own dtype."""

    seen: dict = field(default_factory=dict)

    def record(self, name, tensor):
        assert name not in self.seen, f"{name} was seen twice: more than one pass was recorded"
        self.seen[name] = tensor.detach()[0]


def make_config(recipe, head_dim):
    config = Qwen4ExpTextConfig(
        hidden_size=HIDDEN_SIZE,
        num_hidden_layers=1,
        layer_types=["indexed_attention"],
        num_attention_heads=recipe.query_heads,
        num_key_value_heads=recipe.kv_heads,
        head_dim=head_dim,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": ROPE_THETA,
            "partial_rotary_factor": 1.0,
            "mrope_section": MROPE_SECTION,
            "mrope_interleaved": True,
        },
        indexer_n_heads=recipe.index_heads,
        indexer_kv_heads=1,
        indexer_head_dim=recipe.index_dim,
        indexer_budget=BUDGET_TOKENS,
        indexer_compress_ratio=GROUP_TOKENS,
    )
    config._attn_implementation = ATTENTION_NAME
    return config


def draw_weights(layer, generator):
    """Projections keep the scale of their input; the norms' w spread around 0.3 so that 1 + w matters."""
    with torch.no_grad():
        for name, parameter in sorted(layer.named_parameters()):
            draw = torch.randn(parameter.shape, generator=generator)
            is_norm = parameter.ndim == 1
            parameter.copy_(0.3 + 0.3 * draw if is_norm else draw * parameter.shape[1] ** -0.5)


def draw_hidden_states(slots, generator):
    """Neighbouring tokens resemble each other, as in text; independent tokens would pool to nearly nothing."""
    states = torch.randn(slots, HIDDEN_SIZE, generator=generator)
    for slot in range(1, slots):
        states[slot] = 0.8 * states[slot - 1] + 0.6 * states[slot]
    return states[None]


def watch(layer, recording, index_embeddings):
    """Hooks the layer; `index_embeddings`, if given, replaces the cos and sin that its indexer receives."""
    indexer = layer.indexer

    def on_indexer_input(module, args):
        hidden_states, embeddings, mask, cache = args
        embeddings = index_embeddings or embeddings
        recording.record("index_cos", embeddings[0])
        recording.record("index_sin", embeddings[1])
        return hidden_states, embeddings, mask, cache

    def on_projection(module, args, output):
        recording.record("index_keys", output[..., -indexer.index_head_dim :])

    def on_query_norm(module, args, output):
        recording.record("index_queries_unrotated", output)

    def on_indexer_output(module, args, output):
        recording.record("selected", output[:, 0])

    indexer.register_forward_pre_hook(on_indexer_input)
    indexer.index_qk_proj.register_forward_hook(on_projection)
    indexer.q_layernorm.register_forward_hook(on_query_norm)
    indexer.register_forward_hook(on_indexer_output)

    def attention(module, query, key, value, attention_mask, **kwargs):
        output, weights = qwen4.eager_attention_forward(module, query, key, value, attention_mask, **kwargs)
        recording.record("queries", query.transpose(1, 2))
        recording.record("keys", key.transpose(1, 2))
        recording.record("values", value.transpose(1, 2))
        recording.record("output", output)
        return output, weights

    AttentionInterface.register(ATTENTION_NAME, attention)


@torch.no_grad()
def run_layer(recipe):
    """Gives the Recording of one forward over pad slots and real tokens, and what stays the same over tokens."""
    dtype = getattr(torch, recipe.dtype)
    generator = torch.Generator().manual_seed(recipe.seed)
    config = make_config(recipe, recipe.head_dim)
    layer = qwen4.Qwen4ExpTextAttention(config, layer_idx=0).eval()
    draw_weights(layer, generator)
    layer.to(dtype)

    slots = recipe.left_padding + recipe.real_tokens
    hidden_states = draw_hidden_states(slots, generator).to(dtype)
    # What the model does when it is called without position_ids: positions are slots, so they run on past padding.
    position_ids = torch.arange(slots).view(1, 1, slots).expand(3, 1, slots)
    padding_mask = (torch.arange(slots) >= recipe.left_padding).long()[None]
    mask = create_causal_mask(
        config=config,
        inputs_embeds=hidden_states,
        attention_mask=padding_mask,
        cache=None,
        position_ids=position_ids[0],
        allow_is_causal_skip=False,
    )

    rotary = qwen4.Qwen4ExpTextRotaryEmbedding(config)
    index_rotary = rotary
    if recipe.head_dim != INDEX_ROTARY_DIM:
        index_rotary = qwen4.Qwen4ExpTextRotaryEmbedding(make_config(recipe, INDEX_ROTARY_DIM))
    index_embeddings = index_rotary(hidden_states, position_ids)
    recording = Recording()
    watch(layer, recording, index_embeddings if index_rotary is not rotary else None)
    layer(hidden_states, rotary(hidden_states, position_ids), mask)

    seen = recording.seen
    # The indexer rotates its queries between two modules; the same function on the same input gives the same bits.
    seen["index_queries"] = qwen4.apply_rotary_pos_emb(
        seen.pop("index_queries_unrotated"), cos=seen.pop("index_cos"), sin=seen.pop("index_sin"), unsqueeze_dim=1
    )
    constants = {
        "index_norm_weight": layer.indexer.k_layernorm.weight.float(),
        "inv_freq": index_rotary.inv_freq.float(),
        "norm_eps": layer.indexer.k_layernorm.eps,
        "softmax_scale": layer.scaling,
    }
    return seen, constants
