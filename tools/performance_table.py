#!/usr/bin/env python3
"""Turns the JSON of scripts/bench into the table of docs/performance.md, on stdout.

    scripts/bench --json bench.json && tools/performance_table.py bench.json
"""

import json
import sys


def duration(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        run = json.load(file)
    machine = run["machine"]
    print(f"{machine['cpu']}, kernels {machine['kernels']}, {machine['build']}, {machine['date']}.\n")
    for limits in machine["limits"]:
        print(f"- {limits['threads']} thread(s): fma peak {2 * limits['fma_per_ns']:.0f} GFLOP/s; "
              f"reads {limits['dram_bytes_per_ns']:.1f} GB/s from DRAM "
              f"({limits['runs_bytes_per_ns']:.1f} in scattered runs of 8 KiB), "
              f"{limits['l3_bytes_per_ns']:.0f} from 4 MiB, {limits['l2_bytes_per_ns']:.0f} from 256 KiB a thread")
    print("\n| measure | median | spread | limit | to limit | peers, times slower | target | met |")
    print("|---|---|---|---|---|---|---|---|")
    for m in run["measures"]:
        limit = duration(m["limit_ns"]) if m["limit_ns"] else ""
        if "long_read_limit_ns" in m:
            limit += f" ({duration(m['long_read_limit_ns'])} if read in one piece)"
        ratio = f"{m['to_limit']:.2f}" if m["to_limit"] else ""
        peers = "; ".join(f"{name} {times:.1f}" for name, times in m["peers"].items())
        met = {True: "yes", False: "**no**", None: ""}[m["met"]]
        if "limits_ratio" in m:
            met += f" (the limits' own ratio: {m['limits_ratio']:.2f})"
        print(f"| {m['name']} | {duration(m['median_ns'])} | {100 * m['spread']:.0f} % | {limit} | {ratio} | "
              f"{peers} | {m['target']} | {met} |")


if __name__ == "__main__":
    main()
