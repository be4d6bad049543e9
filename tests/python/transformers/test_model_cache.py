"""DynamicCache's whole meaning under an enabled model, against the eager model given the same rows.

Every comparison has two halves: rows are judged against Transformers' own selection (exact, tie or near), and the
logits against an eager model that attends the very same rows.
"""

import copy

import pytest
import torch
from transformers import DynamicCache

import seriatim.transformers as st
from support_models import INDEXED, Watcher, draw_ids, forced_rows, judge_rows, make_model

BOUND = 2e-4  # on logits of scale 2 to 4, of three layers in f32
TOKENS = 150


@pytest.fixture(scope="module")
def pair():
    """The same weights, eager and enabled; a budget of 16 tokens, so that nearly every row drops something."""
    eager = make_model(budget=16)
    return eager, st.enable(copy.deepcopy(eager))


@pytest.fixture(scope="module")
def sparse_model():
    """Sparse layers alone: Transformers' linear layers lack repeat and select, and crop leaves their recurrent state as
    it is."""
    return st.enable(make_model(layers=[INDEXED, INDEXED], budget=16))


def check_against_eager(pair, watcher, logits, ids, mask=None, queries=None):
    """`logits` of all slots of `ids`, made by any calls that `watcher` saw."""
    eager = pair[0]
    with forced_rows(eager, watcher.rows):
        expected = eager(ids, attention_mask=mask).logits
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    assert int(real.sum()) > 100
    difference = (logits - expected).abs().amax(-1)[real]
    assert float(difference.max()) < BOUND and float(expected[real].abs().max()) > 1
    for sequence in range(len(ids)):
        first = 0 if mask is None else int(mask[sequence].argmax())
        last = ids.shape[1] if mask is None else first + int(mask[sequence].sum())
        counts, _ = judge_rows(eager, watcher, first, range(first, last), torch.float32, sequence)
        assert counts["wrong"] == 0 and counts["exact"] > 0.9 * sum(counts.values()), counts


def run(model, ids, sizes, mask=None, cache=None):
    """Feeds `ids` in chunks of `sizes`, the last size repeated; all logits."""
    cache = DynamicCache(config=model.config) if cache is None else cache
    logits, at = [], 0
    sizes = list(sizes)
    while at < ids.shape[1]:
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        seen = None if mask is None else mask[:, : at + size]
        logits.append(model(ids[:, at : at + size], attention_mask=seen, cache=cache).logits)
        at += size
    return torch.cat(logits, dim=1), cache


@torch.no_grad()
@pytest.mark.parametrize("sizes", [[TOKENS], [1], [37, 1, 1, 50, 3], [7]], ids=str)
def test_prefill_chunks_and_decode(pair, sizes):
    model, ids, watcher = pair[1], draw_ids(2, TOKENS), Watcher()
    with st.watching(model, watcher), watcher.on_hidden_states(model):
        logits, _ = run(model, ids, sizes)
    check_against_eager(pair, watcher, logits, ids)


@torch.no_grad()
def test_without_a_cache(pair):
    model, ids, watcher = pair[1], draw_ids(2, TOKENS), Watcher()
    with st.watching(model, watcher), watcher.on_hidden_states(model):
        logits = model(ids, use_cache=False).logits
    check_against_eager(pair, watcher, logits, ids)


def left_padded(lengths):
    total = max(lengths)
    ids, mask = draw_ids(len(lengths), total, seed=5), torch.ones(len(lengths), total, dtype=torch.long)
    for row, length in enumerate(lengths):
        mask[row, : total - length] = 0
        ids[row, : total - length] = 0
    return ids, mask


@torch.no_grad()
@pytest.mark.parametrize("sizes", [[TOKENS], [100, 1]], ids=str)
def test_left_padding_and_unequal_lengths(pair, sizes):
    model, watcher = pair[1], Watcher()
    ids, mask = left_padded([TOKENS, TOKENS - 9, 61])
    with st.watching(model, watcher), watcher.on_hidden_states(model):
        logits, _ = run(model, ids, sizes, mask)
    check_against_eager(pair, watcher, logits, ids, mask)


