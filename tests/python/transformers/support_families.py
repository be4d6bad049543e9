"""Small random models of the families that attend over latents, and Transformers' own selection beside each of their
calls."""

import collections
import contextlib
import inspect
import re

import torch
from torch.overrides import TorchFunctionMode
from transformers.models.axk2 import modeling_axk2 as axk2
from transformers.models.deepseek_v32 import modeling_deepseek_v32 as deepseek_v32
from transformers.models.dots3_note import modeling_dots3_note as dots3_note
from transformers.models.glm5_next import modeling_glm5_next as glm5_next
from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa as glm_moe_dsa
from transformers.models.hy_v4 import modeling_hy_v4 as hy_v4
from transformers.models.hy_v4_vl import modeling_hy_v4_vl as hy_v4_vl
from transformers.models.mistral_large4 import modeling_mistral_large4 as mistral_large4

import verdict
from support_shared import indexers_answer

SIZES = dict(
    vocab_size=97, hidden_size=64, intermediate_size=64, moe_intermediate_size=32, num_attention_heads=4,
    num_key_value_heads=4,
    n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, kv_lora_rank=32, q_lora_rank=32,
    qk_rope_head_dim=16,
    qk_nope_head_dim=16, v_head_dim=24, index_head_dim=32, index_n_heads=16, initializer_range=0.15, bos_token_id=1,
    eos_token_id=None, pad_token_id=0,
)
FULL, SHARED, INDEXED, SLIDING, LINEAR = "full", "shared", "indexed_attention", "sliding_attention", "linear_attention"
WINDOW = 24


def without(options, *names):
    return {name: value for name, value in options.items() if name not in names}


def _hy_v4_vl(options):
    vision = dict(hidden_size=32, intermediate_size=32, num_attention_heads=2, num_hidden_layers=1, out_hidden_size=64,
                  max_image_size=64)
    options = dict(num_hidden_layers=4, indexer_types=[FULL, SHARED, FULL, SHARED], **options,
                   rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]})
    return hy_v4_vl.HYV4VLForConditionalGeneration(hy_v4_vl.HYV4VLConfig(text_config=options, vision_config=vision))


def _dots3_note(options):
    sliding = {f"swa_{name}": options[name] for name in ("num_attention_heads", "num_key_value_heads", "q_lora_rank",
                                                         "v_head_dim")}
    sliding.update(swa_kv_lora_rank=48, swa_head_dim=40, swa_qk_nope_head_dim=24)
    return dots3_note.Dots3NoteForCausalLM(dots3_note.Dots3NoteTextConfig(
        num_hidden_layers=4, layer_types=[INDEXED, SLIDING, SLIDING, INDEXED], sliding_window=WINDOW, head_dim=32,
        shared_experts_intermediate_size=32, **options, **sliding))


def _mistral_large4(options):
    """Latents of layer 0 serve layers 1 and 3, those of layer 2, which has no rotation, layer 4. Layer 3 selects by
    itself."""
    vision = dict(model_type="pixtral", hidden_size=32, intermediate_size=32, num_hidden_layers=1,
                  num_attention_heads=2, image_size=28)
    text = dict(model_type="mistral_large4_text", num_hidden_layers=6, no_rope_layers=[1, 1, 0, 1, 0, 1],
                kv_source_layers=[0, 0, 2, 0, 2, 5], indexer_types=[FULL, SHARED, FULL, FULL, SHARED, FULL],
                **without(options, "q_lora_rank"))
    return mistral_large4.MistralLarge4ForConditionalGeneration(
        mistral_large4.MistralLarge4Config(text_config=text, vision_config=vision))


