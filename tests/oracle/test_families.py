"""Tests of part 2's rendering: what follows from its rules, and its power to find a wrong one in the captures.

    python3 test_families.py
"""

import unittest
import unittest.mock
from pathlib import Path

import numpy as np

import families
import judge_families
from judge_families import Judge
from selection import select_row

CAPTURES = Path(__file__).resolve().parent.parent / "fixtures" / "families"
F32 = np.float32


class Sets(unittest.TestCase):
    def setUp(self):
        random = np.random.default_rng(1)
        self.lists = [random.integers(0, 4, n).astype(F32) for n in (1, 5, 23, 60)]

    def test_without_options_it_is_the_rule_of_section_2(self):
        for scores in self.lists:
            for keep in range(len(scores) + 2):
                row = select_row(scores, len(scores), 1, keep)
                self.assertEqual(families.select_set(scores, keep), row.tolist())

    def test_forced_inside_is_plain_selection_over_scores_of_infinity(self):
        for scores in self.lists:
            forced = families.forced_groups(len(scores), 1, 2)
            raised = scores.copy()
            raised[forced] = np.inf
            for keep in range(len(forced), len(scores) + 1):
                self.assertEqual(families.select_set(scores, keep, forced), families.select_set(raised, keep))

    def test_forced_outside_leaves_the_budget_to_the_others(self):
        for scores in self.lists:
            forced = families.forced_groups(len(scores), 1, 2)
            others = [g for g in range(len(scores)) if g not in forced]
            alone = families.select_set(scores, 4, candidates=others)
            self.assertEqual(families.select_set(scores, 4, forced, outside=True), sorted(alone + forced))

    def test_what_stands_at_a_forced_group_or_outside_the_candidates_is_never_read(self):
        scores = np.array([1, np.nan, 3, np.nan, 2, 9], F32)
        self.assertEqual(families.select_set(scores, 3, [1], candidates=[0, 2, 4]), [1, 2, 4])

    def test_coarse_groups_that_cover_the_store_change_nothing(self):
        for scores in self.lists:
            coarse = range(-(-len(scores) * 2 // 8))
            inside = families.groups_of_coarse(coarse, 8, 2, len(scores))
            self.assertEqual(families.select_set(scores, 5, candidates=inside), families.select_set(scores, 5))

    def test_entries_are_counted_by_their_closing_tokens(self):
        for stride, close in ((1, 1), (4, 4), (16, 32), (3, 7), (128, 128)):
            for n in range(300):
                counted = sum(w * stride + close <= n for w in range(n + 1))
                self.assertEqual(families.closed_entries(n, stride, close), counted)


class Power(unittest.TestCase):
    """Each wrong rule has to be found in a capture: otherwise the comparison proves nothing."""

    def finds(self, capture, module, name, wrong):
        with unittest.mock.patch.object(module, name, wrong):
            self.assertTrue(Judge(CAPTURES / f"{capture}.safetensors").run().faults, f"a wrong {name} was missed")

    def test_the_captures_are_the_contracts(self):
        for capture in sorted(CAPTURES.glob("*.safetensors")):
            self.assertEqual(Judge(capture).run().faults, [], capture.name)

    def test_wrong_rules_of_row_sets(self):
        plain, forced = families.select_set, families.forced_groups
        self.finds("m3_f32", judge_families, "select_set", lambda s, k, f: plain(s, k, f, outside=True))
        self.finds("m3_f32", judge_families, "select_set", lambda s, k, f: plain(s, k - 1, f))
        self.finds("m3_f32", judge_families, "forced_groups", lambda *_: [])
        self.finds("m3_f32", judge_families, "forced_groups", lambda n, a, b: forced(n, 1, b))
        self.finds("m3_f32", judge_families, "unit_max",
                   lambda s, r: np.array([s[i : i + r].mean() for i in range(0, len(s), r)], F32))

    def test_wrong_rules_of_entries(self):
        row, make, turn = families.two_store_row, families.finished_entries, families.rotate_trailing
        self.finds("v4_f32", judge_families, "two_store_row", lambda s, n, st, k, w: row(s, n, st, k, w + 1))
        self.finds("v4_f32", judge_families, "two_store_row", lambda s, n, st, k, w: row(s, n, st, k - 1, w))
        self.finds("v4_f32", families, "closed_entries", lambda n, stride, close=None: (n - 1) // stride)
        self.finds("v4_f32", families, "closed_entries", lambda n, stride, close=None: -(-n // stride))
        self.finds("v4_f32", families, "rotate_trailing", lambda x, p, f, s: turn(x, p + 3, f, s))
        self.finds("v4_f32", judge_families, "finished_entries",
                   lambda x, g, b, *rest: make(np.roll(x, 32, 1), np.roll(g, 32, 1), np.roll(b, 32, 1), *rest))
        self.finds("v4_f32", judge_families, "group_scores",
                   lambda q, k, w, relu, at: np.einsum("qhd,gd->qg", q, k).astype(F32))


if __name__ == "__main__":
    unittest.main()
