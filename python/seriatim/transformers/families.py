"""The families that select single tokens and attend over latents (DeepSeek's sparse attention and its relatives), as
data.

All of them project index queries, one index key per token and signed head weights, score them by relu, take the best
tokens, and attend over one latent head that all query heads share. What differs stands here; the rest is in `latent`.
"""

from typing import NamedTuple


class Family(NamedTuple):
    name: str  # model_type of the whole model
    text_model: str  # the class of the module whose `layers` are hooked
    rotation: str = "apply_rotary_pos_emb_interleave"  # function of the model's own source that rotates the index
    rotates_trailing: bool = False  # the rotary dims are the last of an index head, not the first
    scales_weights: bool = False  # 1 / sqrt(index_dim) stands in the head weights, not before the relu
    queries_from_hidden: bool = False  # index queries come of the hidden states, not of the attention's query latents


FAMILIES = (
    Family("deepseek_v32", "DeepseekV32Model", rotation="apply_rotary_pos_emb"),
    Family("glm_moe_dsa", "GlmMoeDsaModel"),
    Family("hy_v4", "HYV4Model", rotation="apply_rotary_pos_emb", rotates_trailing=True, scales_weights=True),
    Family("hy_v4_vl", "HYV4VLTextModel", rotation="apply_rotary_pos_emb", rotates_trailing=True, scales_weights=True),
    Family("dots3_note", "Dots3NoteTextModel"),
    Family("axk2", "AXK2Model", rotation="apply_rotary_pos_emb"),
    Family("mistral_large4", "MistralLarge4TextModel", queries_from_hidden=True),
)
NAMES = tuple(family.name for family in FAMILIES)
BY_TEXT_MODEL = {family.text_model: family for family in FAMILIES}
