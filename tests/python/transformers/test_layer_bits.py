"""Where the inputs of a layer are equal, its outputs have equal bits: in any chunking, batch, padding and on any
threads.

A whole model's projections are torch's, whose bits depend on the shape of the call; what holds there is tested last.
"""

import types

import pytest
import torch
from transformers.models.qwen4_exp.modeling_qwen4_exp import eager_attention_forward

import seriatim.transformers as st
from seriatim.transformers._backend import BatchLayer, Engine
from seriatim.transformers.cache_layer import SeriatimIndexedLayer
from seriatim.transformers.runs import Runs
from support_models import draw_ids, make_model
from support_shared import same_bits

HEADS, KV_HEADS, DIM, INDEX_HEADS, INDEX_DIM, TOKENS = 4, 2, 16, 2, 12, 170
GEOMETRY = dict(group_tokens=4, budget_tokens=32, query_heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM,
                index_heads=INDEX_HEADS,
                index_dim=INDEX_DIM, index_rotary_dim=8, inv_freq=[1.0, 0.1, 0.01, 0.001], rope_axes=[0, 1, 2, 0])


def make_native(dtype, threads=0, kernels=None):
    weight = torch.linspace(-0.4, 0.5, INDEX_DIM).tolist()
    geometry = {**GEOMETRY, "kv_dtype": dtype, "index_dtype": dtype}
    return BatchLayer(geometry, weight, Engine(threads=threads, kernels=kernels))


class Inputs:
    def __init__(self, sequences, dtype, seed=0):
        generator = torch.Generator().manual_seed(seed)
        draw = lambda *shape: torch.randn(*shape, generator=generator).to(dtype)
        self.keys, self.values = draw(sequences, KV_HEADS, TOKENS, DIM), draw(sequences, KV_HEADS, TOKENS, DIM)
        self.raw, self.queries = draw(sequences, TOKENS, INDEX_DIM), draw(sequences, TOKENS, HEADS, DIM)
        self.index_queries = draw(sequences, TOKENS, INDEX_HEADS, INDEX_DIM)
        self.positions = torch.arange(TOKENS).repeat(3, sequences, 1)
        self.first = [0] * sequences


