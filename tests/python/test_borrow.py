"""Layers over memory that the caller keeps, and many asks in one call: the bits of a cache, whatever the company."""

import numpy as np
import pytest

import seriatim
from support_layers import SMALL, Tokens, filled


@pytest.fixture
def geometry():
    return seriatim.Geometry(**SMALL)


@pytest.fixture
def tokens():
    return Tokens(75)


def answers(layer, tokens, at, **more):
    rows = layer.plan(tokens.index_queries[at], at, **more)
    output, lse = layer.attend(tokens.queries[at], at, rows, return_lse=True, **more)
    return [array.tobytes() for array in (rows.positions, rows.counts, output, lse)]


def index_of(geometry, tokens, count=75):
    store = seriatim.Cache(geometry, capacity_tokens=4096, index_only=True)
    user = store.add()
    with store.begin() as step:
        step.append(user, 0, index_keys=tokens.index_keys[:count])
    return store, user


def paged(array, page_tokens, seed=0):
    """A pool of pages in some order, the others NaN, and the table that names those of the array."""
    pages = -(-len(array) // page_tokens)
    table = np.random.default_rng(seed).permutation(2 * pages)[:pages].astype(np.int32)
    pool = np.full((2 * pages, page_tokens, *array.shape[1:]), np.nan, array.dtype)
    for at, page in enumerate(table):
        piece = array[at * page_tokens : (at + 1) * page_tokens]
        pool[page, : len(piece)] = piece
    return pool, table


def test_pages_and_arrays_of_any_layout_have_a_caches_bits(geometry, tokens):
    _, user = filled(geometry, tokens)
    at = np.arange(75)
    due = answers(user.layer(0), tokens, at)
    store, index = index_of(geometry, tokens)
    assert store.bytes.keys_values == 0 and store.bytes.pooled_keys > 0
    for page_tokens in (4, 16, 64):
        keys, table = paged(tokens.keys, page_tokens)
        values, _ = paged(tokens.values, page_tokens)
        layer = seriatim.borrow(geometry, keys, values, block_table=table, index=index.layer(0))
        assert (layer.tokens, layer.anchor, layer.geometry) == (75, 0, geometry)
        assert answers(layer, tokens, at) == due
    by_head = [np.ascontiguousarray(array.transpose(1, 0, 2)).transpose(1, 0, 2)
               for array in (tokens.keys, tokens.values)]
    assert answers(seriatim.borrow(geometry, *by_head, index=index.layer(0)), tokens, at) == due
    torch = pytest.importorskip("torch")
    layer = seriatim.borrow(geometry, torch.from_numpy(tokens.keys), torch.from_numpy(tokens.values),
                            index=index.layer(0))
    assert answers(layer, tokens, at) == due


def test_a_borrowed_layer_keeps_its_arrays_alive(geometry, tokens):
    _, user = filled(geometry, tokens)
    index = index_of(geometry, tokens)[1].layer()
    layer = seriatim.borrow(geometry, tokens.keys.copy(), tokens.values.copy(), index=index)
    for _ in range(20):
        np.full((75, 2, 8), np.nan, np.float32)
    assert answers(layer, tokens, np.arange(75)) == answers(user.layer(), tokens, np.arange(75))


def test_a_staged_index_follows_and_is_refused_once_it_has_gone_on(geometry, tokens):
    _, user = filled(geometry, tokens)
    store, index = index_of(geometry, tokens, 40)
    with store.begin() as step:
        step.append(index, 0, index_keys=tokens.index_keys[40:75])
        layer = seriatim.borrow(geometry, tokens.keys, tokens.values, index=step.layer(index))
        assert answers(layer, tokens, np.arange(70, 75)) == answers(user.layer(), tokens, np.arange(70, 75))
        step.append(index, 0, index_keys=tokens.index_keys[:1])
        with pytest.raises(seriatim.InvalidArgument) as caught:
            layer.plan(tokens.index_queries[:1], [0])
        assert caught.value.argument == "index"


def test_many_asks_in_one_call_have_the_bits_of_each_alone(geometry, tokens):
    cache, user = filled(geometry, tokens)
    step = cache.begin()
    step.append(user, 0, tokens.keys[:5], tokens.values[:5], tokens.index_keys[:5])
    pool, table = paged(tokens.keys, 16)
    layers = [user.layer(0), step.layer(user),
              seriatim.borrow(geometry, pool, paged(tokens.values, 16)[0], block_table=table,
                              index=index_of(geometry, tokens)[1].layer(0))]
    spans = [np.arange(74, 75), np.arange(70, 75), np.arange(75)]
    for threads in (1, 2):
        engine = seriatim.Engine(threads=threads)
        for order in ([0, 1, 2], [2, 0, 1], [1, 1, 0, 2]):
            asks = [(layers[i], tokens.index_queries[spans[i]], spans[i]) for i in order]
            rows = engine.plan(asks)
            output, lse = engine.attend([(layers[i], tokens.queries[spans[i]], spans[i]) for i in order], rows,
                                        return_lse=True)
            first = 0
            for i in order:
                part = slice(first, first + len(spans[i]))
                got = [array[part].tobytes() for array in (rows.positions, rows.counts, output, lse)]
                assert got == answers(layers[i], tokens, spans[i])
                first += len(spans[i])
        assert engine.done.queries == 81 + 81 + 86
    step.rollback()


def test_an_error_names_the_ask_and_its_query_and_leaves_the_outputs(geometry, tokens):
    _, user = filled(geometry, tokens)
    engine = seriatim.Engine(threads=1)
    good = (user.layer(0), tokens.index_queries[:3], [0, 1, 2])
    out = (np.full((6, geometry.row_capacity), 7, np.int32), np.full(6, 7, np.int32))
    with pytest.raises(seriatim.InvalidArgument) as caught:
        engine.plan([good, (user.layer(0), tokens.index_queries[:3], [0, 1, 75])], out=out)
    assert (caught.value.ask, caught.value.row) == (1, 2)
    bad = tokens.queries[:3].copy()
    bad[1, 0, 0] = np.inf
    rows = engine.plan([good, good])
    result = np.full((6, 4, 8), 7, np.float32)
    with pytest.raises(seriatim.NotFinite) as caught:
        engine.attend([(user.layer(0), tokens.queries[:3], [0, 1, 2]), (user.layer(0), bad, [0, 1, 2])], rows,
                      out=result)
    assert (caught.value.ask, caught.value.row) == (1, 1)
    assert (out[0] == 7).all() and (out[1] == 7).all() and (result == 7).all()
    for asks in ([], [(user.layer(0),)], [("layer", tokens.queries, [0])]):
        with pytest.raises(seriatim.InvalidArgument) as caught:
            engine.plan(asks)
        assert caught.value.argument == "asks"


def test_what_does_not_fit_is_refused_by_argument_and_index(geometry, tokens):
    pool, table = paged(tokens.keys, 16)
    values, _ = paged(tokens.values, 16)
    twice, none = table.copy(), table.copy()
    twice[3], none[2] = twice[1], len(pool)
    repeated = np.broadcast_to(tokens.keys[:, :1], tokens.keys.shape)
    cases = [
        ("block_table", 3, dict(keys=pool, values=values, block_table=twice, tokens=75)),
        ("block_table", 2, dict(keys=pool, values=values, block_table=none, tokens=75)),
        ("block_table", 5, dict(keys=pool, values=values, block_table=table, tokens=81)),
        ("keys", 1, dict(keys=repeated, values=tokens.values)),
        ("keys", -1, dict(keys=tokens.keys[:, :1], values=tokens.values)),
        ("values", -1, dict(keys=tokens.keys)),
        ("values", 70, dict(keys=tokens.keys, values=tokens.values[:70])),
        ("tokens", -1, dict(keys=pool, values=values, block_table=table)),
        ("keys", 75, dict(keys=tokens.keys, values=tokens.values, tokens=76)),
        ("index", -1, dict(keys=tokens.keys, values=tokens.values, tokens=74,
                           index=index_of(geometry, tokens)[1].layer(0))),
    ]
    for argument, index, options in cases:
        with pytest.raises(seriatim.InvalidArgument) as caught:
            seriatim.borrow(geometry, **options)
        assert (caught.value.argument, caught.value.index) == (argument, index), str(caught.value)
    plans_alone = seriatim.borrow(geometry, index=index_of(geometry, tokens)[1].layer(0))
    rows = plans_alone.plan(tokens.index_queries[-1:], [74])
    for call in (lambda: plans_alone.attend(tokens.queries[-1:], [74], rows), lambda: plans_alone.read(0, 1)):
        with pytest.raises(seriatim.InvalidArgument) as caught:
            call()
        assert caught.value.argument == "layer"
