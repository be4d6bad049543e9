#!/usr/bin/env python3
"""What common ways to select break: torch.topk, NumPy argpartition and a bounded heap as engines, judged by `seriatim
check`.

    judge_engines.py --seriatim BIN [--torch] [--keep DIR]

Prints the table of docs/conformance.md. Every engine gets the same queries: 24 visible counts on both sides of the
budget, 15 of them above it, and three kinds of scores: `zeros` (as a relu makes them, so that the cut lies among exact
zeros), `bf16` (normal, rounded to bf16: some are equal) and `close` (distinct, all between 100 and 100.1).
"""

import argparse
import heapq
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "oracle"))
from rounding import to_bf16  # noqa: E402
from safetensors_file import Tensor, save  # noqa: E402
from selection import select_row  # noqa: E402

GROUP, BUDGET = 4, 2048
KEPT = BUDGET // GROUP
VISIBLE = [0, 1, 3, 4, 7, 2047, 2048, 2049, 2051, 2052, 2053, 2055, 2056, 2100, 2500, 3001, 4096, 4097, 4099, 8191,
           8192, 8193, 16383, 16384]
PROMISES = ["range", "duplicate", "width", "expansion", "tail", "membership", "tie", "order", "dense"]


def expand(groups, visible):
    row = [group * GROUP + k for group in groups for k in range(GROUP)]
    return row + list(range(visible - visible % GROUP, visible))


def rule(scores, visible):
    return select_row(scores, visible, GROUP, BUDGET)


def argpartition(scores, visible):
    kept = min(KEPT, len(scores))
    return expand(np.argpartition(-scores, kept - 1)[:kept] if kept else [], visible)


def argsort(scores, visible):
    return expand(np.sort(np.argsort(-scores)[:KEPT]), visible)


def heap(scores, visible):
    """A heap of the best so far, which a later equal replaces."""
    best = []
    for group, score in enumerate(scores):
        if len(best) < KEPT:
            heapq.heappush(best, (score, group))
        else:
            heapq.heappushpop(best, (score, group))
    return expand(sorted(group for _, group in best), visible)


def by_token(scores, visible):
    """The best tokens over scores that every token of a group copies: B + n mod r of them."""
    width = min(visible, BUDGET + GROUP - 1)
    copied = np.append(np.repeat(scores, GROUP), np.full(visible % GROUP, -np.inf, "f4"))
    return np.sort(np.argsort(-copied, kind="stable")[:width])


def half(scores, visible):
    """The right rule, over scores rounded to f16."""
    with np.errstate(over="ignore"):
        return rule(scores.astype("<f2").astype("<f4"), visible)


def torch_engines():
    import torch

    def topk(order):
        def engine(scores, visible):
            best = torch.topk(torch.from_numpy(scores.copy()), min(KEPT, len(scores)), sorted=True).indices
            return expand((best.sort().values if order else best).tolist(), visible)
        return engine

    return {f"torch.topk {torch.__version__.split('+')[0]}, as it comes": topk(False),
            "torch.topk, indices sorted": topk(True)}


def draw(rng, kind, groups):
    if kind == "zeros":
        return np.maximum(rng.standard_normal(groups), 0).astype("<f4") * (rng.random(groups) < 0.2)
    if kind == "bf16":
        return to_bf16(np.abs(rng.standard_normal(groups)).astype("<f4"))
    return (100 + rng.permutation(groups) * np.float32(2.0**-17) * 3).astype("<f4")


def queries(rng, kind):
    for visible in VISIBLE:
        yield visible, draw(rng, kind, visible // GROUP)


def judge(tool, engine, kind, path):
    rows, given = [], []
    for visible, scores in queries(np.random.default_rng(7), kind):
        rows.append(list(map(int, engine(scores.astype("<f4"), visible))))
        given.append(scores)
    width, groups = max(map(len, rows)), max(map(len, given))
    padded = np.array([row + [-1] * (width - len(row)) for row in rows], "<i4")
    scores = np.array([np.append(s, np.zeros(groups - len(s), "f4")) for s in given], "<f4")
    tensors = {"rows": Tensor("I32", padded), "visible": Tensor("I64", np.array(VISIBLE, "<i8")),
               "scores": Tensor("F32", scores)}
    save(path, tensors, {"seriatim": "selection/1", "group_tokens": str(GROUP), "budget_tokens": str(BUDGET),
                         "engine": path.stem})
    done = subprocess.run([tool, "check", path, "--json", "-"], text=True, capture_output=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seriatim", required=True)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path)
    arguments = parser.parse_args()
    engines = {"the rule (tests/oracle)": rule, f"numpy.argsort {np.__version__}, sorted": argsort,
               "numpy.argpartition, as it comes": argpartition,
               "a bounded heap, sorted": heap, "tokens over copied scores": by_token, "the rule over f16 scores": half}
    if arguments.torch:
        engines.update(torch_engines())
    print("| engine | scores | " + " | ".join(PROMISES) + " |\n|---|---|" + "---|" * len(PROMISES))
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.keep or pathlib.Path(name)
        folder.mkdir(exist_ok=True)
        for number, (title, engine) in enumerate(engines.items()):
            for kind in ("zeros", "bf16", "close"):
                report = judge(arguments.seriatim, engine, kind, folder / f"engine{number}_{kind}.safetensors")
                faults = [str(report["counts"][promise]["faults"] or "") for promise in PROMISES]
                print(f"| {title} | {kind} | " + " | ".join(faults) + " |")


if __name__ == "__main__":
    main()
