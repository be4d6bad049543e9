"""minimax_m3_vl, held against Transformers: a choice of blocks per kv head against the model's own for the same inputs,
logits and layers against eager ones that attend the same blocks; caches, padding, generate and refusals."""

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache, StaticCache

import seriatim
import seriatim.transformers as st
from support_blocks import BLOCK, BLOCKS, FULL, SPARSE, Watcher, draw_ids, forced_rows, make_model, sparse_of

TOKENS = 90
LOGITS_BOUND = 2e-4  # f32, of logits that reach 3 and more, after three layers
LAYER_BOUND = {torch.float32: 2e-6, torch.bfloat16: 2e-2}  # in parts of a layer's largest output
MOST_OF_EAGER = 1.5


@pytest.fixture(scope="module")
def pair():
    eager = make_model()
    return eager, st.enable(copy.deepcopy(eager))


def new_cache(model):
    return DynamicCache(config=model.config)


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


@torch.no_grad()
@pytest.mark.parametrize("sizes", [[TOKENS], [37, 1, 1, 26, 3, 5], [1]], ids=["prefill", "chunks", "decode"])
def test_rows_and_logits_of_any_chunking(pair, sizes):
    eager, model = pair
    ids, watcher = draw_ids(2, TOKENS), Watcher(model)
    with st.watching(model, watcher), watcher.beside():
        logits, _ = run(model, ids, sizes)
    counts, dropped = watcher.judge()
    assert counts["wrong"] == 0 and counts["exact"] >= 0.97 * sum(counts.values()), counts
    assert sum(counts.values()) == 2 * 2 * 2 * TOKENS and dropped > 0.5 * sum(counts.values())
    with forced_rows(eager, watcher):
        expected = eager(input_ids=ids, use_cache=False).logits
    assert float(expected.abs().max()) > 1
    assert float((logits - expected).abs().max()) < LOGITS_BOUND


@torch.no_grad()
@pytest.mark.parametrize("changes", [
    dict(index_local_blocks=0), dict(index_local_blocks=2, index_block_size=5), dict(index_n_heads=1),
    dict(num_key_value_heads=4, index_n_heads=4, index_block_size=1, index_topk_blocks=20)], ids=str)
def test_rows_of_other_blocks_and_heads(changes):
    model = st.enable(make_model(seed=3, **changes))
    ids, watcher = draw_ids(1, TOKENS), Watcher(model)
    with st.watching(model, watcher), watcher.beside():
        run(model, ids, [50, 1])
    counts, dropped = watcher.judge()
    assert counts["wrong"] == 0 and counts["exact"] >= 0.97 * sum(counts.values()) and dropped > 50, counts


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_layer_answers_as_an_eager_one_over_the_same_rows(dtype):
    eager = make_model(dtype)
    model, exact = st.enable(copy.deepcopy(eager)), copy.deepcopy(eager).double()
    given, answers, watcher, ids = {}, {}, Watcher(model), draw_ids(2, TOKENS)
    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(
            lambda module, args, kwargs: given.__setitem__(module.layer_idx, dict(kwargs)), with_kwargs=True)
        layer.self_attn.register_forward_hook(
            lambda module, args, output: answers.__setitem__(module.layer_idx, output[0].clone()))
    with st.watching(model, watcher):
        model(input_ids=ids, use_cache=False)
    assert len(answers) == 3
    dense = torch.full((TOKENS, TOKENS), torch.finfo(dtype).min, dtype=dtype).triu(1)[None, None]
    with forced_rows(eager, watcher), forced_rows(exact, watcher):
        for at, layer in enumerate(eager.model.layers):
            def answer(attention, wide):
                turn = (lambda x: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x) if wide \
                    else lambda x: x
                arguments = {name: tuple(map(turn, x)) if isinstance(x, tuple) else turn(x)
                             for name, x in given[at].items()}
                arguments["attention_mask"] = turn(dense)
                return attention(**arguments)[0].double()

            expected = answer(exact.model.layers[at].self_attn, True)
            theirs = answer(layer.self_attn, False) - expected
            ours, scale = answers[at].double() - expected, float(expected.abs().max())
            assert float(ours.abs().max()) <= LAYER_BOUND[dtype] * scale
            assert float(ours.square().mean().sqrt()) <= MOST_OF_EAGER * float(theirs.square().mean().sqrt())


