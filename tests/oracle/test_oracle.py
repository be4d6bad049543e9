"""Tests of the oracle itself: its roundings against exact fractions, its selection against another definition, and its
power to find fault with a captured layer that breaks a rule.

    python3 test_oracle.py
"""

import dataclasses
import itertools
import unittest
import unittest.mock
from fractions import Fraction
from pathlib import Path

import numpy as np

import canonical
import scores as score_room
import verdict
from capture import read_capture
from judge_captures import judge_capture
from rounding import fma32, to_bf16
from selection import row_width, select_row

RECORDED = Path(__file__).resolve().parent.parent / "fixtures" / "recorded" / "dsa_f32.safetensors"
FIXTURES = sorted((Path(__file__).resolve().parent.parent / "fixtures").glob("*.safetensors"))


def nearest_f32(exact):
    """The f32 nearest to a fraction, ties to even, by searching the neighbours of a first guess."""
    guess = np.float32(float(exact))
    around = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    return min(around, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1))


class Rounding(unittest.TestCase):
    def test_fma32_rounds_once_also_where_two_roundings_differ(self):
        rng = np.random.default_rng(7)
        a, b = (rng.standard_normal(20000).astype(np.float32) for _ in range(2))
        c = (rng.standard_normal(20000) * 2.0 ** rng.integers(-40, 40, 20000)).astype(np.float32)
        # Factors whose product is 1 and so little more or less that f64 loses it next to the f32 midpoint c + 1.
        factors = np.arange(2**23, 2**24, dtype=np.int64)
        partners = (2**47 + factors // 2) // factors
        rest = factors * partners - 2**47
        close = np.flatnonzero((rest != 0) & (np.abs(rest) < 2**17))[:2000]
        sign, scale = rng.choice([-1, 1], len(close)), 2.0 ** rng.integers(-30, 30, len(close))
        a[: len(close)] = sign * scale * factors[close] / 2.0**23
        b[: len(close)] = partners[close] / 2.0**24
        c[: len(close)] = sign * scale * np.where(rest[close] > 0, 2.0**24, 2.0**24 + 2)
        got = fma32(a, b, c)
        naive = (a.astype(np.float64) * b + c).astype(np.float32)
        exact = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c)]
        np.testing.assert_array_equal(got, np.array([nearest_f32(e) for e in exact], np.float32))
        self.assertGreater(int((got != naive).sum()), 1000, "hardly a case told one rounding from two")

    def test_bf16_rounds_ties_to_even_and_keeps_what_fits(self):
        values = np.arange(0, 0x7F80, dtype=np.uint32) << 16
        held = values.view(np.float32)
        np.testing.assert_array_equal(to_bf16(held), held)
        midpoints = (values[:-1] + 0x8000).view(np.float32)
        even = np.where((values[:-1] >> 16) & 1, values[1:], values[:-1]).view(np.float32)
        np.testing.assert_array_equal(to_bf16(midpoints), even)


class Selection(unittest.TestCase):
    def test_every_small_score_vector_against_a_pairwise_definition(self):
        alphabet = [np.float32(x) for x in (-np.inf, -0.0, 0.0, 1.0, np.inf)]
        compared = 0
        for groups in range(0, 6):
            for vector in itertools.product(alphabet, repeat=groups):
                values = np.array(vector, np.float32)
                for limit in range(1, groups + 2):
                    row = select_row(values, groups * 2 + 1, 2, limit * 2, anchor=10)
                    # A group is in the row when fewer than `limit` groups beat it.
                    beaten_by = [
                        sum(values[o] > values[g] or (values[o] == values[g] and o < g) for o in range(groups))
                        for g in range(groups)
                    ]
                    wanted = [10 + 2 * g + t for g in range(groups) if beaten_by[g] < limit for t in (0, 1)]
                    self.assertEqual(row.tolist(), wanted + [10 + 2 * groups])
                    compared += 1
        self.assertGreater(compared, 20000)

    def test_widths_follow_the_closed_form_and_dense_rows_are_everything(self):
        rng = np.random.default_rng(3)
        for visible in range(0, 60):
            for group_tokens, budget_tokens in ((1, 8), (3, 12), (4, 16), (7, 7)):
                row = select_row(rng.standard_normal(60), visible, group_tokens, budget_tokens)
                self.assertEqual(len(row), row_width(visible, group_tokens, budget_tokens))
                if visible <= budget_tokens + group_tokens - 1:
                    self.assertEqual(row.tolist(), list(range(visible)))


