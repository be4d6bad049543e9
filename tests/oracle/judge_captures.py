"""Judges what captures say their layer answered: rows by verdict, outputs by their distance on the captured row.

    python3 judge_captures.py CAPTURE.safetensors...

Needs no library: it shows that the contract, as NumPy renders it, describes the captured layer. Exit 1 if any row is
wrong, if an output strays past OUTPUT_BOUND, or if a capture holds nothing to judge.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from canonical import answer, attend_row
from capture import read_capture
from verdict import NEAR_MARGIN, judge

# Relative to the largest |v|. A bf16 layer rounds its softmax weights and its outputs to 8 bits.
OUTPUT_BOUND = {"F32": 1e-5, "BF16": 2e-2, "F16": 4e-3}


def captured_row(capture, query):
    stored = capture.expected_rows[query]
    return stored[stored >= 0].astype(np.int64)


def judge_capture(capture, answers):
    """Gives one Verdict per query, and the largest output difference over |v| on the captured rows."""
    verdicts, worst_output = [], 0.0
    for query, visible in enumerate(capture.visible):
        row = captured_row(capture, query)
        verdicts.append(judge(
            row,
            answers.rows[query],
            answers.scores[query][: visible // capture.group_tokens],
            answers.cut_scores[query],
            capture.anchor,
            capture.group_tokens,
            NEAR_MARGIN[capture.index_storage],
        ))
        output, _ = attend_row(capture, query, row)
        worst_output = max(worst_output, float(np.abs(output - capture.expected_output[query]).max()))
    return verdicts, worst_output / float(np.abs(capture.values).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captures", nargs="+")
    options = parser.parse_args()
    failed = False
    print(f"{'capture':24} queries sparse exact  tie near wrong  margin  output/|v|")
    for path in options.captures:
        capture = read_capture(path)
        if capture.expected_rows is None or capture.expected_output is None or len(capture.visible) == 0:
            print(f"{path}: nothing to judge", file=sys.stderr)
            failed = True
            continue
        verdicts, output = judge_capture(capture, answer(capture))
        kinds = Counter(verdict.kind for verdict in verdicts)
        sparse = int((capture.visible >= capture.budget_tokens + capture.group_tokens).sum())
        margin = max((v.margin for v in verdicts if v.kind == "near"), default=0.0)
        print(
            f"{Path(path).stem:24} {len(verdicts):7} {sparse:6} {kinds['exact']:5} {kinds['tie']:4} {kinds['near']:4} "
            f"{kinds['wrong']:5} {margin:7.1g} {output:11.2g}"
        )
        for query, verdict in enumerate(verdicts):
            if verdict.kind == "wrong":
                print(f"  query {query}, {capture.visible[query]} visible: {verdict.detail}")
        failed |= kinds["wrong"] > 0 or not output <= OUTPUT_BOUND[capture.attention_storage]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
