"""Scores and attention, over a cache and over bare arrays, against the oracle."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import seriatim
from attention import attend as attend_f64
from support_layers import SMALL, Tokens, filled
from scores import group_scores, inverse_frequencies, pooled_keys
from selection import select_row


def random_rows(rng, queries, tokens):
    rows = [np.sort(rng.choice(tokens, rng.integers(1, tokens + 1), replace=False)) for _ in range(queries)]
    positions = np.full((queries, tokens), -1, np.int32)
    for q, row in enumerate(rows):
        positions[q, : len(row)] = row
    return rows, (positions, np.array([len(row) for row in rows], np.int32))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.sampled_from([(1, 1), (4, 2), (6, 1)]),
       st.sampled_from([1, 4, 5]),
       st.sampled_from([1, 3, 16]))
def test_bare_attention_is_the_oracles(seed, tokens, heads, dim, value_dim):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    queries, keys, values = draw(3, heads[0], dim), draw(tokens, heads[1], dim), draw(tokens, heads[1], value_dim)
    rows, pair = random_rows(rng, 3, tokens)
    output, lse = seriatim.attend(queries, keys, values, pair, return_lse=True)
    in_place = seriatim.attend(queries, np.ascontiguousarray(keys.transpose(1, 0, 2)).transpose(1, 0, 2),
                               np.ascontiguousarray(values.transpose(1, 0, 2)).transpose(1, 0, 2), pair)
    assert output.tobytes() == in_place.tobytes()
    for q, row in enumerate(rows):
        wanted, wanted_lse = attend_f64(queries[q], keys[row], values[row], 1 / np.sqrt(dim))
        np.testing.assert_allclose(output[q], wanted, rtol=0, atol=1e-6 * np.abs(values).max())
        np.testing.assert_allclose(lse[q], wanted_lse, rtol=1e-6, atol=1e-6)


def test_only_the_row_is_read():
    rng = np.random.default_rng(0)
    queries, keys, values = (rng.standard_normal(shape).astype(np.float32)
                             for shape in ((1, 2, 8), (9, 1, 8), (9, 1, 8)))
    pair = np.array([[1, 4, 8]], np.int32), np.array([3], np.int32)
    clean = seriatim.attend(queries, keys, values, pair)
    keys[[0, 2, 3, 5, 6, 7]], values[[0, 2, 3, 5, 6, 7]] = np.nan, np.nan
    assert seriatim.attend(queries, keys, values, pair).tobytes() == clean.tobytes()


def test_positions_anchor_scale_and_sinks():
    rng = np.random.default_rng(1)
    queries, keys, values = (rng.standard_normal(shape).astype(np.float32)
                             for shape in ((2, 2, 4), (6, 1, 4), (6, 1, 4)))
    pair = np.array([[10, 12], [11, -1]], np.int32), np.array([2, 1], np.int32)
    output = seriatim.attend(queries, keys, values, pair, [12, 11], anchor=10, scale=0.25)
    np.testing.assert_allclose(output[0], attend_f64(queries[0], keys[[0, 2]], values[[0, 2]], 0.25)[0], atol=1e-6)
    _, lse = seriatim.attend(queries, keys, values, pair, [12, 11], anchor=10, sinks=[5.0, -5.0], return_lse=True)
    assert lse[0, 0] > 5
    with pytest.raises(seriatim.InvalidArgument) as caught:
        seriatim.attend(queries, keys, values, pair, [11, 11], anchor=10)  # 12 is not visible to a query at 11
    assert caught.value.row == 0
    with pytest.raises(seriatim.NotChronological):
        seriatim.attend(queries, keys, values, (np.array([[12, 10], [11, -1]], np.int32), pair[1]), anchor=10)


def test_out_and_lse_are_written_in_place_and_dtypes_follow():
    queries, keys = torch.randn(2, 2, 8).bfloat16(), torch.randn(5, 1, 8).bfloat16()
    rows = torch.tensor([[0, 4], [1, 3]], dtype=torch.int32), torch.tensor([2, 2], dtype=torch.int32)
    output = seriatim.attend(queries, keys, keys, rows)
    assert output.dtype == torch.bfloat16
    wide = seriatim.attend(queries, keys, keys, rows, dtype=torch.float32)
    assert wide.dtype == torch.float32 and torch.equal(wide.bfloat16(), output)
    out, lse = torch.zeros(2, 2, 8, dtype=torch.bfloat16), torch.zeros(2, 2)
    result = seriatim.attend(queries, keys, keys, rows, out=out, lse=lse)
    assert result[0] is out and result[1] is lse and torch.equal(out, output) and (lse != 0).all()


def test_an_overflow_is_an_error_whose_other_heads_are_right():
    queries = np.array([[[3e38, 3e38], [1, 1]]], np.float32)
    keys = np.ones((2, 1, 2), np.float32)
    out = np.zeros((1, 2, 2), np.float32)
    pair = np.array([[0, 1]], np.int32), np.array([2], np.int32)
    with pytest.raises(seriatim.Overflow) as caught:
        seriatim.attend(queries, keys, keys, pair, out=out)
    assert (caught.value.row, caught.value.index) == (0, 0) and isinstance(caught.value, OverflowError)
    assert np.isnan(out[0, 0]).all() and (out[0, 1] == 1).all()


@pytest.mark.parametrize("change, argument", [
    (dict(keys=np.zeros((4, 2, 4), np.float16)), "values"), (dict(queries=np.zeros((1, 2, 4), np.float16)), "queries"),
    (dict(values=np.zeros((5, 2, 4), np.float32)), "values"),
    (dict(queries=np.zeros((1, 3, 4), np.float32)), "query_heads"), (dict(rows=3), "rows"),
    (dict(keys=np.zeros((4, 4), np.float32)), "keys"),
    (dict(rows=(np.zeros((1, 2), np.int32), np.array([3], np.int32))), "rows"),
    (dict(rows=(np.zeros((1, 2), np.int64), np.array([1]))), "rows"),
    (dict(out=np.zeros((1, 2, 5), np.float32)), "out"), (dict(positions=[4]), "positions"),
    (dict(dtype="f64"), "dtype"),
])
def test_what_does_not_fit_is_refused_by_name(change, argument):
    call = dict(queries=np.zeros((1, 2, 4), np.float32), keys=np.zeros((4, 2, 4), np.float32),
                values=np.zeros((4, 2, 4), np.float32),
                rows=(np.zeros((1, 2), np.int32), np.array([1], np.int32)))
    seriatim.attend(**call)
    with pytest.raises(seriatim.InvalidArgument) as caught:
        seriatim.attend(**{**call, **change})
    assert caught.value.argument == argument


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(4, 90), st.integers(0, 50))
def test_a_layer_scores_selects_and_attends_as_the_oracle_does(seed, count, anchor):
    tokens, geometry = Tokens(count, seed), seriatim.Geometry(**SMALL)
    _, user = filled(geometry, tokens, anchor)
    layer, at = user.layer(0), anchor + np.arange(count)
    rows = layer.plan(tokens.index_queries, at)
    output = layer.attend(tokens.queries, at, rows)
    pooled = pooled_keys(tokens.index_keys, np.zeros(8, np.float32), 1e-6, inverse_frequencies(1e7, 4), anchor, 4,
                         "F32")
    scores = group_scores(tokens.index_queries, pooled)
    own = seriatim.pool_keys(geometry, tokens.index_keys, first_position=anchor)
    assert own.tobytes() == pooled.tobytes()
    assert seriatim.score(geometry, tokens.index_queries, own).tobytes() == scores.tobytes()
    for q in range(count):
        wanted = select_row(scores[q], q + 1, 4, 16, anchor)
        assert rows.positions[q, : rows.counts[q]].tolist() == wanted.tolist()
        slots = wanted - anchor
        expected, _ = attend_f64(tokens.queries[q], tokens.keys[slots], tokens.values[slots], 1 / np.sqrt(8))
        np.testing.assert_allclose(output[q], expected, rtol=0, atol=1e-6 * np.abs(tokens.values).max())
    np.testing.assert_array_equal(layer.score(tokens.index_queries[-1], at[-1]), scores[-1, : count // 4])


def test_scores_of_many_groups_are_worked_in_parts_and_do_not_depend_on_threads():
    rng, geometry = np.random.default_rng(3), seriatim.Geometry(**SMALL)
    queries = rng.standard_normal((3, 2, 8)).astype(np.float32)
    pooled = rng.standard_normal((9001, 8)).astype(np.float32)
    weights = rng.standard_normal((3, 2)).astype(np.float32)
    wanted = group_scores(queries, pooled, weights).tobytes()
    for threads in (1, 2, 5):
        engine = seriatim.Engine(threads=threads)
        assert seriatim.score(geometry, queries, pooled, weights, engine=engine).tobytes() == wanted, threads
    assert seriatim.score(geometry, queries, pooled[:0]).shape == (3, 0)
    with pytest.raises(seriatim.InvalidArgument) as caught:
        seriatim.score(geometry, queries, pooled[:, :7])
    assert caught.value.argument == "pooled"


def test_threads_and_kernels_change_no_bit(geometry, tokens):
    _, user = filled(geometry, tokens)
    layer, at, seen = user.layer(0), np.arange(75), set()
    for name in seriatim.kernels():
        for threads in (1, 2, 3):
            engine = seriatim.Engine(threads=threads, kernels=name)
            assert engine.kernels == name and 1 <= engine.threads <= threads
            rows = layer.plan(tokens.index_queries, at, engine=engine)
            seen.add((rows.positions.tobytes(), layer.attend(tokens.queries, at, rows, engine=engine).tobytes()))
    assert len(seen) == 1 and len(seriatim.kernels()) >= 1
    with pytest.raises(seriatim.NotFound):
        seriatim.Engine(kernels="abacus")