class Captures(unittest.TestCase):
    """Each broken rule must make at least one captured row wrong, or the captures could not tell."""

    def kinds(self, capture, answers):
        return [v.kind for v in judge_capture(capture, answers)[0]]

    def test_every_capture_agrees_and_most_of_its_rows_do_so_exactly(self):
        self.assertEqual(len(FIXTURES), 4)
        for path in FIXTURES:
            capture = read_capture(path)
            kinds = self.kinds(capture, canonical.answer(capture))
            self.assertNotIn("wrong", kinds, path.name)
            self.assertGreater(kinds.count("exact"), len(kinds) // 2, path.name)

    def assert_found_wrong(self, names, change, patch=None):
        for path in FIXTURES:
            if path.stem not in names:
                continue
            capture = change(read_capture(path))
            if patch is None:
                kinds = self.kinds(capture, canonical.answer(capture))
            else:
                with unittest.mock.patch.object(*patch):
                    kinds = self.kinds(capture, canonical.answer(capture))
            self.assertIn("wrong", kinds, path.name)

    ALL = tuple(path.stem for path in FIXTURES)

    def test_a_rotation_that_starts_at_another_position_is_found(self):
        def from_slot_zero(keys, *rest):
            raw, weight, eps, inv_freq, _, group_tokens, storage = keys, *rest
            return pooled_keys(raw, weight, eps, inv_freq, 0, group_tokens, storage)

        pooled_keys = score_room.pooled_keys
        padded = tuple(name for name in self.ALL if name.endswith("left_padded"))
        self.assertEqual(len(padded), 2)
        self.assert_found_wrong(padded, lambda c: c, (canonical, "pooled_keys", from_slot_zero))

    def test_a_missing_norm_weight_is_found(self):
        self.assert_found_wrong(
            self.ALL, lambda c: dataclasses.replace(c, index_norm_weight=np.zeros_like(c.index_norm_weight))
        )

    def test_dims_past_the_rotation_count(self):
        def without_pass_through(capture):
            keys = capture.index_keys.copy()
            keys[:, 2 * len(capture.inv_freq) :] = 0
            return dataclasses.replace(capture, index_keys=keys)

        self.assert_found_wrong(self.ALL, without_pass_through)

    def test_leaving_out_the_relu_is_found(self):
        def without_relu(queries, keys, *options):
            dots = np.einsum("qhd,gd->qg", queries, keys)
            return (dots / np.sqrt(np.float32(queries.shape[-1]))).astype(np.float32)

        self.assert_found_wrong(self.ALL, lambda c: c, (canonical, "group_scores", without_relu))

    def test_the_recorded_latent_layer_agrees_and_tells_signs_and_relu_apart(self):
        capture = read_capture(RECORDED)
        self.assertNotIn("wrong", self.kinds(capture, canonical.answer(capture)))
        self.assertGreater(int((capture.index_head_weights < 0).sum()), 100)
        for change in ({"index_head_weights": np.abs(capture.index_head_weights)}, {"index_head_weights": None},
                       {"relu": False}):
            broken = dataclasses.replace(capture, **change)
            self.assertIn("wrong", self.kinds(broken, canonical.answer(broken)), change.keys())

    def test_a_dropped_tail_or_a_split_group_is_wrong_whatever_the_scores(self):
        scores = np.zeros(4, np.float32)
        whole = np.array([0, 1, 2, 3, 8])
        for captured in ([0, 1, 2, 3], [0, 1, 2, 4, 8], [4, 5, 2, 3, 8], [0, 1, 2, 3, 9]):
            judged = verdict.judge(np.array(captured), whole, scores, np.float32(0), 0, 2, 1e-5)
            self.assertEqual(judged.kind, "wrong", captured)
        tied = verdict.judge(np.array([0, 1, 4, 5, 8]), whole, scores, np.float32(0), 0, 2, 1e-5)
        self.assertEqual(tied.kind, "tie")


if __name__ == "__main__":
    unittest.main()
