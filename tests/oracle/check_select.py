"""Selects rows from random scores with the command-line tool and compares them with the NumPy oracle.

    python3 check_select.py --seriatim BUILD/cli/seriatim [--cases 200] [--seed 1]

Scores are drawn from few values, signed zeros and infinities among them, so that most cuts fall inside a tie. Exit 1 on
any difference.
"""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from selection import cut_score, pad_row, select_row

INPUT_IS_BAD = 2  # the tool's exit code


@dataclass
class Case:
    scores: np.ndarray  # [G] or [Q, G] f32
    visible: int
    group_tokens: int
    budget_tokens: int
    anchor: int
    nan: str  # "refuse" or "exclude"

    def describe(self):
        return (
            f"scores {list(self.scores.shape)} visible {self.visible} group {self.group_tokens} "
            f"budget {self.budget_tokens} anchor {self.anchor} nan {self.nan}"
        )

    @property
    def is_refused(self):
        return self.nan == "refuse" and bool(np.isnan(self.scores).any())

    def is_cut_inside_a_tie(self, scores):
        cut = cut_score(scores, self.visible, self.group_tokens, self.budget_tokens)
        equal = int((scores == cut).sum())
        return equal > 0 and int((scores >= cut).sum()) > self.budget_tokens // self.group_tokens

    def expected_rows(self):
        shape = self.group_tokens, self.budget_tokens
        rows = [select_row(s, self.visible, *shape, self.anchor) for s in np.atleast_2d(self.scores)]
        return np.array([pad_row(row, *shape) for row in rows])


def draw_scores(rng, shape):
    kind = rng.integers(4)
    if kind == 0:  # a handful of values, every kind of zero and infinity
        return rng.choice(np.array([-np.inf, -1, -0.0, 0.0, 0.5, 2, np.inf], np.float32), shape)
    if kind == 1:  # what a relu leaves: many exact zeros
        return np.maximum(rng.standard_normal(shape), 0).astype(np.float32)
    if kind == 2:  # neighbours in f32 that a narrower type could not tell apart
        return (np.uint32(0x3F800000) + rng.integers(0, 200, shape).astype(np.uint32)).view(np.float32)
    return rng.standard_normal(shape).astype(np.float32)


def draw_case(rng):
    group_tokens = int(rng.choice([1, 2, 3, 4, 4, 4, 7, 16]))
    limit = int(rng.choice([1, 2, 5, 64, 512]))
    groups = int(rng.choice([1, limit, limit + 1, 2 * limit + 3, int(rng.integers(1, 1200))]))
    shape = (groups,) if rng.random() < 0.5 else (int(rng.integers(1, 5)), groups)
    scores = draw_scores(rng, shape)
    nan = str(rng.choice(["refuse", "exclude"]))
    if rng.random() < (0.6 if nan == "exclude" else 0.15):
        scores[rng.random(shape) < rng.choice([0.01, 0.5])] = np.nan
    return Case(
        scores=scores,
        visible=groups * group_tokens + int(rng.integers(group_tokens)),
        group_tokens=group_tokens,
        budget_tokens=limit * group_tokens,
        anchor=int(rng.choice([0, 1, 3, 1_000_003])),
        nan=nan,
    )


def run_tool(seriatim, case, folder):
    """Gives the finished process and the rows it wrote, or None."""
    scores_path, rows_path = folder / "scores.npy", folder / "rows.npy"
    rows_path.unlink(missing_ok=True)
    np.save(scores_path, case.scores)
    command = [
        seriatim, "select", scores_path, "--visible", case.visible, "--group", case.group_tokens,
        "--budget", case.budget_tokens, "--anchor", case.anchor, "--nan", case.nan, "--out", rows_path,
    ]
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60)
    return ran, np.load(rows_path) if rows_path.exists() else None


def complain(case, ran, rows):
    """What is wrong with the tool's answer, or None."""
    if case.is_refused:
        if ran.returncode != INPUT_IS_BAD or rows is not None:
            return f"NaN not refused: exit code {ran.returncode}, rows {'not ' if rows is None else ''}written"
        return None if ran.stderr.strip() else "refused without saying why"
    if ran.returncode != 0 or rows is None:
        return f"exit code {ran.returncode}: {ran.stderr.strip()}"
    expected = case.expected_rows()
    if (rows.dtype, rows.shape) != (expected.dtype, expected.shape):
        return f"rows are {rows.dtype} {rows.shape}, expected {expected.dtype} {expected.shape}"
    if np.array_equal(rows, expected):
        return None
    query, column = np.argwhere(rows != expected)[0]
    return f"rows[{query}][{column}] is {rows[query, column]}, expected {expected[query, column]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seriatim", required=True, help="path of the command-line tool")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    rows_compared = rows_tied = refusals = failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.cases):
            case = draw_case(rng)
            ran, rows = run_tool(options.seriatim, case, Path(folder))
            complaint = complain(case, ran, rows)
            if complaint:
                failures += 1
                print(f"case {number}, {case.describe()}: {complaint}")
            if case.is_refused:
                refusals += 1
            else:
                per_query = np.atleast_2d(case.scores)
                rows_compared += len(per_query)
                rows_tied += sum(case.is_cut_inside_a_tie(scores) for scores in per_query)
    print(
        f"{options.cases} cases: {rows_compared} rows compared, {rows_tied} of them cut inside a tie, "
        f"{refusals} refusals, {failures} failures"
    )
    sys.exit(1 if failures or rows_tied == 0 else 0)


if __name__ == "__main__":
    main()