@torch.no_grad()
@pytest.mark.parametrize("sizes", [[TOKENS], [70, 1]], ids=["prefill", "decode"])
def test_a_left_padded_sequence_answers_as_alone(pair, sizes):
    """Blocks count from the first token, whatever pads stand before it; the model's own count from slot 0."""
    _, model = pair
    lengths = [TOKENS, TOKENS - 9, 50]
    ids, mask = draw_ids(3, TOKENS, seed=5), torch.ones(3, TOKENS, dtype=torch.long)
    for row, length in enumerate(lengths):
        mask[row, : TOKENS - length], ids[row, : TOKENS - length] = 0, 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    watcher, cache, logits, at = Watcher(model), new_cache(model), [], 0
    with st.watching(model, watcher):
        for size in sizes if sum(sizes) == TOKENS else [sizes[0]] + [1] * (TOKENS - sizes[0]):
            logits.append(model(input_ids=ids[:, at : at + size], attention_mask=mask[:, : at + size],
                                position_ids=positions[:, at : at + size], cache=cache).logits)
            at += size
    together = torch.cat(logits, dim=1)
    for row, length in enumerate(lengths):
        alone = Watcher(model)
        with st.watching(model, alone):
            expected, _ = run(model, ids[row : row + 1, TOKENS - length :], [length])
        for layer in (1, 2):
            rows = watcher.rows_of(layer)[row, TOKENS - length :]
            rows = torch.where(rows < 0, rows, rows - (TOKENS - length))
            assert torch.equal(rows, alone.rows_of(layer)[0])
            assert bool((watcher.rows_of(layer)[row, : TOKENS - length] == -1).all())
        assert float((together[row, TOKENS - length :] - expected[0]).abs().max()) < LOGITS_BOUND


@torch.no_grad()
def test_rows_across_the_released_budget():
    """16 blocks of 128: the first row that drops anything sees 2,049 tokens."""
    model = st.enable(make_model(layers=[SPARSE], index_block_size=128, index_topk_blocks=16))
    ids, watcher = draw_ids(1, 2052), Watcher(model)
    with st.watching(model, watcher), watcher.beside():
        run(model, ids, [2047, 1])
    widths = (watcher.rows_of(0) >= 0).sum(-1)[0, 2046:]
    assert widths.tolist() == [[2047] * 2, [2048] * 2] + [[15 * 128 + n] * 2 for n in (1, 2, 3, 4)]
    counts, _ = watcher.judge()
    assert counts["wrong"] == 0 and counts["exact"] >= 0.99 * sum(counts.values()), counts


@torch.no_grad()
def test_crop_and_another_continuation_equal_a_cache_that_never_saw_the_rest(pair):
    _, model = pair
    ids = draw_ids(2, TOKENS)
    _, short = run(model, ids[:, :41], [41])
    _, cache = run(model, ids[:, :60], [41, 19])
    cache.crop(-19)
    other = draw_ids(2, 30, seed=9)
    ours, _ = run(model, other, [7, 1], cache=cache)
    expected, _ = run(model, other, [7, 1], cache=short)
    assert torch.equal(ours, expected)


@torch.no_grad()
@pytest.mark.parametrize("operation, rows", [
    (lambda cache: cache.batch_repeat_interleave(2), [0, 0, 1, 1]),
    (lambda cache: cache.batch_select_indices(torch.tensor([1])), [1]),
    (lambda cache: cache.reorder_cache(torch.tensor([1, 1])), [1, 1])], ids=["repeat", "select", "reorder"])
def test_operations_on_the_batch(pair, operation, rows):
    _, model = pair
    ids, more = draw_ids(2, 70), draw_ids(2, 20, seed=4)
    _, cache = run(model, ids, [60, 1])
    operation(cache)
    ours, _ = run(model, more[rows], [3, 1], cache=cache)
    _, fresh = run(model, ids[rows], [60, 1])
    expected, _ = run(model, more[rows], [3, 1], cache=fresh)
    assert float((ours - expected).abs().max()) < LOGITS_BOUND


