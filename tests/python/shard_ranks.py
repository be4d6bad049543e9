"""One of several gloo processes, started by test_shard.py: what it sees goes to OUT.json, rank by rank.

shard_ranks.py SCENARIO OUT
"""

import json
import os
import pathlib
import signal
import sys
import time

import numpy as np

import seriatim
import seriatim.shard
from support_layers import SMALL, Tokens


def transport_moves_bytes(transport, group):
    size, rank = transport.size, transport.rank
    for length in (0, 1, 4096, 4097, 100_000):
        blocks = bytearray(length * size)
        transport.all_gather(memoryview(bytes([rank + 1]) * length), memoryview(blocks))
        assert blocks == b"".join(bytes([other + 1]) * length for other in range(size))
    for length in (0, 5, 1 << 20):  # all send first
        for turn in range(3):
            transport.send((rank + 1) % size, memoryview(bytes([rank + turn]) * length))
        for turn in range(3):
            got = bytearray(length)
            transport.receive((rank - 1) % size, memoryview(got))
            assert got == bytes([(rank - 1) % size + turn]) * length
    told = bytearray(b"told" if rank == 1 else b"0000")
    transport.broadcast(1, memoryview(told))
    assert told == b"told"
    transport.all_gather(memoryview(b"1"), memoryview(bytearray(size)))
    assert not transport._outgoing  # no buffer is kept for longer than its message is under way
    refusals = []
    for call in (lambda: transport.all_gather(memoryview(bytes(3 + (rank == 1))),
                                              memoryview(bytearray((3 + (rank == 1)) * size))),
                 lambda: group.agree("append", tokens=rank // 2)):
        try:
            call()
        except seriatim.InvalidArgument as error:
            refusals.append(str(error))
    group.agree("both are still in step")
    return refusals


def decode_gives_the_bits_of_one_process(transport, group):
    return decode(group)


def decode(group):
    """Digests of rows and outputs, of a sharded cache and of one process."""
    geometry, tokens = seriatim.Geometry(**SMALL), Tokens(450)
    cache = seriatim.shard.ShardedCache(group, geometry, capacity_tokens=4096, page_tokens=64)
    user = cache.add(0, cache.even_cuts(400))
    alone = seriatim.Cache(geometry, capacity_tokens=4096, page_tokens=64)
    only = alone.add()
    compared = 0
    for first, last in [(0, 400), *((at, at + 1) for at in range(400, 450))]:
        answers = []
        for store, sequence in ((cache, user), (alone, only)):
            with store.begin() as step:
                step.append(sequence, 0, tokens.keys[first:last], tokens.values[first:last],
                            tokens.index_keys[first:last])
                layer = step.layer(sequence)
                rows = layer.plan(tokens.index_queries[first:last], np.arange(first, last))
                output, lse = layer.attend(tokens.queries[first:last], np.arange(first, last), rows, return_lse=True)
            answers.append([rows.positions.tobytes(), rows.counts.tobytes(), output.tobytes(), lse.tobytes()])
        assert answers[0] == answers[1], f"tokens {first} to {last}"
        compared += last - first
    user.rebalance()
    borders = user.borders
    rows = user.layer().plan(tokens.index_queries, np.arange(450))
    due = only.layer().plan(tokens.index_queries, np.arange(450))
    assert rows.positions.tobytes() == due.positions.tobytes()
    user.truncate(420)
    assert user.tokens == 420
    return {"compared": compared, "borders": list(borders), "bytes": cache.bytes.keys_values,
            "alone": alone.bytes.keys_values}


def lost(how):
    def scenario(transport, group):
        for _ in range(5):
            group.agree("step")
        if transport.rank == 1:
            os.kill(os.getpid(), how)
        started = time.monotonic()
        try:
            while True:
                group.agree("step")
        except seriatim.PeerLost:
            return time.monotonic() - started
    return scenario


SCENARIOS = {
    "transport": transport_moves_bytes,
    "decode": decode_gives_the_bits_of_one_process,
    "killed": lost(signal.SIGKILL),
    "stopped": lost(signal.SIGSTOP),
}


def main():
    import torch.distributed as dist  # threads of one process, which share the scenarios, do without

    scenario, out = sys.argv[1], pathlib.Path(sys.argv[2])
    dist.init_process_group("gloo")
    transport = seriatim.shard.GlooTransport(timeout=5.0)
    group = seriatim.shard.meet(transport, scenario=scenario)
    seen = SCENARIOS[scenario](transport, group)
    (out / f"{transport.rank}.json").write_text(json.dumps(seen))
    if scenario in ("killed", "stopped"):
        os._exit(0)  # gloo would wait for the rank that is gone
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
