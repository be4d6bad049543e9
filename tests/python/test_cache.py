"""Cache, sequences, transactions, files: what a step publishes, what an error leaves, what outlives what."""

import gc
import sys
import threading
import time

import numpy as np
import pytest
import torch

import seriatim
from support_layers import Tokens, filled


def state(user):
    """Everything a reader can see of a sequence: keys, values, and rows over its pooled keys."""
    layer = user.layer(0)
    keys, values = layer.read(layer.anchor, layer.tokens)
    query = np.ones((2, 8), np.float32)
    return keys.tobytes(), values.tobytes(), layer.score(query, layer.frontier - 1).tobytes(), layer.anchor


def test_decode_prefill_and_any_chunking_give_the_same_bits(geometry, tokens):
    _, whole = filled(geometry, tokens)
    everything = whole.layer(0)
    at = np.arange(75)
    rows = everything.plan(tokens.index_queries, at)
    output, lse = everything.attend(tokens.queries, at, rows, return_lse=True)
    cache = seriatim.Cache(geometry, capacity_tokens=512)
    user = cache.add()
    for t in range(75):
        with cache.begin() as step:
            step.append(user, 0, tokens.keys[t : t + 1], tokens.values[t : t + 1], tokens.index_keys[t : t + 1])
            layer = step.layer(user)  # the staged token is visible to its own query
            one = layer.plan(tokens.index_queries[t : t + 1], [t])
            attended, summed = layer.attend(tokens.queries[t : t + 1], [t], one, return_lse=True)
        assert one.positions[0].tobytes() == rows.positions[t].tobytes()
        assert attended.tobytes() == output[t].tobytes() and summed.tobytes() == lse[t].tobytes()
    assert state(user) == state(whole)


def test_a_block_that_raises_publishes_nothing(geometry, tokens):
    cache, user = filled(geometry, tokens)
    before = state(user)
    with pytest.raises(ZeroDivisionError):
        with cache.begin() as step:
            step.append(user, 0, tokens.keys, tokens.values, tokens.index_keys)
            1 / 0
    assert step.ended and state(user) == before
    with cache.begin():
        pass  # the transaction is over, another may begin


def test_layers_at_different_frontiers_are_refused_and_rolled_back(geometry, tokens):
    cache = seriatim.Cache(geometry, layers=2, capacity_tokens=512)
    user = cache.add()
    with pytest.raises(seriatim.InvalidArgument) as caught:
        with cache.begin() as step:
            step.append(user, 0, tokens.keys, tokens.values, tokens.index_keys)
    assert caught.value.row == user.id and caught.value.index == 1
    assert user.tokens == 0 and step.ended


def test_keep_and_commit_prefix_publish_what_was_kept(geometry, tokens):
    cache = seriatim.Cache(geometry, capacity_tokens=512)
    user = cache.add()
    with cache.begin() as step:
        step.append(user, 0, tokens.keys, tokens.values, tokens.index_keys)
        step.keep(user, 30)
        assert step.layer(user).tokens == 30
        step.commit_prefix(10)
    assert user.tokens == 10
    with pytest.raises(seriatim.InvalidArgument):
        step.append(user, 0, tokens.keys, tokens.values, tokens.index_keys)


def test_the_life_of_a_sequence(geometry, tokens, tmp_path):
    cache, user = filled(geometry, tokens)
    fork = user.fork()
    assert state(fork) == state(user) and fork != user
    fork.truncate(33)
    assert len(fork) == 33
    _, short = filled(geometry, cut(tokens, 0, 33))
    assert state(fork) == state(short)
    fork.evict_prefix(6)
    _, evicted = filled(geometry, cut(tokens, 6, 33), anchor=6)
    assert state(fork) == state(evicted)
    other = cache.add(anchor=6)
    other.copy_from(user, 6, 27)
    assert state(other) == state(fork)
    other.reset(3)
    assert (other.anchor, other.tokens) == (3, 0)
    path = tmp_path / "cache.safetensors"
    cache.save(path, [user, fork])
    seriatim.verify_cache_file(path)
    info = seriatim.cache_file_info(path)
    assert info.sequences == {user.id: (0, len(user)), fork.id: (fork.anchor, fork.tokens)}
    assert (info.layers, info.geometry.kv_heads, info.file_bytes, info.mappable) == (1, 2, path.stat().st_size, True)
    assert info.token_pages * info.token_page_bytes + info.pooled_pages * info.pooled_page_bytes <= info.file_bytes
    with pytest.raises(seriatim.Io):
        seriatim.cache_file_info(tmp_path / "none")
    for mode in ("copy", "map", "map_verified"):
        again = seriatim.Cache(geometry, capacity_tokens=512).restore(path, mode)
        assert list(again) == [user.id, fork.id]
        assert state(again[user.id]) == state(user) and state(again[fork.id]) == state(fork)
    other.remove()
    with pytest.raises(seriatim.NotFound) as caught:
        other.truncate(0)
    assert isinstance(caught.value, KeyError) and str(caught.value)[0] != "'"


