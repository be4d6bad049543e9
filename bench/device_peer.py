#!/usr/bin/env python3
"""device_peer.py [--tokens N] [--prefill Q] [--device cuda]: what torch takes for the same step on the same GPU, as one
JSON.

QSA's real geometry in bf16: the relu'd scores of 4 index heads, topk of 512 groups, their sorted tokens by
index_select, and scaled_dot_product_attention over them. torch's own choice of kernels; ties and the order of sums are
torch's, so the bits are not compared. `topk_attend` is the step without the scores, which is what a layer pays when
they are given."""

import argparse
import json
import time

import torch

GROUP, GROUPS_KEPT, HEADS, KV_HEADS, DIM, INDEX_HEADS, INDEX_DIM = 4, 512, 24, 2, 256, 4, 128


def seconds_of(work, device, limit=0.5):
    """The fastest of what fits into the time, after three for warmth."""
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    for _ in range(3):
        work()
    wait()
    best, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < limit:
        start = time.perf_counter()
        work()
        wait()
        best = min(best, time.perf_counter() - start)
    return best


def step(tokens, queries, device):
    draw = lambda *shape: torch.randn(*shape, device=device, dtype=torch.bfloat16)
    keys, values = draw(tokens, KV_HEADS, DIM), draw(tokens, KV_HEADS, DIM)
    pooled, index_queries = draw(tokens // GROUP, INDEX_DIM), draw(queries, INDEX_HEADS, INDEX_DIM)
    asked = draw(queries, HEADS, 1, DIM)
    in_group = torch.arange(GROUP, device=device)

    def score():
        return torch.relu(torch.einsum("qhd,gd->qhg", index_queries, pooled)).float().sum(1)

    given = score()

    def topk_attend(scores):
        chosen = scores.topk(GROUPS_KEPT, dim=-1).indices.sort(dim=-1).values
        row = (chosen[:, :, None] * GROUP + in_group).reshape(-1)
        k = keys.index_select(0, row).view(queries, -1, KV_HEADS, DIM).transpose(1, 2)
        v = values.index_select(0, row).view(queries, -1, KV_HEADS, DIM).transpose(1, 2)
        return torch.nn.functional.scaled_dot_product_attention(asked, k, v, enable_gqa=True)

    return {
        "queries": queries,
        "score_us": seconds_of(score, device) * 1e6,
        "topk_us": seconds_of(lambda: given.topk(GROUPS_KEPT, dim=-1), device) * 1e6,
        "topk_attend_us": seconds_of(lambda: topk_attend(given), device) * 1e6,
        "step_us": seconds_of(lambda: topk_attend(score()), device) * 1e6,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=262144)
    parser.add_argument("--prefill", type=int, default=64)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    given = parser.parse_args()
    name = torch.cuda.get_device_name() if given.device == "cuda" else "this machine's CPU"
    with torch.inference_mode():
        report = {"torch": torch.__version__, "product": name, "visible_tokens": given.tokens,
                  "decode": step(given.tokens, 1, given.device),
                  "prefill": step(given.tokens, given.prefill, given.device)}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