def run_layer(native, inputs, sizes, select=slice(None)):
    """All outputs and rows of the chosen sequences, fed in chunks."""
    layer, at, outputs, rows = SeriatimIndexedLayer(), 0, [], []
    first = inputs.first[select]
    for size in sizes:
        new = slice(at, at + size)
        at += size
        runs = Runs([min(f, at) for f in first], [at] * len(first))
        layer.update_indexer(inputs.raw[select, new])
        layer.pool(native, 4, runs, inputs.positions[:, select, :at])
        keys, values = layer.update(inputs.keys[select, :, new], inputs.values[select, :, new])
        output = torch.empty(len(first), size, HEADS, DIM, dtype=keys.dtype)
        row = torch.empty(len(first), size, native.row_capacity, dtype=torch.int32)
        counts = torch.empty(len(first), size, dtype=torch.int32)
        native.attend(runs.first, runs.last, inputs.queries[select, new], inputs.index_queries[select, new], keys,
                      values,
                      layer.panels, layer.panels_max_abs, output, rows=row, counts=counts)
        outputs.append(output)
        rows.append(row)
    assert at == TOKENS
    return torch.cat(outputs, 1), torch.cat(rows, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_any_chunking_has_the_same_bits(dtype):
    inputs = Inputs(2, dtype)
    native = make_native(dtype)
    whole = run_layer(native, inputs, [TOKENS])
    dropped = (whole[1] >= 0).sum(-1) < torch.arange(1, TOKENS + 1)
    assert dropped.float().mean() > 0.7
    for sizes in ([1] * TOKENS, [100] + [1] * 70, [3, 64, 5, 98], [169, 1]):
        assert same_bits(whole, run_layer(native, inputs, sizes)), sizes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_any_batch_and_padding_has_the_same_bits(dtype):
    inputs = Inputs(3, dtype)
    inputs.first = [0, 5, 90]
    native = make_native(dtype)
    together = run_layer(native, inputs, [120, 50])
    for sequence, first in enumerate(inputs.first):
        alone = run_layer(native, inputs, [TOKENS], slice(sequence, sequence + 1))
        assert same_bits(alone, (together[0][sequence : sequence + 1], together[1][sequence : sequence + 1]))
        assert not together[0][sequence, :first].any() and (together[1][sequence, :first] == -1).all()
        assert int(together[1][sequence, first, 0]) == first


def run_eager(inputs, rows, sizes):
    """Eager attention over the rows that Seriatim chose, fed in chunks."""
    module, at, outputs = types.SimpleNamespace(num_key_value_groups=HEADS // KV_HEADS, training=False), 0, []
    for size in sizes:
        new = slice(at, at + size)
        at += size
        wanted = rows[:, new].long()
        allowed = torch.zeros(*wanted.shape[:2], at + 1, dtype=torch.bool)
        allowed = allowed.scatter_(-1, torch.where(wanted < 0, at, wanted), True)[..., :at]
        mask = torch.zeros(allowed.shape, dtype=inputs.keys.dtype).masked_fill(~allowed,
                                                                               torch.finfo(inputs.keys.dtype).min)
        query, keys, values = inputs.queries[:, new].transpose(1, 2), inputs.keys[:, :, :at], inputs.values[:, :, :at]
        outputs.append(eager_attention_forward(module, query, keys, values, mask[:, None], DIM**-0.5)[0])
    return torch.cat(outputs, 1)


def differing(one, other):
    return int((one.view(torch.int32) != other.view(torch.int32)).sum())


def test_eager_has_other_bits_in_another_chunking_where_seriatim_has_not():
    inputs, native = Inputs(2, torch.float32), make_native(torch.float32)
    whole, rows = run_layer(native, inputs, [TOKENS])
    eager = run_eager(inputs, rows, [TOKENS])
    assert float((whole - eager).abs().max()) < 1e-5
    sizes = [100] + [1] * 70
    chunked = run_layer(native, inputs, sizes)[0], run_eager(inputs, rows, sizes)
    print(f"of {whole.numel()} elements other bits in chunks: Seriatim {differing(whole, chunked[0])}, "
          f"eager {differing(eager, chunked[1])}")
    assert differing(whole, chunked[0]) == 0 and differing(eager, chunked[1]) > 0


def test_any_kernels_and_threads_have_the_same_bits():
    inputs = Inputs(2, torch.bfloat16)
    reference = run_layer(make_native(torch.bfloat16, 1, "reference"), inputs, [TOKENS])
    for threads in (1, 2, 5):
        assert same_bits(reference, run_layer(make_native(torch.bfloat16, threads), inputs, [90, 80]))


def test_unselected_keys_and_values_are_not_read():
    inputs = Inputs(1, torch.float32)
    native = make_native(torch.float32)
    layer = SeriatimIndexedLayer()
    layer.update_indexer(inputs.raw)
    runs = Runs.whole(1, TOKENS)
    layer.pool(native, 4, runs, inputs.positions)

    def newest(keys, values):
        output, row = torch.empty(1, 1, HEADS, DIM), torch.empty(1, 1, native.row_capacity, dtype=torch.int32)
        native.attend(runs.first, runs.last, inputs.queries[:, -1:], inputs.index_queries[:, -1:], keys, values,
                      layer.panels,
                      layer.panels_max_abs, output, rows=row, counts=torch.empty(1, 1, dtype=torch.int32))
        return output, row[0, 0][row[0, 0] >= 0]

    output, row = newest(inputs.keys, inputs.values)
    unread = torch.ones(TOKENS, dtype=torch.bool).index_fill(0, row.long(), False)
    assert 100 < int(unread.sum()) < TOKENS
    inputs.keys[:, :, unread], inputs.values[:, :, unread] = float("nan"), float("nan")
    assert torch.equal(newest(inputs.keys, inputs.values)[0], output)


def test_pooled_keys_after_any_operation_are_those_of_a_fresh_layer():
    inputs, native = Inputs(3, torch.float32), make_native(torch.float32)
    layer = SeriatimIndexedLayer()

    def pooled(layer, runs):
        layer.pool(native, 4, runs, inputs.positions[:, : layer.indexer_keys.shape[0], : layer.indexer_keys.shape[1]])
        return [layer.panels[b].transpose(1, 2).reshape(-1, INDEX_DIM)[: (last - first) // 4]
                for b, (first, last) in enumerate(zip(*runs))]

    def check(runs):
        kept = pooled(layer, runs)
        fresh = SeriatimIndexedLayer()
        fresh.update_indexer(layer.indexer_keys.clone())
        expected = pooled(fresh, runs)
        assert sum(len(keys) for keys in kept) > 20
        assert all(torch.equal(a, b) for a, b in zip(kept, expected))

    def append(first, last):
        layer.update(inputs.keys[:, :, first:last], inputs.values[:, :, first:last])
        layer.update_indexer(inputs.raw[:, first:last])

    append(0, 101)
    check(Runs([0, 3, 50], [101] * 3))
    layer.crop(-30)
    append(100, 141)  # other tokens in the places of those cropped
    check(Runs([0, 3, 50], [112] * 3))
    check(Runs([1, 3, 50], [112] * 3))  # one sequence's padding changed
    layer.reorder_cache(torch.tensor([2, 2, 0]))
    check(Runs([50, 50, 1], [112] * 3))
    layer.indexer_keys = layer.indexer_keys.flip(0)  # behind the layer's back
    check(Runs([1, 50, 50], [112] * 3))


@torch.no_grad()
def test_a_whole_model_repeats_its_bits():
    model, ids = st.enable(make_model(budget=16)), draw_ids(2, 150)
    once = model(ids).logits
    assert all(torch.equal(model(ids).logits, once) for _ in range(3))