def cut(tokens, first, last):
    part = object.__new__(Tokens)
    for name, array in vars(tokens).items():
        setattr(part, name, array[first:last])
    return part


def test_files_that_are_damaged_are_refused(geometry, tokens, tmp_path):
    cache, _ = filled(geometry, tokens)
    path = tmp_path / "cache.safetensors"
    cache.save(path)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(seriatim.Corrupt):
        seriatim.Cache(geometry, capacity_tokens=512).restore(path)
    with pytest.raises(seriatim.Io) as caught:
        cache.restore(tmp_path / "nothing")
    assert isinstance(caught.value, OSError)


def test_a_sequence_that_is_a_context_manager_is_gone_afterwards(geometry):
    cache = seriatim.Cache(geometry, capacity_tokens=512)
    with cache.add() as user:
        assert user.tokens == 0
    with pytest.raises(seriatim.NotFound):
        user.snapshot()


@pytest.mark.parametrize("change, error, argument", [
    (dict(keys=np.zeros((5, 2, 9), np.float32)), seriatim.InvalidArgument, "keys"),
    (dict(keys=np.zeros((5, 2, 8), np.float16)), seriatim.InvalidArgument, "keys"),
    (dict(values=None), seriatim.InvalidArgument, "values"),
    (dict(index_keys=np.full((5, 8), np.inf, np.float32)), seriatim.NotFinite, "index_keys"),
    (dict(first_position=3), seriatim.NotContiguous, "first_position"),
    (dict(layer=1), seriatim.InvalidArgument, "layer"),
])
def test_appends_that_do_not_fit_are_refused_by_name(geometry, change, error, argument):
    cache = seriatim.Cache(geometry, capacity_tokens=512)
    user = cache.add()
    five = Tokens(5)
    call = dict(layer=0, keys=five.keys, values=five.values, index_keys=five.index_keys)
    with cache.begin() as step:
        with pytest.raises(error) as caught:
            step.append(user, **{**call, **change})
        assert caught.value.argument == argument
        step.append(user, **call)  # and can be repeated
    assert user.tokens == 5


def test_capacity_and_foreign_sequences_are_refused(geometry, tokens):
    cache = seriatim.Cache(geometry, capacity_tokens=256)
    stranger = seriatim.Cache(geometry, capacity_tokens=256).add()
    user = cache.add()
    big = Tokens(300)
    with cache.begin() as step:
        with pytest.raises(seriatim.Capacity):
            step.append(user, 0, big.keys, big.values, big.index_keys)
        with pytest.raises(seriatim.InvalidArgument, match="another cache"):
            step.append(stranger, 0, big.keys, big.values, big.index_keys)


def test_snapshots_and_layers_outlive_their_cache(geometry, tokens):
    cache, user = filled(geometry, tokens)
    wanted = state(user)
    snapshot, layer = user.snapshot(), user.layer(0)
    user.truncate(3)
    user.remove()
    del cache, user
    gc.collect()
    keys, _ = layer.read(0, 75)
    assert keys.tobytes() == wanted[0] and snapshot.tokens == 75
    del snapshot
    assert layer.plan(tokens.index_queries[-1:], [74]).counts.tolist() == [19]


def test_a_staged_layer_never_dangles(geometry, tokens):
    cache, user = filled(geometry, tokens)
    step = cache.begin()
    layer = step.layer(user)
    step.append(user, 0, tokens.keys, tokens.values, tokens.index_keys)
    assert layer.tokens == 150
    step.rollback()
    with pytest.raises(seriatim.InvalidArgument):
        layer.plan(tokens.index_queries[-1:], [74])
    del step, cache, user
    gc.collect()
    with pytest.raises(seriatim.InvalidArgument):
        layer.tokens


