#!/usr/bin/env python3
"""What the same tokens give when only the way of computing changes, without and with the backend: a table of
docs/llama.md.

    repeatability.py --run llama_run --backend libggml-seriatim.so --models FOLDER [FAMILY...]

The largest difference of the logits of the last token of a prompt and of 4 decoded ones, relative to the largest.
0: the same bits.
"""

import argparse
import tempfile
from pathlib import Path

import running
from model_families import FAMILIES

BASE = {"tokens": 600, "ubatch": 200, "steps": 4, "threads": 1}
CHANGES = {"2 threads": {"threads": 2}, "3 threads": {"threads": 3}, "calls of 64": {"ubatch": 64},
           "calls of 1": {"ubatch": 1}, "beside two others": {"sequences": 3, "ubatch": 600}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("run", "backend", "models"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    arguments = parser.parse_args()
    Path(arguments.models).mkdir(parents=True, exist_ok=True)
    print(f"| family | |{'|'.join(f' {name} ' for name in CHANGES)}|")
    print(f"|---|---|{'---|' * len(CHANGES)}")
    with tempfile.TemporaryDirectory() as folder:
        for family in arguments.families:
            model = running.make_model(family, Path(arguments.models) / f"{family}-tiny-256.gguf", budget=256)
            for engine, backend in (("llama.cpp", None), ("with Seriatim", arguments.backend)):
                logits = [running.run(arguments.run, model, backend=backend, logits=Path(folder) / "logits.npy",
                                      **{**BASE, **change}).logits[:, 0] for change in ({}, *CHANGES.values())]
                cells = [f" {running.distance(logits[0], other):.0e} " if (logits[0] != other).any() else " 0 "
                         for other in logits[1:]]
                print(f"| {family} | {engine} |{'|'.join(cells)}|", flush=True)


if __name__ == "__main__":
    main()
