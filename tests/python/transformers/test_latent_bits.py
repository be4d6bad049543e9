"""A layer over latents: where its inputs are equal its rows and outputs have equal bits, in any chunking, batch,
padding, on any threads and kernels; and what its two calls refuse.
"""

import types

import pytest
import torch

from seriatim.transformers._backend import BatchLayer, Engine
from seriatim.transformers.latent_cache import LatentIndexedLayer
from seriatim.transformers.pooled_latent import GatedPools
from seriatim.transformers.runs import Runs
from support_shared import same_bits

HEADS, RANK, ROTARY, INDEX_HEADS, INDEX_DIM, BUDGET, TOKENS = 6, 24, 8, 3, 12, 20, 150
GEOMETRY = dict(group_tokens=1, budget_tokens=BUDGET, query_heads=HEADS, kv_heads=1, head_dim=RANK + ROTARY,
                value_dim=RANK,
                values_alias_keys=True, softmax_scale=0.2, index_heads=INDEX_HEADS, index_dim=INDEX_DIM,
                index_rotary_dim=0,
                pooling="none", scale_at="before_relu")
SINKS = [0.5, -1.0, 2.0, 0.0, 0.25, -3.0]


def make_native(dtype, index_dtype=None, threads=0, kernels=None, **changes):
    geometry = {**GEOMETRY, "kv_dtype": dtype, "index_dtype": index_dtype or dtype, **changes}
    return BatchLayer(geometry, [], Engine(threads=threads, kernels=kernels))


class Inputs:
    def __init__(self, sequences, dtype, index_dtype=None, seed=0):
        generator = torch.Generator().manual_seed(seed)
        draw = lambda *shape: torch.randn(*shape, generator=generator)
        self.latents = draw(sequences, 1, TOKENS, RANK).to(dtype)
        self.rotated = draw(sequences, 1, TOKENS, ROTARY).to(dtype)
        self.index_keys = draw(sequences, TOKENS, INDEX_DIM).to(index_dtype or dtype)
        self.index_queries = draw(sequences, TOKENS, INDEX_HEADS, INDEX_DIM).to(index_dtype or dtype)
        self.weights = draw(sequences, TOKENS, INDEX_HEADS)
        self.queries = draw(sequences, TOKENS, HEADS, RANK + ROTARY).to(dtype)
        self.first = [0] * sequences


def run_layer(native, inputs, sizes, select=slice(None), sinks=SINKS):
    """All outputs and rows of the chosen sequences, fed in chunks."""
    layer, at, outputs, rows = LatentIndexedLayer(), 0, [], []
    first = inputs.first[select]
    for size in sizes:
        new = slice(at, at + size)
        at += size
        runs = Runs([min(f, at) for f in first], [at] * len(first))
        layer.update(inputs.latents[select, :, new], inputs.rotated[select, :, new])
        layer.update_indexer(inputs.index_keys[select, new])
        layer.pool(native, 1, runs, None)
        row = torch.full((len(first), size, native.row_capacity), 7, dtype=torch.int32)
        native.plan(runs.first, runs.last, at, inputs.index_queries[select, new], layer.panels, layer.panels_max_abs,
                    row, inputs.weights[select, new])
        output = torch.empty(len(first), size, HEADS, RANK, dtype=layer.keys.dtype)
        native.attend_rows(runs.first, runs.last, inputs.queries[select, new], layer.keys.seriatim_latents, output,
                           rows=row, sinks=sinks)
        outputs.append(output)
        rows.append(row)
    assert at == TOKENS
    return torch.cat(outputs, 1), torch.cat(rows, 1)


DTYPES = [(torch.float32, None), (torch.bfloat16, None), (torch.float16, None), (torch.bfloat16, torch.float32)]


