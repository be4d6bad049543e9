"""Masks, padding and batches of enabled models' caches: what does not fit is refused before anything runs."""

import pytest
import torch

import seriatim.transformers as st
from support_enabled import KINDS, ids_of, indexed_layers, new_cache


def padded(family, left, right):
    ids, mask = ids_of(family, 2, 70), torch.ones(2, 70, dtype=torch.long)
    mask[1, :left] = 0
    mask[1, 70 - right :] = 0
    return ids, mask


@torch.no_grad()
@pytest.mark.parametrize("family", KINDS)
def test_a_mask_left_out_when_a_padded_cache_goes_on_is_refused(enabled, family):
    model = enabled(family)
    for left, right, slot in ((9, 0, "slot 0"), (0, 9, "slot 61")):
        ids, mask = padded(family, left, right)
        cache = new_cache(model)
        model(ids, attention_mask=mask, cache=cache)
        with pytest.raises(st.Unsupported, match=f"attention_mask is left out, and {slot} of row 1"):
            model(ids[:, :1], cache=cache)
        assert cache.get_seq_length() == 70
    ids, mask = padded(family, 9, 0)
    cache = new_cache(model)
    model(ids, attention_mask=mask, cache=cache)
    with pytest.raises(st.Unsupported, match="row 1 lets a slot before 9 through"):
        model(ids[:, :1], attention_mask=torch.ones(2, 71, dtype=torch.long), cache=cache)
    longer = torch.cat([mask, torch.ones(2, 1, dtype=torch.long)], 1)
    logits = model(ids[:, :1], attention_mask=longer, cache=cache).logits
    assert torch.isfinite(logits).all() and cache.get_seq_length() == 71
    unpadded = new_cache(model)
    model(ids, attention_mask=torch.ones(2, 70, dtype=torch.long), cache=unpadded)
    model(ids[:, :1], cache=unpadded)
    assert unpadded.get_seq_length() == 71


@torch.no_grad()
@pytest.mark.parametrize("family", KINDS)
def test_a_call_whose_mask_or_cache_is_of_another_batch_is_refused_before_anything_runs(enabled, family):
    model, ids = enabled(family), ids_of(family, 2, 40)
    cache = new_cache(model)
    model(ids, cache=cache)
    for rows in (1, 3):
        with pytest.raises(st.Unsupported, match=f"cache is of 2 sequences, the call of {rows}"):
            model(ids_of(family, rows, 1), cache=cache)
    with pytest.raises(st.Unsupported, match="attention_mask is of 3 sequences, the call of 2"):
        model(ids[:, :1], attention_mask=torch.ones(3, 41), cache=cache)
    with pytest.raises(st.Unsupported, match="attention_mask is torch.sparse_coo"):
        model(ids[:, :1], attention_mask=torch.ones(2, 41).to_sparse(), cache=cache)
    assert cache.get_seq_length() == 40 and all(layer.keys.shape[:3:2] == (2, 40) for layer in indexed_layers(cache))
    model(ids[:, :1], attention_mask=torch.ones(2, 41), cache=cache)  # and the cache is as it was
    if family == "qwen4_exp":
        for positions in (torch.tensor([[-1], [0]]), torch.tensor([[2**31], [0]]), torch.tensor([[41.0], [41.0]])):
            with pytest.raises(st.Unsupported, match="position_ids"):
                model(ids[:, :1], position_ids=positions, cache=cache)
        assert cache.get_seq_length() == 41


@torch.no_grad()
def test_padding_follows_the_rows_of_the_batch_and_ends_with_a_crop(enabled):
    model = enabled("qwen4_exp")
    ids, mask = padded("qwen4_exp", 9, 0)
    cache = new_cache(model)
    model(ids, attention_mask=mask, cache=cache)
    cache.reorder_cache(torch.tensor([1, 0]))
    with pytest.raises(st.Unsupported, match="slot 0 of row 0"):
        model(ids[:, :1], cache=cache)
    cache.batch_select_indices(torch.tensor([1]))
    model(ids[:1, :1], cache=cache)
    ids, mask = padded("qwen4_exp", 0, 9)
    cache = new_cache(model)
    model(ids, attention_mask=mask, cache=cache)
    cache.crop(-9)
    model(ids[:, :1], cache=cache)
    assert cache.get_seq_length() == 62
