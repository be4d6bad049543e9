"""Judges captures of minimax_m3_vl and deepseek_v4 (tests/fixtures/families): rows exactly, outputs by their distance.

    python3 judge_families.py CAPTURE.safetensors...

Exit 1 if a row is not the contract's, if Transformers chose otherwise for another reason than equal scores, if an
output strays, or if pooling does not give the file's entries.
"""

import json
import sys
from pathlib import Path

import numpy as np

from attention import attend
from families import expand, finished_entries, forced_groups, select_set, two_store_row, unit_max
from safetensors_file import load, widen
from scores import group_scores

OUTPUT_BOUND = {"F32": 2e-6, "BF16": 3e-2}
POOLED_BOUND = {"F32": 4e-6, "BF16": 0.0}


def live(row):
    return row[row >= 0].tolist()


def differ_by_ties(ours, theirs, scores):
    """Whether two sets of one size differ only in units of one score."""
    odd = sorted(set(ours) ^ set(theirs))
    return len(ours) == len(theirs) and len({float(scores[u]) for u in odd}) <= 1


class Judge:
    def __init__(self, path):
        tensors, metadata = load(path)
        self.geometry = json.loads(metadata["geometry"])
        self.storage = tensors["keys"].dtype
        self.t = {name: widen(x) if x.dtype in ("F32", "BF16", "F16") else x.data for name, x in tensors.items()}
        self.rows = self.tied = 0
        self.faults = []
        self.worst = 0.0

    def row(self, where, ours, expected, reference, scores):
        self.rows += 1
        if ours != expected:
            self.faults.append(f"{where}: {ours} is not {expected}")
        if reference != expected:
            self.tied += 1
            if scores is None or not differ_by_ties(expected, reference, scores):
                self.faults.append(f"{where}: the reference's row differs in more than ties")

    def output(self, query, heads, keys, values, sinks=None):
        got, _ = attend(self.t["queries"][query, heads], keys, values, self.geometry["head_dim"] ** -0.5, sinks)
        self.worst = max(self.worst, float(np.abs(got - self.t["expected_output"][query, heads]).max()))

    def row_sets(self):
        """minimax_m3_vl: a row per kv head over blocks scored by their best token."""
        t, g = self.t, self.geometry
        r, sets = g["group_tokens"], g["selections"]
        for q, position in enumerate(t["query_positions"]):
            visible = int(position) + 1
            for s in range(sets):
                scores = group_scores(t["index_queries"][q : q + 1, s : s + 1], t["index_keys"][:visible], None, False,
                                      "nowhere")[0]
                best = unit_max(scores, r)
                chosen = select_set(best, g["budget_tokens"] // r, forced_groups(len(best), 0, g["forced_newest"]))
                expected = live(t["expected_rows"][q, s])
                reference = live(t.get("reference_rows", t["expected_rows"])[q, s])
                self.row(f"query {q}, selection {s}", expand(chosen, r, visible), expected, reference,
                         np.repeat(best, r))
                share = g["query_heads"] // sets
                self.output(q, slice(s * share, (s + 1) * share), t["keys"][reference, s : s + 1],
                            t["values"][reference, s : s + 1])

    def two_stores(self):
        """deepseek_v4: entries, then a window of tokens, in one softmax with a sink."""
        t, g = self.t, self.geometry
        for q, position in enumerate(t["query_positions"]):
            scores = None
            if g["scored"]:
                scores = group_scores(t["index_queries"][q : q + 1], t["index_entries"],
                                      t["index_head_weights"][q : q + 1], True, "after_relu")[0]
            entries, window = two_store_row(scores, int(position) + 1, g["entry_stride"], g["budget_entries"],
                                            g["window_tokens"])
            count, width = t["expected_counts"][q]
            expected = t["expected_rows"][q].tolist()
            reference = t.get("reference_rows", t["expected_rows"])[q].tolist()
            self.row(f"query {q}", entries, expected[:count], reference[:count], scores)
            self.row(f"query {q}, window", window, expected[count : count + width], window, None)
            store = np.concatenate([t["entries"][reference[:count]], t["keys"][window]])
            self.output(q, slice(None), store, store, t["sinks"])
        for prefix in ("", "index_"):
            if prefix + "pool_kv" in t:
                self.pooling(prefix)

    def pooling(self, prefix):
        t, g = self.t, self.geometry
        made = finished_entries(*(t[prefix + "pool_" + x] for x in ("kv", "gate", "bias", "norm")), 1e-6, t["inv_freq"],
                                g["entry_stride"], g["entry_overlap"], self.storage)
        told = t[prefix + "entries"].reshape(len(t[prefix + "entries"]), -1)
        if made.shape != told.shape or not np.abs(made - told).max() <= POOLED_BOUND[self.storage]:
            self.faults.append(f"{prefix}entries are not the file's")

    def run(self):
        self.row_sets() if "selections" in self.geometry else self.two_stores()
        if not self.worst <= OUTPUT_BOUND[self.storage]:
            self.faults.append(f"outputs stray by {self.worst:.1e}")
        return self


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    failed = False
    for path in sys.argv[1:]:
        judged = Judge(path).run()
        print(f"{Path(path).stem:24} {judged.rows:4} rows, {judged.tied} tied in the reference, output within "
              f"{judged.worst:.1e}, {len(judged.faults)} faults")
        for fault in judged.faults[:5]:
            print(f"  {fault}")
        failed |= bool(judged.faults) or judged.rows == 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
