"""One context over several ranks: threads of one process, and gloo processes."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import threading

import pytest

import seriatim
import seriatim.shard
from shard_ranks import decode

HERE = pathlib.Path(__file__).resolve().parent


def on_threads(ranks, work, timeout=20.0):
    """work(group) on every rank; gives what each gave or raised."""
    ends, seen = seriatim.shard.thread_ends(ranks, timeout), [None] * ranks

    def run(rank):
        try:
            seen[rank] = work(ends[rank])
        except Exception as error:
            seen[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def launched(scenario, ranks, folder, expected):
    """What the ranks of a gloo launch saw. A rank that stays stopped is ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    names = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(ranks), OMP_NUM_THREADS="1")
    processes = [
        subprocess.Popen([sys.executable, HERE / "shard_ranks.py", scenario, folder], cwd=HERE,
                         env=dict(names, RANK=str(rank)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(ranks)
    ]
    try:
        said = [process.communicate(timeout=120)[0] for rank, process in enumerate(processes) if rank in expected]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    found = {rank: folder / f"{rank}.json" for rank in range(ranks) if (folder / f"{rank}.json").exists()}
    assert sorted(found) == sorted(expected), said
    return [json.loads(found[rank].read_text()) for rank in sorted(found)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_threads_decode_with_the_bits_of_one_process(ranks):
    for rank, seen in enumerate(on_threads(ranks, lambda end: decode(seriatim.shard.meet(end)))):
        assert isinstance(seen, dict), seen
        assert seen["compared"] == 450
        assert len(seen["borders"]) == ranks + 1 and seen["borders"][rank] <= seen["borders"][rank + 1]


def test_ranks_that_differ_are_told_so_by_name():
    def differ(end):
        group = seriatim.shard.meet(end, model="a")
        with pytest.raises(seriatim.InvalidArgument) as caught:
            group.agree("append", tokens=4 + (end.rank == 2))
        assert caught.value.argument == "tokens" and caught.value.index == 2
        return str(caught.value)

    assert on_threads(3, differ) == ["tokens: of append, 5 on rank 2 and 4 on rank 0"] * 3
    met = on_threads(2, lambda end: seriatim.shard.meet(end, model="ab"[end.rank]))
    assert [type(error) for error in met] == [seriatim.InvalidArgument] * 2


def test_a_refusal_of_one_rank_is_the_error_of_all_and_changes_nothing():
    def refuse(end):
        from support_layers import SMALL, Tokens

        group, tokens = seriatim.shard.meet(end), Tokens(20)
        cache = seriatim.shard.ShardedCache(group, seriatim.Geometry(**SMALL), capacity_tokens=64)
        user = cache.add()
        if end.rank == 1:
            tokens.keys[3, 0, 0] = float("nan")
        with pytest.raises(seriatim.Error) as caught:
            with cache.begin() as step:
                step.append(user, 0, tokens.keys, tokens.values, tokens.index_keys)
        assert user.tokens == 0
        return str(caught.value)

    said = on_threads(2, refuse)
    assert said[0] == said[1] and isinstance(said[0], str), said


def test_a_rank_that_never_comes_is_lost_in_time():
    end = seriatim.shard.thread_ends(2, 0.2)[0]
    with pytest.raises(seriatim.PeerLost) as caught:
        seriatim.shard.meet(end)
    assert caught.value.index == 1
    assert isinstance(caught.value, ConnectionError)


def test_what_is_no_transport_is_refused():
    with pytest.raises(seriatim.InvalidArgument, match="transport: has no"):
        seriatim.shard.meet(object())


def test_gloo_moves_bytes_and_names_what_differs(tmp_path):
    pytest.importorskip("torch")
    first, second, third = launched("transport", 3, tmp_path, {0, 1, 2})
    assert first[0] == "block: rank 1 sent 4 bytes where 3 were expected" == third[0]
    assert second[0] == "block: rank 0 sent 3 bytes where 4 were expected"
    assert {one[1] for one in (first, second, third)} == {"tokens: of append, 1 on rank 2 and 0 on rank 0"}


def test_gloo_decodes_with_the_bits_of_one_process(tmp_path):
    pytest.importorskip("torch")
    seen = launched("decode", 2, tmp_path, {0, 1})
    assert [one["compared"] for one in seen] == [450, 450]
    assert max(one["bytes"] for one in seen) < 0.8 * seen[0]["alone"]  # each holds its part


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_gloo_rank_that_ends_or_stops_ends_the_others_call_in_time(how, tmp_path):
    pytest.importorskip("torch")
    assert all(seconds < 15.0 for seconds in launched(how, 3, tmp_path, {0, 2}))