def _glm5_next(options):
    """Pools of 4. No linear layers: those of Transformers know no crop, repeat or select."""
    vision = dict(depth=1, hidden_size=32, num_heads=2, intermediate_size=32, out_hidden_size=64,
                  projection_intermediate_size=32)
    text = dict(num_hidden_layers=3, layer_types=[INDEXED] * 3, indexer_types=[FULL, SHARED, FULL],
                mlp_layer_types=["dense", "sparse", "sparse"],
                index_kpool=4, hc_mult=2, linear_head_dim=16, linear_num_heads=2)
    return glm5_next.Glm5NextForConditionalGeneration(glm5_next.Glm5NextConfig(
        text_config={**text, **without(options, "qk_rope_head_dim")}, vision_config=vision))


MAKERS = {
    "deepseek_v32": lambda options: deepseek_v32.DeepseekV32ForCausalLM(
        deepseek_v32.DeepseekV32Config(num_hidden_layers=2, first_k_dense_replace=1, **options)),
    "glm_moe_dsa": lambda options: glm_moe_dsa.GlmMoeDsaForCausalLM(glm_moe_dsa.GlmMoeDsaConfig(
        num_hidden_layers=4, indexer_types=[FULL, SHARED, SHARED, FULL], first_k_dense_replace=2, **options)),
    "hy_v4": lambda options: hy_v4.HYV4ForCausalLM(hy_v4.HYV4Config(num_hidden_layers=3,
                                                                    indexer_types=[FULL, SHARED, FULL], **options)),
    "hy_v4_vl": _hy_v4_vl,
    "dots3_note": _dots3_note,
    "axk2": lambda options: axk2.AXK2ForCausalLM(axk2.AXK2Config(num_hidden_layers=2, **options)),
    "mistral_large4": _mistral_large4,
    "glm5_next": _glm5_next,
}
# Parameters that are ones, zeros or nothing yet in a new model, and would hide what they do.
SPREAD = re.compile(r"(norm\.(weight|bias)|\.sinks|rotary_emb\.alpha|softmax_scaling\.\w+|kpool_compress_\w+)$")


def make_model(family, budget=16, dtype=torch.float32, seed=0, **changes):
    torch.manual_seed(seed)
    model = MAKERS[family]({**SIZES, "index_topk": budget, **changes}).eval()
    text = text_model_of(model)
    text.config._attn_implementation = "eager"
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if SPREAD.search(name):
                parameter.add_(0.2 * torch.randn_like(parameter))
    return to_dtype(model, dtype).requires_grad_(False)


def to_dtype(model, dtype):
    """As loaded in `dtype`: what a family keeps in f32 stays so."""
    kept = {name for module in model.modules() for name in getattr(module, "_keep_in_fp32_modules_strict", None) or ()}
    stays = re.compile("|".join(rf"(^|\.){re.escape(name)}($|\.)" for name in kept) or "$^")
    for name, parameter in model.named_parameters():
        if not stays.search(name):
            parameter.data = parameter.data.to(dtype)
    return model


def text_model_of(model):
    inner = model.model
    return getattr(inner, "language_model", inner)


def attentions_of(model):
    """All but linear ones."""
    return [layer.self_attn for layer in text_model_of(model).layers if hasattr(layer.self_attn, "kv_b_proj")]


def indexed_of(model):
    return [attention for attention in attentions_of(model) if attention.indexer is not None]


def pool_of(indexer):
    """Tokens of a pool; 0 of an indexer that selects single tokens."""
    return getattr(indexer, "index_kpool", 0)


def draw_ids(batch_size, tokens, seed=1):
    return torch.randint(1, 97, (batch_size, tokens), generator=torch.Generator().manual_seed(seed))


class _Scores(TorchFunctionMode):
    """Keeps what `topk` is asked to choose from."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.topk:
            self.seen = args[0].clone()
        return function(*args, **(kwargs or {}))


class _ShadowLayer:
    """The index keys of one layer, of the selection beside ours, with what an indexer asks of a cache's layer."""

    keys = None

    def get_seq_length(self):
        return 0 if self.keys is None else self.keys.shape[2]


class _Shadow:
    """The cache of the selection beside ours."""

    def __init__(self):
        self.layers = collections.defaultdict(_ShadowLayer)

    def update_indexer(self, keys, layer_idx):
        layer = self.layers[layer_idx]
        held = keys if layer.keys is None else torch.cat([layer.keys[:, 0], keys], dim=1)
        layer.keys = held[:, None]
        return held


