"""What the tests of the families over latents do with a model: run it in chunks, and judge its rows and logits."""

import pytest
import torch
from transformers import DynamicCache

from support_families import MAKERS, draw_ids, forced_rows, text_model_of

TOKENS, BUDGET = 90, 16
LOGITS_BOUND = 2e-4  # f32, of logits that reach 4 to 6, after two to six layers

families = pytest.mark.parametrize("family", list(MAKERS))


def left_padded(lengths):
    total = max(lengths)
    ids, mask = draw_ids(len(lengths), total, seed=5), torch.ones(len(lengths), total, dtype=torch.long)
    for row, length in enumerate(lengths):
        mask[row, : total - length] = 0
        ids[row, : total - length] = 0
    return ids, mask


def new_cache(model):
    return DynamicCache(config=text_model_of(model).config)


def run(model, ids, sizes, mask=None, cache=None):
    """Feeds `ids` in chunks of `sizes`, the last size repeated; all logits."""
    cache = new_cache(model) if cache is None else cache
    logits, at, sizes = [], 0, list(sizes)
    while at < ids.shape[1]:
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        seen = None if mask is None else mask[:, : at + size]
        logits.append(model(input_ids=ids[:, at : at + size], attention_mask=seen, cache=cache).logits)
        at += size
    return torch.cat(logits, dim=1), cache


def check_rows(watcher, rows_at_least, most=1.0):
    counts, dropped, worst = watcher.judge()
    assert counts["wrong"] == 0 and sum(counts.values()) >= rows_at_least, counts
    assert counts["exact"] >= 0.97 * sum(counts.values()) and dropped > 0.5 * sum(counts.values()), (counts, dropped)
    return counts, worst


def check_logits(eager, watcher, logits, ids, mask=None):
    with forced_rows(eager, watcher):
        expected = eager(input_ids=ids, attention_mask=mask, use_cache=False).logits
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    assert int(real.sum()) > 100 and float(expected[real].abs().max()) > 1
    assert float((logits - expected).abs().amax(-1)[real].max()) < LOGITS_BOUND