@torch.no_grad()
def test_right_padding_in_one_call_and_its_continuation(pair):
    model, watcher, ids = pair[1], Watcher(), draw_ids(2, TOKENS)
    mask = torch.ones_like(ids)
    mask[1, 90:] = 0
    cache = DynamicCache(config=model.config)
    with st.watching(model, watcher), watcher.on_hidden_states(model):
        logits = model(ids, attention_mask=mask, cache=cache).logits
    check_against_eager(pair, watcher, logits, ids, mask)
    with pytest.raises(st.Unsupported, match="row 1 has a hole at slot 90"):
        model(ids[:, :1], attention_mask=torch.cat([mask, torch.ones(2, 1, dtype=torch.long)], 1), cache=cache)


@torch.no_grad()
def test_crop_and_another_continuation_equal_a_cache_that_never_saw_the_rest(sparse_model):
    model = sparse_model
    ids, other = draw_ids(2, TOKENS), draw_ids(2, TOKENS, seed=9)
    for kept in (1, 61, 80, 99):
        cache = DynamicCache(config=model.config)
        run(model, ids[:, :kept], [kept], cache=cache)
        run(model, ids[:, kept : kept + 30], [30], cache=cache)
        cache.crop(-30)
        assert cache.get_seq_length() == kept
        cropped, _ = run(model, other[:, :40], [40], cache=cache)
        fresh_cache = DynamicCache(config=model.config)
        run(model, ids[:, :kept], [kept], cache=fresh_cache)
        fresh, _ = run(model, other[:, :40], [40], cache=fresh_cache)
        assert torch.equal(cropped, fresh), kept


@torch.no_grad()
def test_crop_with_a_linear_layer_does_what_it_does_to_eager(pair):
    """Transformers cannot crop a linear layer's recurrent state: it still holds the removed tokens, in either model
    alike."""
    ids, other = draw_ids(2, TOKENS), draw_ids(2, TOKENS, seed=9)

    def continued(model, put_back):
        cache = DynamicCache(config=model.config)
        cache.activate_past_recording()
        run(model, ids[:, :61], [61], cache=cache)
        before = copy.deepcopy(cache.layers[1].recurrent_states)
        run(model, ids[:, 61:91], [30], cache=cache)
        assert not cache.is_croppable
        cache.crop(-30)
        if put_back:
            cache.layers[1].recurrent_states = before
        return run(model, other[:, :40], [40], cache=cache)[0]

    for model in pair:
        fresh_cache = DynamicCache(config=model.config)
        run(model, ids[:, :61], [61], cache=fresh_cache)
        fresh, _ = run(model, other[:, :40], [40], cache=fresh_cache)
        assert (continued(model, put_back=True) - fresh).abs().max() < 1e-5
        assert (continued(model, put_back=False) - fresh).abs().max() > 0.1
    assert (continued(pair[0], put_back=False) - continued(pair[1], put_back=False)).abs().max() < BOUND


@torch.no_grad()
def test_a_crop_that_a_linear_layer_refuses_half_way_is_noticed(pair):
    """Without recording Transformers refuses, when the layers before the linear one are cropped already."""
    model, ids = pair[1], draw_ids(2, 90)
    _, cache = run(model, ids, [90])
    with pytest.raises(RuntimeError, match="activate_past_recording"):
        cache.crop(-30)
    with pytest.raises(st.Unsupported, match=r"its layers hold \[60, 90\] tokens"):
        model(ids[:, :1], cache=cache)


@torch.no_grad()
@pytest.mark.parametrize("operation, rows", [
    (lambda cache: cache.reorder_cache(torch.tensor([2, 0, 0])), [2, 0, 0]),
    (lambda cache: cache.batch_repeat_interleave(2), [0, 0, 1, 1, 2, 2]),
    (lambda cache: cache.batch_select_indices(torch.tensor([1])), [1]),
], ids=["reorder", "repeat", "select"])
def test_operations_on_the_batch(sparse_model, operation, rows):
    model = sparse_model
    ids, mask = left_padded([100, 91, 61])
    after = draw_ids(3, 20, seed=11)[: len(set(rows)) if len(rows) < 3 else 3].repeat(2, 1)[: len(rows)]
    cache = DynamicCache(config=model.config)
    run(model, ids, [100], mask, cache)
    operation(cache)
    mask = torch.cat([mask[rows], torch.ones(len(rows), 20, dtype=torch.long)], 1)
    watcher, whole = Watcher(), torch.cat([ids[rows], after], 1)
    with st.watching(model, watcher):
        logits = [model(after[:, at : at + 5], attention_mask=mask[:, : 105 + at], cache=cache).logits
                  for at in range(0, 20, 5)]
    logits = torch.cat(logits, 1)
    expected_watcher = Watcher()
    with st.watching(model, expected_watcher):
        expected, _ = run(model, whole, [120], mask)
    # The first layer's inputs are the same numbers but for the rounding of projections; a later row may meet a tie.
    assert (watcher.rows[0] == expected_watcher.rows[0][:, 100:]).all(-1).float().mean() > 0.95
    assert ((logits - expected[:, 100:]).abs().amax(-1) < BOUND).float().mean() > 0.9


