"""One context over several ranks: threads of one process, and gloo processes."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

import seriatim
import seriatim.shard
from shard_ranks import decode
from support_layers import SMALL, Tokens

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLE = HERE.parent.parent / "examples" / "sharded" / "decode.py"


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


def ended(commands, wait_for=None):
    """Exit status and words of the ranks of a gloo launch that are waited for (None: all). The others are ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    names = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(len(commands)),
                 OMP_NUM_THREADS="1")
    processes = [
        subprocess.Popen(command, cwd=HERE, env=dict(names, RANK=str(rank)), stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
        for rank, command in enumerate(commands)
    ]
    try:
        said = [process.communicate(timeout=120)[0] for rank, process in enumerate(processes)
                if wait_for is None or rank in wait_for]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    seen = [process for rank, process in enumerate(processes) if wait_for is None or rank in wait_for]
    return [(process.returncode, words) for process, words in zip(seen, said)]


def launched(scenario, ranks, folder, expected):
    """What the ranks of a gloo launch saw. A rank that stays stopped is ended."""
    said = ended([[sys.executable, HERE / "shard_ranks.py", scenario, folder]] * ranks, expected)
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


def decoded(store, sequence, tokens, first, last):
    """Appends, plans and attends; the bits of what came out."""
    with store.begin() as step:
        for at in range(first, last, 50):
            part = slice(at, min(at + 50, last))
            step.append(sequence, 0, tokens.keys[part], tokens.values[part], tokens.index_keys[part])
    layer, every = sequence.layer(), np.arange(sequence.anchor, sequence.anchor + sequence.tokens)
    rows = layer.plan(tokens.index_queries[: len(every)], every)
    output, lse = layer.attend(tokens.queries[: len(every)], every, rows, return_lse=True)
    return [rows.positions.tobytes(), rows.counts.tobytes(), output.tobytes(), lse.tobytes()]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("mode", ["copy", "map", "map_verified"])
def test_what_three_ranks_saved_goes_on_on_any_number_with_the_bits_of_one_process(ranks, mode, tmp_path):
    geometry, prompts = seriatim.Geometry(**SMALL), [Tokens(230, seed=1), Tokens(170, seed=2)]

    def saved(end):
        cache = seriatim.shard.ShardedCache(seriatim.shard.meet(end), geometry, capacity_tokens=4096, page_tokens=64)
        users = [cache.add(5, cache.even_cuts(200, 5)), cache.add(), cache.add()]
        for user, tokens, count in zip(users, prompts, (200, 130)):
            decoded(cache, user, tokens, 0, count)
        cache.save(tmp_path, users[:2])
        return users[0].borders

    assert on_threads(3, saved)[0][0] == 5
    alone = seriatim.Cache(geometry, capacity_tokens=4096, page_tokens=64)
    only = [alone.add(5), alone.add()]
    due = []
    for user, tokens, count in zip(only, prompts, (200, 130)):
        decoded(alone, user, tokens, 0, count)
        due.append(decoded(alone, user, tokens, count, count + 30))

    def restored(end):
        cache = seriatim.shard.ShardedCache(seriatim.shard.meet(end), geometry, capacity_tokens=4096, page_tokens=64)
        back = cache.restore(str(tmp_path), mode)
        seen = [(user.anchor, user.tokens) for user in back.values()]
        got = [decoded(cache, user, tokens, count, count + 30)
               for user, tokens, count in zip(back.values(), prompts, (200, 130))]
        return seen, [user.borders for user in back.values()], got

    for seen, borders, got in on_threads(ranks, restored):
        assert seen == [(5, 200), (0, 130)]
        assert [len(each) for each in borders] == [ranks + 1] * 2
        assert got == due


def test_one_process_file_opens_on_two_ranks_and_one_rank_folder_in_one_process(tmp_path):
    geometry, tokens = seriatim.Geometry(**SMALL), Tokens(150)
    alone = seriatim.Cache(geometry, capacity_tokens=4096)
    only = alone.add()
    due = decoded(alone, only, tokens, 0, 150)
    alone.save(tmp_path / "cache.safetensors")
    for ranks in "12":
        (tmp_path / ranks).mkdir()

    def restored(end):
        cache = seriatim.shard.ShardedCache(seriatim.shard.meet(end), geometry, capacity_tokens=4096)
        user, = cache.restore(tmp_path / "cache.safetensors").values()
        got = decoded(cache, user, tokens, 150, 150)
        cache.save(tmp_path / str(end.size))  # the folder is there
        return got

    assert on_threads(2, restored) == [due] * 2
    assert on_threads(1, restored) == [due]
    file, = (tmp_path / "1").glob("rank-*.safetensors")
    other = seriatim.Cache(geometry, capacity_tokens=4096)
    user, = other.restore(file).values()
    assert decoded(other, user, tokens, 150, 150) == due


def test_a_folder_that_cannot_be_restored_is_refused_alike_on_all_ranks_and_adds_nothing(tmp_path):
    geometry, tokens = seriatim.Geometry(**SMALL), Tokens(100)
    folder, empty = tmp_path / "saved", tmp_path / "empty"
    folder.mkdir()
    empty.mkdir()

    def refused(end):
        cache = seriatim.shard.ShardedCache(seriatim.shard.meet(end), geometry, capacity_tokens=4096)
        other = seriatim.shard.ShardedCache(cache.group, geometry, capacity_tokens=4096)
        user = cache.add()
        decoded(cache, user, tokens, 0, 100)
        with pytest.raises(seriatim.InvalidArgument, match="sequences: .*another cache"):
            other.save(folder, [user])
        with pytest.raises(seriatim.InvalidArgument, match="sequences: .*no ShardedSequence"):
            cache.save(folder, [user, 1])
        with pytest.raises(seriatim.InvalidArgument, match="mode: 'mapped' is none of"):
            cache.restore(folder, "mapped")
        with pytest.raises(seriatim.NotFound) as nothing:
            other.restore(empty)
        cache.save(folder)
        if end.rank == 0:
            last, = folder.glob("rank-1.*.safetensors")
            damaged = bytearray(last.read_bytes())
            damaged[len(damaged) // 2] ^= 0xFF
            last.write_bytes(damaged)
        cache.group.agree("damaged")
        with pytest.raises(seriatim.Corrupt) as corrupt:
            other.restore(folder)
        assert other.bytes.keys_values == 0
        return str(nothing.value), str(corrupt.value)

    first, second = on_threads(2, refused)
    assert first == second and isinstance(first, tuple), first
    assert first[1].startswith("rank 1: "), first


def test_a_rank_that_never_comes_is_lost_in_time():
    end = seriatim.shard.thread_ends(2, 0.2)[0]
    with pytest.raises(seriatim.PeerLost) as caught:
        seriatim.shard.meet(end)
    assert caught.value.index == 1
    assert isinstance(caught.value, ConnectionError)


def test_an_exception_of_a_transport_is_the_loss_of_a_rank_whatever_it_is():
    class Unshowable(Exception):
        def __str__(self):
            raise ValueError

    coded = seriatim.Error("no code of the library")
    coded.code = 0
    for raised in (Unshowable(), coded, OSError("closed")):
        class Failing:
            rank, size = 0, 2

            def all_gather(self, block, blocks, raised=raised):
                raise raised

            send = receive = broadcast = all_gather

        with pytest.raises(seriatim.PeerLost, match="transport: "):
            seriatim.shard.meet(Failing())


def test_what_is_no_transport_is_refused():
    with pytest.raises(seriatim.InvalidArgument, match="transport: has no"):
        seriatim.shard.meet(object())


def test_the_example_goes_on_from_its_save_over_threads():
    done = subprocess.run([sys.executable, EXAMPLE, "--threads", "3"], text=True, stdout=subprocess.PIPE, check=True)
    assert done.stdout.splitlines() == [
        "3 ranks, 1050 tokens: the bits of one process",
        "rank 0 holds positions 0 to 511",
        "rank 1 holds positions 512 to 1023",
        "rank 2 holds positions 1024 to 1049",
    ]


def test_the_example_goes_on_from_its_save_over_gloo():
    pytest.importorskip("torch")
    said = ended([[sys.executable, EXAMPLE] for _ in range(2)])
    assert said[0][0] == said[1][0] == 0, said
    assert "2 ranks, 1050 tokens: the bits of one process" in said[0][1].splitlines()
    assert "the bits" not in said[1][1]


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