def test_bytes_are_accounted(geometry, tokens):
    cache, user = filled(geometry, tokens)
    held = cache.bytes
    assert held.keys_values > 0 and held.raw_index_keys > 0 and held.pooled_keys > 0
    assert held.total == held.pages + held.tables
    user.fork()
    assert cache.bytes.keys_values == held.keys_values
    user.remove()


def test_bf16_goes_in_and_out_from_torch_and_from_ml_dtypes(tokens):
    import ml_dtypes
    from support_layers import SMALL

    geometry = seriatim.Geometry(**SMALL, kv_dtype=torch.bfloat16, index_dtype="bf16")
    as_torch = lambda a: torch.from_numpy(a).bfloat16()
    as_numpy = lambda a: a.astype(ml_dtypes.bfloat16)
    results = []
    for kind in (as_torch, as_numpy):
        _, user = filled(geometry, tokens, kind=kind)
        layer = user.layer(0)
        rows = layer.plan(kind(tokens.index_queries), np.arange(75))
        output = layer.attend(kind(tokens.queries), np.arange(75), rows)
        assert type(output) is type(kind(tokens.queries)) and output.dtype == kind(tokens.queries).dtype
        results.append(output.view(torch.uint16).numpy().tobytes() if kind is as_torch else output.tobytes())
    assert results[0] == results[1] and len(results[0]) == 75 * 4 * 8 * 2


def test_what_was_done_is_counted_by_its_engine(geometry, tokens):
    _, user = filled(geometry, tokens)
    engine = seriatim.Engine(threads=1)
    rows = user.layer(0).plan(tokens.index_queries, np.arange(75), engine=engine)
    assert engine.done.queries == 75 and engine.done.dense_rows == 19
    assert engine.done.row_tokens == int(rows.counts.sum())
    engine.clear_done()
    assert engine.done.queries == 0 and engine.bytes > 0
    engine.trim()
    assert engine.bytes == 0


def test_a_reserved_engine_refuses_what_would_need_more(geometry, tokens):
    _, user = filled(geometry, tokens)
    engine = seriatim.Engine(threads=1)
    engine.reserve(geometry, visible_tokens=8, queries=75)
    held = engine.bytes
    user.layer(0).plan(tokens.index_queries[:8], np.arange(8), engine=engine)
    with pytest.raises(seriatim.Capacity):
        user.layer(0).plan(tokens.index_queries, np.arange(75), engine=engine)
    engine.trim()
    assert engine.bytes == held > 0


def test_a_reader_works_while_another_thread_computes(geometry):
    """With the interpreter's lock held during a call, no other thread could note the time within it."""
    scores = np.random.default_rng(0).standard_normal((4000, 4096)).astype(np.float32)
    engine = seriatim.Engine(threads=1)
    calls, turns, running = [], [], threading.Event()

    def compute():
        running.set()
        for _ in range(10):
            began = time.perf_counter()
            seriatim.select(scores, engine=engine)
            calls.append((began, time.perf_counter()))

    before = sys_interval()
    try:
        worker = threading.Thread(target=compute)
        worker.start()
        running.wait()
        while worker.is_alive():
            time.sleep(0)  # gives the lock away, and gets it back only if the worker does not hold it
            turns.append(time.perf_counter())
    finally:
        sys_interval(before)
    assert len(calls) == 10
    assert any(began < turn < ended for began, ended in calls for turn in turns)


def sys_interval(value=1000.0):
    """Sets how long a thread may keep the interpreter's lock when another asks for it, so that only a release lets
    others in."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(value)
    return before


def test_many_threads_read_while_one_writes(geometry, tokens):
    cache, user = filled(geometry, tokens)
    wanted = user.layer(0).attend(tokens.queries, np.arange(75),
                                  user.layer(0).plan(tokens.index_queries, np.arange(75))).tobytes()
    faults, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            layer = user.layer(0)
            rows = layer.plan(tokens.index_queries, np.arange(75))
            if layer.attend(tokens.queries, np.arange(75), rows).tobytes() != wanted:
                faults.append("other bits")

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(50):
        with cache.begin() as step:
            step.append(user, 0, tokens.keys, tokens.values, tokens.index_keys)
        user.truncate(75)
    stop.set()
    for reader in readers:
        reader.join()
    assert not faults
