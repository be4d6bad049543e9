#!/usr/bin/env python3
"""Writes a capture of any size with random content and no expected answers: for trying sizes that no fixture can have.

    tools/make_random_capture.py OUT [--tokens 262144] [--queries 4] [--dtype f32|bf16] [--seed 1]
                                     [--heads 24,2,256] [--index 4,128,64] [--group 4] [--budget 2048]

The last tokens are the queries. Needs NumPy alone; writes in pieces, so that memory stays small.
"""

import argparse
import json
import struct

import numpy as np

PIECE = 1 << 20  # values drawn and written at a time


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--tokens", type=int, default=262144)
    parser.add_argument("--queries", type=int, default=4)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--heads", default="24,2,256", help="query heads, kv heads, head dim")
    parser.add_argument("--index", default="4,128,64", help="index heads, index dim, index rotary dim")
    parser.add_argument("--group", type=int, default=4)
    parser.add_argument("--budget", type=int, default=2048)
    return parser.parse_args()


def encode(values, dtype):
    if dtype == "F32":
        return values.astype("<f4").tobytes()
    bits = values.astype("<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def main():
    arguments = parse_arguments()
    query_heads, kv_heads, head_dim = map(int, arguments.heads.split(","))
    index_heads, index_dim, rotary = map(int, arguments.index.split(","))
    tokens, queries, dtype = arguments.tokens, arguments.queries, arguments.dtype.upper()
    geometry = {"group_tokens": arguments.group, "budget_tokens": arguments.budget, "query_heads": query_heads,
                "kv_heads": kv_heads, "head_dim": head_dim, "index_heads": index_heads, "index_dim": index_dim,
                "index_rotary_dim": rotary, "rope_theta": 1e7, "norm_eps": 1e-6}
    shapes = {"query_positions": ("I64", [queries]), "index_norm_weight": ("F32", [index_dim]),
              "index_keys": (dtype, [tokens, index_dim]), "index_queries": (dtype, [queries, index_heads, index_dim]),
              "queries": (dtype, [queries, query_heads, head_dim]), "keys": (dtype, [tokens, kv_heads, head_dim]),
              "values": (dtype, [tokens, kv_heads, head_dim])}
    width = {"I64": 8, "F32": 4, "BF16": 2}
    header = {"__metadata__": {"seriatim": "capture/1", "geometry": json.dumps(geometry),
                               "source": f"random, seed {arguments.seed}, no model"}}
    at = 0
    for name, (kind, shape) in shapes.items():
        size = int(np.prod(shape)) * width[kind]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    random = np.random.default_rng(arguments.seed)
    with open(arguments.out, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, (kind, shape) in shapes.items():
            if name == "query_positions":
                out.write(np.arange(tokens - queries, tokens, dtype="<i8").tobytes())
                continue
            scale = 0.2 if name == "index_norm_weight" else 1.0
            left = int(np.prod(shape))
            while left > 0:
                count = min(left, PIECE)
                out.write(encode(scale * random.standard_normal(count, dtype=np.float32), kind))
                left -= count


if __name__ == "__main__":
    main()
