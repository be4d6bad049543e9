"""The captures that tests/fixtures holds: one recipe each, read by make_capture.py."""

from dataclasses import dataclass

# Every row is dense up to 2,051 visible tokens; 2,052 drops the first group.
AROUND_THE_BUDGET = (1, 2, 3, 4, 5, *range(2047, 2057))


@dataclass(frozen=True)
class Recipe:
    name: str
    dtype: str  # of weights and hidden states
    seed: int
    real_tokens: int
    left_padding: int  # pad slots before the first real token
    visible: tuple  # visible counts of the recorded queries, ascending
    query_heads: int
    kv_heads: int
    head_dim: int
    index_heads: int
    index_dim: int


# The real layer rotates 64 dims in attention and indexer alike, so its attention heads cannot be below 64. Where
# head_dim is smaller, attention gets a narrower rotation of its own; the indexer's stays the real one.
RECIPES = (
    Recipe(
        name="qsa_f32", dtype="float32", seed=20301, real_tokens=2304, left_padding=0,
        visible=(*AROUND_THE_BUDGET, 2100, 2189, 2250, 2302, 2303, 2304),
        query_heads=4, kv_heads=1, head_dim=8, index_heads=4, index_dim=72,
    ),
    Recipe(
        name="qsa_f32_left_padded", dtype="float32", seed=20302, real_tokens=2064, left_padding=37,
        visible=(*AROUND_THE_BUDGET, 2061, 2064),
        query_heads=2, kv_heads=1, head_dim=8, index_heads=2, index_dim=72,
    ),
    Recipe(
        name="qsa_bf16", dtype="bfloat16", seed=20303, real_tokens=4112, left_padding=0,
        visible=(*AROUND_THE_BUDGET, 2500, 3001, 3070, 3583, 4095, 4096, 4097, 4110, 4112),
        query_heads=6, kv_heads=2, head_dim=8, index_heads=4, index_dim=72,
    ),
    Recipe(
        name="qsa_bf16_left_padded", dtype="bfloat16", seed=20304, real_tokens=2064, left_padding=1003,
        visible=(*AROUND_THE_BUDGET, 2062, 2063),
        query_heads=3, kv_heads=1, head_dim=64, index_heads=3, index_dim=72,
    ),
)