class Watcher:
    """Of every layer, over all calls in order of slots: our rows, and Transformers' own choice and scores for the same
    inputs."""

    def __init__(self, model):
        self.model, self.rows, self.theirs, self.outputs, self.seen = model, {}, {}, {}, {}
        self._shadow = _Shadow()

    def __call__(self, seen):
        at = seen.attention.layer_idx
        self.rows.setdefault(at, []).append(seen.rows.clone())
        self.outputs.setdefault(at, []).append(seen.output.clone())
        self.seen[at] = seen

    def rows_of(self, layer):
        return torch.cat(self.rows[layer], dim=1)

    @contextlib.contextmanager
    def beside(self):
        handles = [a.indexer.register_forward_pre_hook(self._select_beside, with_kwargs=True)
                   for a in indexed_of(self.model)]
        try:
            yield self
        finally:
            for handle in handles:
                handle.remove()

    def _select_beside(self, indexer, args, kwargs):
        own = type(indexer).forward
        given = inspect.signature(own).bind(indexer, *args, **kwargs)
        runs = indexer.seriatim_attention().seriatim_hook.call.runs
        given.arguments["cache"] = self._shadow
        if not pool_of(indexer):
            given.arguments["attention_mask"] = self._dense_mask(runs, indexer.layer_idx,
                                                                 given.arguments["hidden_states"].shape[1])
        with _Scores() as scores:
            indices = own(*given.args, **given.kwargs)
        self.theirs.setdefault(indexer.layer_idx, []).append((runs, indices, scores.seen))

    def _dense_mask(self, runs, layer, queries):
        slots = queries + self._shadow.layers[layer].get_seq_length()
        at = torch.arange(slots)
        query = at[slots - queries :, None]
        first, last = (torch.tensor(places)[:, None, None] for places in runs)
        return (at >= first) & (at <= query) & (at < last) & (query < last) & (query >= first)

    def judge(self):
        """Counts of exact, tie, near and wrong over all rows, how many drop tokens, and the largest margin."""
        counts, dropped, worst = {"exact": 0, "tie": 0, "near": 0, "wrong": 0}, 0, 0.0
        for attention in indexed_of(self.model):
            layer, tokens = attention.layer_idx, pool_of(attention.indexer) or 1
            keep, slots = attention.indexer.index_topk // tokens, 0
            for (runs, indices, scores), rows in zip(self.theirs[layer], self.rows[layer], strict=True):
                slots += rows.shape[1]
                for b, first in enumerate(runs.first):
                    for q in range(rows.shape[1]):
                        slot = slots - rows.shape[1] + q
                        ours = rows[b, q][rows[b, q] >= 0].numpy()
                        if not first <= slot < runs.last[b]:
                            assert not len(ours)
                            continue
                        closed = (slot + 1 - first) // tokens
                        visible = scores[b, q, first : slot + 1] if tokens == 1 else scores[b, q, :closed]
                        theirs = indices[b, q].sort().values
                        theirs = theirs[(theirs >= first) & (theirs <= slot)].numpy()
                        cut = visible.topk(min(closed, keep)).values[-1].item() if closed else 0.0
                        found = verdict.judge(theirs, ours, visible.numpy(), cut, first, tokens,
                                              verdict.NEAR_MARGIN["F32"])
                        counts[found.kind] += 1
                        dropped += len(ours) <= slot - first
                        if found.kind != "exact":
                            worst = max(worst, found.margin)
        return counts, dropped, worst


@contextlib.contextmanager
def forced_rows(model, watcher):
    """An eager model whose indexers answer the rows that `watcher` saw."""

    def answer(indexer, *args, **kwargs):
        rows = watcher.rows_of(indexer.layer_idx)
        return torch.where(rows < 0, rows[..., :1].clamp(min=0), rows)

    with indexers_answer(indexed_of(model), answer):
        yield model
