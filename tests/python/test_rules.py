"""The code of docs/rules.md, and its rows against each rule as published, written in NumPy."""

import pathlib
import re

import numpy as np
import pytest

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "rules.md"


@pytest.fixture(scope="module")
def page():
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    return names


def rows_of(rows):
    positions, counts = np.asarray(rows.positions), np.asarray(rows.counts)
    return [[p[:n].tolist() for p, n in zip(np.atleast_2d(ps), np.atleast_1d(ns))]
            for ps, ns in zip(positions, counts)]


def blocks_row(scores, visible, size, keep, first=0, newest=0):
    """As the papers write it: forced blocks raised to +inf, top-k, expanded, cut at the query."""
    raised = np.array(scores[: -(-visible // size)], np.float64)
    raised[:first] = np.inf
    raised[max(len(raised) - newest, 0) :] = np.inf
    chosen = np.sort(np.argsort(-raised, kind="stable")[:keep])
    return [t for b in chosen for t in range(b * size, min(b * size + size, visible))]


def chain(queries, keys):
    """Dots in f32, one rounding per step."""
    total = np.zeros((len(queries), len(keys)), np.float32)
    for i in range(queries.shape[1]):
        total = (queries[:, i, None].astype(np.float64) * keys[None, :, i] + total).astype(np.float32)
    return total


def test_the_page_shows_every_rule(page):
    assert {"qsa", "dsa", "m3", "sinks", "moba", "quest", "nsa"} <= set(page)


def test_given_scores(page):
    for name, scores, size, keep, first, newest in (
            ("moba", "scores", 32, 3, 0, 1), ("quest", "bounds", 16, 6, 0, 2), ("nsa", "mass", 8, 8, 1, 2)):
        for n, (row,) in enumerate(rows_of(page[name])):
            assert row == blocks_row(page[scores][n], n + 1, size, keep, first, newest), (name, n)


def test_minimax_m3_vl(page):
    scores = [chain(page["block_queries"][:, s], page["index_keys"]) for s in range(2)]
    for n, sets in enumerate(rows_of(page["m3"])):
        for s, row in enumerate(sets):
            seen = scores[s][n, : n + 1]
            best = [seen[b : b + 16].max() for b in range(0, n + 1, 16)]
            assert row == blocks_row(best, n + 1, 16, 4, 0, 1), (n, s)


def test_sinks_and_a_window(page):
    scores = chain(page["token_queries"][:, 0], page["index_keys"])
    for n, (row,) in enumerate(rows_of(page["sinks"])):
        assert row == blocks_row(scores[n], n + 1, 1, 40, 4, 8), n


def test_tokens_with_signed_weights(page):
    scale, total = np.float32(16**-0.5), np.zeros((600, 600), np.float32)
    for h in range(4):
        dots = np.maximum(chain(page["index_queries"][:, h], page["index_keys"]) * scale, 0)
        total = (page["weights"][:, h, None].astype(np.float64) * dots + total).astype(np.float32)
    for n, (row,) in enumerate(rows_of(page["dsa"])):
        assert row == blocks_row(total[n], n + 1, 1, 64), n


def test_groups_and_their_tail(page):
    for n, (row,) in enumerate(rows_of(page["qsa"])):
        tail = list(range((n + 1) // 4 * 4, n + 1))
        assert row[len(row) - len(tail) :] == tail and len(row) == min(n + 1, 64 + len(tail))
        grouped = np.array(row[: len(row) - len(tail)]).reshape(-1, 4)
        assert (grouped % 4 == np.arange(4)).all()
