"""One layer's decode loop with its context spread over processes.

    torchrun --nproc-per-node 2 examples/sharded/decode.py     # gloo of torch.distributed
    mpirun -n 4 python -m mpi4py examples/sharded/decode.py --mpi
    python examples/sharded/decode.py --threads 3              # ranks that are threads of this process: to try it

Every rank runs the model, so every rank has each token's keys, values and queries; the cache keeps the rank's own. In
the middle of the decode the context is saved and restored, as after a rank is lost: any number of ranks may go on. The
first rank also decodes alone, to show that the outputs are the same bits.
"""

import argparse
import tempfile
import threading

import numpy as np

import seriatim
import seriatim.shard

# QSA's group size and budget rules, small here so that the example is quick.
GEOMETRY = seriatim.Geometry(budget_tokens=64, query_heads=4, kv_heads=2, head_dim=32)
PROMPT, NEW = 1000, 50


def model(first, count):
    """What the layer's projections give for some tokens; random here, and equal on all ranks."""
    g, random = GEOMETRY, np.random.default_rng(first)

    def draw(*shape):
        return random.standard_normal(shape, np.float32)

    return {
        "keys": draw(count, g.kv_heads, g.head_dim),
        "values": draw(count, g.kv_heads, g.head_dim),
        "index_keys": draw(count, g.index_dim),
        "queries": draw(count, g.query_heads, g.head_dim),
        "index_queries": draw(count, g.index_heads, g.index_dim),
    }


def step(cache, user, first, count):
    """All of the tokens on all ranks, or none of them on any. A Cache and a ShardedCache are used alike."""
    made, positions = model(first, count), np.arange(first, first + count)
    with cache.begin() as transaction:
        transaction.append(user, 0, made["keys"], made["values"], made["index_keys"])
        layer = transaction.layer(user)
        rows = layer.plan(made["index_queries"], positions)
        return layer.attend(made["queries"], positions, rows)


def steps(first, last):
    """A prompt in one step, then token by token."""
    at = first
    while at < last:
        count = PROMPT if at == 0 else 1
        yield at, count
        at += count


def decode(transport, folder):
    group = seriatim.shard.meet(transport, example="decode")  # all ranks are there, of one version
    cache = seriatim.shard.ShardedCache(group, GEOMETRY, capacity_tokens=4096)
    user = cache.add(0, cache.even_cuts(PROMPT))  # the prompt in equal parts
    outputs = [step(cache, user, at, count) for at, count in steps(0, PROMPT + NEW // 2)]

    cache.save(folder)  # a folder that all ranks see; each writes its file
    cache = seriatim.shard.ShardedCache(group, GEOMETRY, capacity_tokens=4096)
    (user,) = cache.restore(folder).values()
    outputs += [step(cache, user, at, count) for at, count in steps(user.tokens, PROMPT + NEW)]

    if group.rank == 0:
        alone = seriatim.Cache(GEOMETRY, capacity_tokens=4096)
        only = alone.add()
        expected = [step(alone, only, at, count) for at, count in steps(0, PROMPT + NEW)]
        if [one.tobytes() for one in outputs] != [one.tobytes() for one in expected]:
            raise SystemExit("output: other bits than those of one process")
        print(f"{group.size} ranks, {sum(map(len, outputs))} tokens: the bits of one process")
        for rank in range(group.size):
            print(f"rank {rank} holds positions {user.borders[rank]} to {user.borders[rank + 1] - 1}")
    group.agree("end")  # nobody leaves before all are done


def over_threads(ranks, folder):
    failed = []

    def run(transport):
        try:
            decode(transport, folder)
        except (Exception, SystemExit) as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(end,)) for end in seriatim.shard.thread_ends(ranks, timeout=30.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, metavar="RANKS", help="ranks that are threads of this process")
    parser.add_argument("--mpi", action="store_true", help="ranks that mpirun has launched; needs mpi4py")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:  # the first rank's serves all; here they share a machine
        if options.threads:
            return over_threads(options.threads, folder)
        if options.mpi:
            from mpi4py import MPI

            return decode(seriatim.shard.MpiTransport(MPI.COMM_WORLD, timeout=30.0), MPI.COMM_WORLD.bcast(folder))

        import torch.distributed as dist

        dist.init_process_group("gloo")
        folders = [folder]
        dist.broadcast_object_list(folders)
        decode(seriatim.shard.GlooTransport(timeout=30.0), folders[0])
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
