#!/usr/bin/env python3
"""A decode step over many ranks, modelled: what is sent is counted by the library's own code over ranks that are
threads (seriatim-sharded-counts), latency and bandwidth of a link and a machine's memory bandwidth are filled in.

    build/bench/seriatim-sharded-counts | tools/sharding_model.py docs/images/sharding.svg

Prints the tables of docs/sharding.md and draws tokens per second against ranks. What is modelled is the sparse
attention of LAYERS layers, one sequence, one token at a time; everything else of a model is left out.
"""

import json
import math
import sys

LAYERS = 12
MEMORY = 20e9  # bytes a second that one machine reads
INDEX_BYTES = 64  # of pooled keys per token: 128 dims of bf16 for 4 tokens
SPLIT_BYTES = 128 * 2048  # keys and values of 128 entries
ROUNDS = 4  # of messages that wait for each other, besides those of the finish: plan, check, borders, result
LINKS = {"10 GbE": (50e-6, 1.25e9), "100 GbE": (10e-6, 12.5e9), "fast fabric": (2e-6, 25e9)}
PER_MESSAGE = 1e-6  # what a rank spends on sending one
LENGTHS = [1 << 20, 4 << 20, 16 << 20]


def step(count, tokens, link):
    """Seconds of one layer's plan and attend."""
    ranks = count["ranks"]
    local = (tokens / ranks * INDEX_BYTES + count["most_splits"] * SPLIT_BYTES) / MEMORY
    if ranks == 1:
        return local
    latency, bandwidth = LINKS[link]
    hops = count["reducing"] - 1 if count["finish"] == "chain" else 1
    rest = (count["most_plan_bytes"] + count["most_attend_bytes"]) / bandwidth + count["most_messages"] * PER_MESSAGE
    return local + (ROUNDS + hops) * latency + rest


def best(counts, ranks, tokens, link):
    return min(step(c, tokens, link) for c in counts if c["ranks"] == ranks)


def crossing(counts, ranks, link):
    """The least length, in steps of 1,024 tokens, from which so many ranks are faster than one."""
    low, high = 0, 1 << 21
    while low < high:
        tokens = (low + high) // 2 * 1024
        if best(counts, ranks, tokens, link) < best(counts, 1, tokens, link):
            high = (low + high) // 2
        else:
            low = (low + high) // 2 + 1
    return max(low * 1024, 2052)  # shorter rows leave nothing out


def draw(counts, ranks, path):
    wide, high, left, top = 300, 210, 50, 30
    colours = {"10 GbE": "#b5651d", "100 GbE": "#1f6fb4", "fast fabric": "#2a8a3e"}
    rates = {(n, l): [1 / (LAYERS * best(counts, k, n, l)) for k in ranks] for n in LENGTHS for l in LINKS}
    most = max(max(values) for values in rates.values())
    ceiling = 10
    while ceiling < most:
        ceiling *= 10
    least = 1
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{3 * (wide + 30) + 40}" height="{high + 90}" '
           'font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="white"/>']
    for place, tokens in enumerate(LENGTHS):
        x0 = left + place * (wide + 30)

        def at(index, rate):
            y = math.log(max(rate, least) / least) / math.log(ceiling / least)
            return x0 + index * wide / (len(ranks) - 1), top + high * (1 - y)

        out.append(f'<text x="{x0}" y="18">{tokens >> 20} million tokens</text>')
        out.append(f'<rect x="{x0}" y="{top}" width="{wide}" height="{high}" fill="none" stroke="#999"/>')
        line = least
        while line <= ceiling:
            _, y = at(0, line)
            out.append(f'<line x1="{x0}" x2="{x0 + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
            if place == 0:
                out.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{line}</text>')
            line *= 10
        for index, count in enumerate(ranks):
            x, _ = at(index, 1)
            out.append(f'<text x="{x:.1f}" y="{top + high + 14}" text-anchor="middle">{count}</text>')
        for link, colour in colours.items():
            points = " ".join("%.1f,%.1f" % at(i, rate) for i, rate in enumerate(rates[tokens, link]))
            out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    out.append(f'<text x="{left}" y="{top + high + 34}">tokens per second (logarithmic) against ranks</text>')
    for index, (link, colour) in enumerate(colours.items()):
        out.append(f'<text x="{left + 330 + 110 * index}" y="{top + high + 34}" fill="{colour}">{link}</text>')
    out.append("</svg>")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


def main():
    counts = [json.loads(line) for line in sys.stdin if line.strip()]
    ranks = sorted({c["ranks"] for c in counts})
    print("| ranks | finish | messages | bytes | most of one rank | hops of the finish |\n|---|---|---|---|---|---|")
    for c in counts:
        hops = max(c["reducing"] - 1, 0) if c["finish"] == "chain" else int(c["ranks"] > 1)
        print(f"| {c['ranks']} | {c['finish']} | {c['messages']:,} | {c['bytes']:,} "
              f"| {c['most_plan_bytes'] + c['most_attend_bytes']:,} | {hops} |")
    print("\n| link | tokens | " + " | ".join(f"{k}" for k in ranks) + " |\n|---|---|" + "---|" * len(ranks))
    for link in LINKS:
        for tokens in LENGTHS:
            rates = [1 / (LAYERS * best(counts, k, tokens, link)) for k in ranks]
            print(f"| {link} | {tokens:,} | " + " | ".join(f"{rate:,.0f}" for rate in rates) + " |")
    print("\n| link | " + " | ".join(f"{k}" for k in ranks[1:]) + " |\n|---|" + "---|" * (len(ranks) - 1))
    for link in LINKS:
        print(f"| {link} | " + " | ".join(f"{crossing(counts, k, link):,}" for k in ranks[1:]) + " |")
    draw(counts, ranks, sys.argv[1])


if __name__ == "__main__":
    main()