@torch.no_grad()
def test_a_cache_changes_hands_between_eager_and_enabled(pair):
    eager, model = pair
    ids = draw_ids(1, TOKENS)
    expected, _ = run(eager, ids, [40, 1])
    cache = new_cache(eager)
    parts = [run(eager, ids[:, :30], [30], cache=cache)[0], run(model, ids[:, 30:60], [20, 1], cache=cache)[0],
             run(eager, ids[:, 60:], [1], cache=cache)[0]]
    assert float((torch.cat(parts, 1) - expected).abs().max()) < LOGITS_BOUND


@torch.no_grad()
@pytest.mark.parametrize("how", [dict(), dict(num_beams=3)], ids=["greedy", "beams"])
def test_generate(pair, how):
    eager, model = pair
    ids = draw_ids(2, 40)
    options = dict(max_new_tokens=30, do_sample=False, pad_token_id=0, **how)
    assert torch.equal(model.generate(ids, **options), eager.generate(ids, **options))


@torch.no_grad()
def test_a_model_repeats_its_bits_and_a_copied_cache_goes_its_own_way(pair):
    _, model = pair
    ids = draw_ids(2, TOKENS)
    logits, cache = run(model, ids, [60, 1])
    assert torch.equal(logits, run(model, ids, [60, 1])[0])
    copied, more = copy.deepcopy(cache), draw_ids(2, 10, seed=8)
    first, _ = run(model, more, [1], cache=cache)
    run(model, draw_ids(2, 10, seed=7), [1], cache=copied)
    again, _ = run(model, more, [1], cache=run(model, ids, [60, 1])[1])
    assert torch.equal(first, again)


class _Largest(TorchDispatchMode):
    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.elements = max(self.elements, result.numel())
        return result


@torch.no_grad()
def test_no_tensor_of_queries_times_keys_is_made():
    model, tokens = st.enable(make_model(layers=[SPARSE])), 3000
    with _Largest() as largest:
        model(input_ids=draw_ids(1, tokens), logits_to_keep=1)
    assert largest.elements < tokens * tokens / 10


def test_disable_puts_everything_back():
    model = make_model()
    before = [set(vars(module)) for module in model.modules()]
    hooks = [len(module._forward_pre_hooks) for module in model.modules()]
    st.disable(st.enable(model))
    assert [set(vars(module)) for module in model.modules()] == before
    assert [len(module._forward_pre_hooks) for module in model.modules()] == hooks
    assert model.config._attn_implementation == "eager"


@torch.no_grad()
def test_what_is_not_supported_is_refused_by_name_before_any_layer_runs(pair):
    _, model = pair
    ran = []
    handle = model.model.layers[0].register_forward_pre_hook(lambda *_: ran.append(1))
    ids, cache = draw_ids(1, 8), StaticCache(config=model.config, max_cache_len=16)
    refused = {
        "StaticCache": dict(cache=cache), "output_attentions": dict(output_attentions=True),
        "3 axes": dict(attention_mask=torch.ones(1, 8, 8)),
        "a hole": dict(attention_mask=torch.tensor([[1, 1, 0, 1, 1, 1, 1, 1]]))}
    for words, arguments in list(refused.items())[:3]:
        with pytest.raises(st.Unsupported, match=words):
            model(input_ids=ids, **arguments)
    assert not ran
    with pytest.raises(st.Unsupported, match="hole"):
        model(input_ids=ids, **refused["a hole"])
    handle.remove()
    with pytest.raises(st.Unsupported, match="no layer of type minimax_m3_sparse"):
        st.enable(make_model(layers=[FULL]))
    with pytest.raises(st.Unsupported, match="index_local_blocks is 4"):
        st.enable(make_model(index_local_blocks=4))


@torch.no_grad()
def test_index_keys_that_are_not_finite_are_refused_when_they_are_appended():
    model = make_model()
    sparse_of(model)[0].indexer.k_norm.weight[0] = float("inf")
    with pytest.raises(seriatim.errors.Error, match="index_keys"):
        st.enable(model)(input_ids=draw_ids(1, 8))


def test_the_numbers_of_the_test_are_those_of_the_model(pair):
    indexer = sparse_of(pair[0])[0].indexer
    assert (indexer.block_size, indexer.topk_blocks) == (BLOCK, BLOCKS)
