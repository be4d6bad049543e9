"""What the families' models have in common: the file, its keys, random tensors, experts, latents, the indexer."""

import gguf
import numpy as np

VOCABULARY, FEED, EXPERTS, EXPERTS_USED = 512, 64, 4, 2
SOFTMAX, SIGMOID, SQRT_SOFTPLUS = 1, 2, 4  # how experts are weighed

# Projections that --weights quantises, by the first word of their names; what llama.cpp wants in F32 is left.
QUANTISED = {"attn", "q", "k", "proj", "ffn", "output"}
NEVER_QUANTISED = ("compressor", "gate_inp", "indexer.proj", "hc_", "attn_k_b", "attn_v_b", "conv1d")


class Model:
    """Shapes are in ggml's order: the contiguous dim first."""

    def __init__(self, arguments):
        self.family, self.layers, self.width = arguments.family, arguments.layers, arguments.width
        self.tiny, self.tie, self.budget = arguments.tiny, arguments.tie, arguments.budget
        self.kind = gguf.GGMLQuantizationType[arguments.weights]
        self.random = np.random.default_rng(arguments.seed)
        self.file = gguf.GGUFWriter(arguments.out, arguments.family)
        self.file.add_name("random")
        self.file.add_tokenizer_model("no_vocab")
        self.numbers({"context_length": 262144, "embedding_length": self.width, "block_count": self.layers,
                      "feed_forward_length": FEED, "vocab_size": VOCABULARY})
        self.real("attention.layer_norm_rms_epsilon", 1e-6)

    def write(self):
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file()
        self.file.close()

    def sizes(self, tiny, real):
        return tiny if self.tiny else real

    def numbers(self, values):
        for key, value in values.items():
            self.file.add_uint32(f"{self.family}.{key}", value)

    def real(self, key, value):
        self.file.add_float32(f"{self.family}.{key}", value)

    def truth(self, key, value):
        self.file.add_bool(f"{self.family}.{key}", value)

    def list(self, key, values):
        self.file.add_array(f"{self.family}.{key}", list(values))

    def given(self, name, values):
        self.file.add_tensor(name, np.ascontiguousarray(values, np.float32))

    def ones(self, name, *shape):
        self.given(name, np.ones(shape[::-1]))

    def zeros(self, name, *shape):
        self.given(name, np.zeros(shape[::-1]))

    def normal(self, name, *shape, scale=None):
        values = (self.random.standard_normal(shape[::-1]) * (scale or shape[0] ** -0.5)).astype(np.float32)
        kind = name.split(".")[-2].split("_")[0]
        if (self.kind == gguf.GGMLQuantizationType.F32 or len(shape) == 1 or shape[0] % 32 or kind not in QUANTISED or
                any(part in name for part in NEVER_QUANTISED)):
            self.given(name, values)
        else:
            self.file.add_tensor(name, gguf.quants.quantize(values, self.kind), raw_dtype=self.kind)

    def indexed(self, name, *shape):
        """A projection of the indexer: zero where scores shall tie."""
        if self.tie:
            self.zeros(name, *shape)
        else:
            self.normal(name, *shape)

    # Parts.

    def ends(self, norm=True):
        if self.tie:
            self.ones("token_embd.weight", self.width, VOCABULARY)
        else:
            self.normal("token_embd.weight", self.width, VOCABULARY, scale=1.0)
        self.normal("output.weight", self.width, VOCABULARY)
        if norm:
            self.ones("output_norm.weight", self.width)

    def expert_keys(self, gating, dense=0):
        self.numbers({"expert_count": EXPERTS, "expert_used_count": EXPERTS_USED, "expert_feed_forward_length": FEED,
                      "expert_shared_count": 1, "expert_gating_func": gating, "leading_dense_block_count": dense})
        self.real("expert_weights_scale", 1.0)
        self.truth("expert_weights_norm", True)

    def experts(self, layer, dense=0):
        name, width = f"blk.{layer}.ffn_", self.width
        self.ones(name + "norm.weight", width)
        if layer < dense:
            self.normal(name + "gate.weight", width, FEED)
            self.normal(name + "up.weight", width, FEED)
            self.normal(name + "down.weight", FEED, width)
            return
        self.normal(name + "gate_inp.weight", width, EXPERTS)
        self.normal(f"blk.{layer}.exp_probs_b.bias", EXPERTS, scale=0.1)
        self.expert_weights(layer)

    def expert_weights(self, layer):
        name, width = f"blk.{layer}.ffn_", self.width
        self.normal(name + "gate_exps.weight", width, FEED, EXPERTS)
        self.normal(name + "up_exps.weight", width, FEED, EXPERTS)
        self.normal(name + "down_exps.weight", FEED, width, EXPERTS)
        self.normal(name + "gate_shexp.weight", width, FEED)
        self.normal(name + "up_shexp.weight", width, FEED)
        self.normal(name + "down_shexp.weight", FEED, width)

    def indexer_keys(self, heads, dim, budget):
        self.numbers({"attention.indexer.head_count": heads, "attention.indexer.key_length": dim,
                      "attention.indexer.top_k": self.budget or budget})

    def indexer(self, layer, heads, dim, query_rank):
        name = f"blk.{layer}.indexer."
        self.indexed(name + "attn_q_b.weight", query_rank, heads * dim)
        self.indexed(name + "attn_k.weight", self.width, dim)
        self.ones(name + "k_norm.weight", dim)
        self.zeros(name + "k_norm.bias", dim)
        self.normal(name + "proj.weight", self.width, heads)

    def plain_attention(self, layer, heads, kv_heads, dim, gated=False):
        name = f"blk.{layer}.attn_"
        self.normal(name + "q.weight", self.width, dim * heads * (2 if gated else 1))
        self.normal(name + "k.weight", self.width, dim * kv_heads)
        self.normal(name + "v.weight", self.width, dim * kv_heads)
        self.normal(name + "output.weight", dim * heads, self.width)
        self.ones(name + "q_norm.weight", dim)
        self.ones(name + "k_norm.weight", dim)

    def plain_indexer(self, layer, heads, dim):
        name = f"blk.{layer}.indexer."
        self.indexed(name + "q_proj.weight", self.width, heads * dim)
        self.indexed(name + "k_proj.weight", self.width, dim)
        self.ones(name + "q_norm.weight", dim)
        self.ones(name + "k_norm.weight", dim)

    def latent_keys(self, latent, kv_heads=1):
        self.numbers({"attention.head_count": latent.heads, "attention.key_length": latent.rank + latent.rotary,
                      "attention.value_length": latent.rank, "attention.key_length_mla": latent.plain + latent.rotary,
                      "attention.value_length_mla": latent.value, "attention.q_lora_rank": latent.query_rank,
                      "attention.kv_lora_rank": latent.rank, "rope.dimension_count": latent.rotary})
        if isinstance(kv_heads, int):
            self.numbers({"attention.head_count_kv": kv_heads})
        else:
            self.list("attention.head_count_kv", kv_heads)
        self.real("rope.freq_base", 1e4)

    def latent_attention(self, layer, latent):
        name, width = f"blk.{layer}.attn_", self.width
        self.ones(name + "norm.weight", width)
        self.ones(name + "q_a_norm.weight", latent.query_rank)
        self.ones(name + "kv_a_norm.weight", latent.rank)
        self.normal(name + "q_a.weight", width, latent.query_rank)
        self.normal(name + "q_b.weight", latent.query_rank, latent.heads * (latent.plain + latent.rotary))
        self.normal(name + "kv_a_mqa.weight", width, latent.rank + latent.rotary)
        self.normal(name + "k_b.weight", latent.plain, latent.rank, latent.heads)
        self.normal(name + "v_b.weight", latent.rank, latent.value, latent.heads)
        self.normal(name + "output.weight", latent.heads * latent.value, width)

    def mixed_streams(self, layer, streams, mix, scales):
        """Of hyper-connections: how a layer's two halves read from and write to the streams."""
        for half in ("attn", "ffn"):
            name = f"blk.{layer}.hc_{half}_"
            self.normal(name + "fn.weight", streams * self.width, mix)
            self.normal(name + "base.weight", mix, scale=0.1)
            self.ones(name + "scale.weight", scales)

    def mixed_output(self, streams):
        self.normal("output_hc_fn.weight", streams * self.width, streams)
        self.normal("output_hc_base.weight", streams, scale=0.1)
        self.ones("output_hc_scale.weight", 1)
