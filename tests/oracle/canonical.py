"""What the contract says a capture's answers are; as a command, writes them to a file.

    python3 canonical.py CAPTURE.safetensors --out CANONICAL.safetensors
"""

import argparse
from dataclasses import dataclass

import numpy as np

from attention import attend
from capture import read_capture
from safetensors_file import Tensor, save
from scores import group_scores, pooled_keys
from selection import cut_score, pad_row, row_width, select_row


@dataclass
class Answers:
    scores: np.ndarray  # [Q, G] f32; a query may look only at its floor(visible / r) first entries
    cut_scores: np.ndarray  # [Q] f32; -inf where nothing was dropped
    rows: list  # of Q arrays of logical positions
    output: np.ndarray  # [Q, H_q, d_v] f64
    lse: np.ndarray  # [Q, H_q] f64


def attend_row(capture, query, row):
    """Attention of one query over the given logical positions."""
    slots = row - capture.anchor
    return attend(capture.queries[query], capture.keys[slots], capture.values[slots], capture.softmax_scale,
                  capture.sinks)


def scored_keys(capture):
    """What queries are scored against: finished keys as they are, raw ones pooled, normed and rotated."""
    if capture.pooling == "none":
        return capture.index_keys
    return pooled_keys(
        capture.index_keys,
        capture.index_norm_weight,
        capture.norm_eps,
        capture.inv_freq,
        capture.anchor,
        capture.group_tokens,
        capture.index_storage,
    )


def answer(capture):
    shape = capture.group_tokens, capture.budget_tokens
    scores = group_scores(capture.index_queries, scored_keys(capture), capture.index_head_weights, capture.relu,
                          capture.scale_at)
    rows = [select_row(s, n, *shape, capture.anchor) for s, n in zip(scores, capture.visible)]
    for row, visible in zip(rows, capture.visible):
        assert len(row) == row_width(visible, *shape), "the oracle contradicts itself on a row's width"
    attended = [attend_row(capture, query, row) for query, row in enumerate(rows)]
    return Answers(
        scores=scores,
        cut_scores=np.array([cut_score(s, n, *shape) for s, n in zip(scores, capture.visible)], np.float32),
        rows=rows,
        output=np.array([output for output, _ in attended]),
        lse=np.array([lse for _, lse in attended]),
    )


def stored_rows(capture, rows):
    return np.array([pad_row(row, capture.group_tokens, capture.budget_tokens) for row in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    capture = read_capture(options.capture)
    answers = answer(capture)
    tensors = {
        "rows": Tensor("I32", stored_rows(capture, answers.rows)),
        "counts": Tensor("I32", np.array([len(row) for row in answers.rows], np.int32)),
        "cut_scores": Tensor("F32", answers.cut_scores),
        "output": Tensor("F32", answers.output.astype(np.float32)),
        "lse": Tensor("F32", answers.lse.astype(np.float32)),
    }
    save(options.out, tensors, {"seriatim": "replay/1", "source": "NumPy oracle"})


if __name__ == "__main__":
    main()