@pytest.mark.parametrize("dtype, index_dtype", DTYPES, ids=str)
def test_any_chunking_batch_and_padding_has_the_same_bits(dtype, index_dtype):
    inputs, native = Inputs(3, dtype, index_dtype), make_native(dtype, index_dtype)
    inputs.first = [0, 5, 70]
    whole = run_layer(native, inputs, [TOKENS])
    counts = (whole[1] >= 0).sum(-1)
    assert (counts[0] < torch.arange(1, TOKENS + 1)).float().mean() > 0.8
    assert counts[0].tolist() == [min(n, BUDGET) for n in range(1, TOKENS + 1)]
    for sizes in ([1] * TOKENS, [100] + [1] * 50, [3, 64, 5, 78]):
        assert same_bits(whole, run_layer(native, inputs, sizes)), sizes
    for sequence, first in enumerate(inputs.first):
        alone = run_layer(native, inputs, [TOKENS], slice(sequence, sequence + 1))
        assert same_bits(alone, (whole[0][sequence : sequence + 1], whole[1][sequence : sequence + 1]))
        assert not whole[0][sequence, :first].any() and (whole[1][sequence, :first] == -1).all()


def test_any_kernels_and_threads_have_the_same_bits():
    inputs = Inputs(2, torch.bfloat16)
    reference = run_layer(make_native(torch.bfloat16, threads=1, kernels="reference"), inputs, [TOKENS])
    for threads in (1, 2, 5):
        assert same_bits(reference, run_layer(make_native(torch.bfloat16, threads=threads), inputs, [90, 60]))


def test_rows_and_outputs_are_those_of_the_definition():
    inputs, native = Inputs(1, torch.float32), make_native(torch.float32)
    output, rows = run_layer(native, inputs, [TOKENS])
    keys = torch.cat([inputs.latents, inputs.rotated], -1)[0, 0].double()
    products = torch.relu(torch.einsum("qhd,td->qth", inputs.index_queries[0].double(), inputs.index_keys[0].double()))
    scores = (products * inputs.weights[0].double()[:, None]).sum(-1) / INDEX_DIM**0.5
    assert float(scores.min()) < -0.5 and float(scores.max()) > 0.5
    for query in range(TOKENS):
        row = rows[0, query][rows[0, query] >= 0].long()
        # ties: the earlier
        best = scores[query, : query + 1].sort(descending=True, stable=True).indices[:BUDGET].sort().values
        assert torch.equal(row, best)
        logits = torch.einsum("hd,td->ht", inputs.queries[0, query].double(), keys[row]) * 0.2
        whole = torch.cat([logits, torch.tensor(SINKS).double()[:, None]], 1).softmax(-1)[:, :-1]
        assert torch.allclose(output[0, query].double(), whole @ keys[row, :RANK], atol=1e-5)


def test_a_window_reads_its_newest_slots():
    inputs, native = Inputs(1, torch.float32), make_native(torch.float32, index_heads=1, index_dim=1)
    latents = torch.cat([inputs.latents, inputs.rotated], -1)
    window = torch.arange(TOKENS)[:, None] - torch.arange(BUDGET).flip(0)
    first = 30
    window = torch.where(window >= first, window, -1)
    rows = torch.stack([torch.cat([row[row >= 0], row[row < 0]]) for row in window]).int()[None]
    outputs = [torch.full((1, TOKENS, HEADS, RANK), 3.0) for _ in range(2)]
    native.attend_rows([first], [TOKENS], inputs.queries, latents, outputs[0])
    native.attend_rows([first], [TOKENS], inputs.queries, latents, outputs[1], rows=rows)
    assert torch.equal(*outputs) and not outputs[0][0, :first].any() and outputs[0][0, first:].abs().min() > 0


def test_unselected_latents_are_not_read():
    inputs, native = Inputs(1, torch.float32), make_native(torch.float32)
    rows = run_layer(native, inputs, [TOKENS])[1][:, -1:]
    latents = torch.cat([inputs.latents, inputs.rotated], -1)
    output = [torch.empty(1, 1, HEADS, RANK) for _ in range(2)]
    for each in output:
        native.attend_rows([0], [TOKENS], inputs.queries[:, -1:], latents, each, rows=rows)
        latents[:, :, torch.ones(TOKENS, dtype=torch.bool).index_fill(0, rows[0, 0].long(), False)] = float("nan")
    assert torch.equal(*output) and torch.isfinite(output[0]).all()


