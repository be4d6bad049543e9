"""The proof of tools/transformers_agreement.py on what fits CI: the real budget, contexts that cross 2,052."""

import pathlib
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import transformers_agreement as agreement


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_row_across_the_budget_is_proved_and_f32_logits_agree_on_equal_rows(dtype):
    found = agreement.prove(dtype, tokens=2120, queries=list(range(2040, 2120)) + list(range(0, 2040, 97)))
    assert found.rows["wrong"] == 0 and found.rows["exact"] > 150
    assert found.dropped_rows >= 2 * 68
    assert found.largest_difference <= agreement.BOUND[dtype]


def test_greedy_generations_are_equal_or_their_first_difference_is_explained():
    found = agreement.generate(torch.float32, prompt=2020, tokens=60)
    assert found.compared > 2052 - 2020
    assert found.first_difference is None or found.explanation, found