@torch.no_grad()
def test_a_cache_changes_hands_between_eager_and_enabled(pair):
    eager, model, ids = pair[0], pair[1], draw_ids(1, 120)
    whole = model(ids).logits
    for first, second in ((eager, model), (model, eager)):
        cache = DynamicCache(config=model.config)
        first(ids[:, :70], cache=cache)
        second(ids[:, 70:90], cache=cache)
        logits = first(ids[:, 90:], cache=cache).logits
        assert cache.get_seq_length() == 120
        close = (logits - whole[:, 90:]).abs().amax(-1) < BOUND
        assert close.float().mean() > 0.9  # a row in ten may differ by a tie


@torch.no_grad()
def test_copies_of_a_cache_go_different_ways(pair):
    model, ids = pair[1], draw_ids(1, 90)
    cache = DynamicCache(config=model.config)
    run(model, ids[:, :60], [60], cache=cache)
    deep = copy.deepcopy(cache)
    shallow = copy.copy(cache)
    shallow.layers = [copy.copy(layer) if type(layer).__name__ == "SeriatimIndexedLayer" else copy.deepcopy(layer)
                      for layer in cache.layers]
    expected, _ = run(model, ids[:, 60:], [30], cache=copy.deepcopy(cache))
    run(model, draw_ids(1, 30, seed=8), [30], cache=cache)
    for other in (deep, shallow):
        assert torch.equal(run(model, ids[:, 60:], [30], cache=other)[0], expected)


@torch.no_grad()
def test_reset_starts_over(pair):
    model, ids = pair[1], draw_ids(2, 80)
    expected, cache = run(model, ids, [80])
    cache.reset()
    assert torch.equal(run(model, ids, [80], cache=cache)[0], expected)


@torch.no_grad()
@pytest.mark.parametrize("how", [
    dict(do_sample=False), dict(do_sample=True, top_k=20), dict(num_beams=3), dict(num_beams=2, num_return_sequences=2),
], ids=["greedy", "sampling", "beams", "two beams kept"])
def test_generate(pair, how):
    eager, model = pair
    ids, mask = left_padded([70, 61])
    answers = []
    for one in (eager, model, model):
        torch.manual_seed(3)
        answers.append(one.generate(ids, attention_mask=mask, max_new_tokens=30, **how))
    assert torch.equal(answers[1], answers[2])
    assert answers[1].shape == answers[0].shape and answers[1].shape[1] == 100
    assert (answers[1] == answers[0]).float().mean() > 0.95, "more than a tie's worth of tokens differ"


@torch.no_grad()
def test_positions_of_three_axes_rotate_groups_as_the_model_does(pair):
    eager, model = pair
    ids, watcher = draw_ids(1, TOKENS), Watcher()
    positions = torch.arange(TOKENS).repeat(4, 1, 1)
    positions[2, 0, 40:76] = 40 + torch.arange(36) // 6  # an image of 6 x 6 patches at one time
    positions[3, 0, 40:76] = 40 + torch.arange(36) % 6
    positions[1, 0, 40:76] = 40
    positions[1:, 0, 76:] = 46 + torch.arange(TOKENS - 76)
    with st.watching(model, watcher), watcher.on_hidden_states(model):
        logits = model(ids, position_ids=positions).logits
    with forced_rows(eager, watcher.rows):
        expected = eager(ids, position_ids=positions).logits
    assert float((logits - expected).abs().max()) < BOUND
    counts, _ = judge_rows(eager, watcher, 0, range(TOKENS), torch.float32, positions=positions[1:])
    assert counts["wrong"] == 0 and counts["exact"] > 0.9 * TOKENS, counts