def test_what_does_not_fit_is_refused_by_name():
    inputs, native = Inputs(1, torch.float32), make_native(torch.float32)
    latents, output = torch.cat([inputs.latents, inputs.rotated], -1), torch.empty(1, TOKENS, HEADS, RANK)
    rows = torch.arange(TOKENS, dtype=torch.int32)[None, :, None].contiguous()
    attend = lambda **changes: native.attend_rows(**{**dict(first=[0], last=[TOKENS], queries=inputs.queries,
                                                            keys=latents, output=output, rows=rows), **changes})
    attend()
    for name, changes in {
        "rows": dict(rows=rows.long()), "queries": dict(queries=inputs.queries[..., 1:]),
        "keys": dict(keys=latents.bfloat16()),
        "values": dict(values=inputs.latents), "sinks": dict(sinks=[1.0]), "output": dict(output=output[:, 1:]),
        "runs": dict(last=[TOKENS + 1]),
    }.items():
        with pytest.raises(ValueError, match=name):
            attend(**changes)
    with pytest.raises(ValueError, match=r"row.*\(sequence 0\)"):
        attend(rows=rows + 1)  # the first query's only entry is later than itself
    layer = LatentIndexedLayer()
    layer.update_indexer(inputs.index_keys)
    layer.pool(native, 1, Runs.whole(1, TOKENS), None)
    row = torch.empty(1, TOKENS, BUDGET, dtype=torch.int32)
    plan = lambda **changes: native.plan(**{**dict(first=[0], last=[TOKENS], slots=TOKENS,
                                                   index_queries=inputs.index_queries, panels=layer.panels,
                                                   panels_max_abs=layer.panels_max_abs, rows=row,
                                                   head_weights=inputs.weights), **changes})
    plan()
    for name, changes in {
        "index_queries": dict(slots=TOKENS - 1), "head_weights": dict(head_weights=inputs.weights.double().bfloat16()),
        "panels": dict(panels=layer.panels[:, :1]), "rows": dict(rows=row[..., 1:]),
    }.items():
        with pytest.raises(ValueError, match=name):
            plan(**changes)
    inputs.weights[0, 40, 1] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        plan()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_pools_of_glm5_next_have_the_same_bits_one_at_a_time_and_all_at_once(dtype):
    pool, dim, pools = 16, 128, 70
    generator = torch.Generator().manual_seed(2)
    indexer = types.SimpleNamespace(index_kpool=pool, head_dim=dim,
                                    index_kpool_compress_ape=torch.randn(pool, dim, generator=generator).to(dtype))
    packed = torch.randn(2, pool * pools + 9, 2 * dim + 1, generator=generator).to(dtype)
    first, last = [0, 5], [packed.shape[1]] * 2
    whole, single = (torch.full((2, 5, dim, 16), 7.0).to(dtype) for _ in range(2))
    largest = GatedPools(indexer).pool(first, last, [0, 0], packed, None, whole)
    for done in range(pools):
        GatedPools(indexer).pool(first, [at + (done + 1) * pool for at in first], [done] * 2,
                                 packed[:, : 5 + (done + 1) * pool], None, single)
    assert torch.equal(whole.view(torch.uint8), single.view(torch.uint8)) and (whole != 7).float().mean() > 0.8
    assert largest == float(whole[whole != 7].abs().max())
    keys, gates = packed[1, 5 + 16 : 5 + 32, :dim].double(), packed[1, 5 + 16 : 5 + 32, dim : 2 * dim].double()
    expected = ((gates + indexer.index_kpool_compress_ape.double()).softmax(0) * keys).sum(0)
    assert torch.allclose(whole[1, 0, :, 1].double(), expected, atol=1e-5 if dtype == torch.float32 else 3e-2)
