"""The proof of tools/transformers_agreement.py on what fits CI: the real budget, contexts that cross 2,052."""

import pathlib
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import transformers_agreement as agreement


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_row_is_proved_and_outputs_agree_where_rows_and_experts_do(dtype):
    found = agreement.prove(dtype, tokens=2120, queries=list(range(2040, 2120)) + list(range(0, 2040, 97)))
    assert found.rows["wrong"] == 0 and found.rows["exact"] > 150
    assert found.dropped_rows >= 2 * 68
    assert 0 < found.ulps <= agreement.ULPS[dtype] and found.logits_scale > 1
    assert 0 < found.largest_difference <= agreement.BOUND[dtype]
    # No farther from eager than twice what Transformers' own sdpa is.
    assert found.largest_difference <= 2 * found.sdpa_difference


def test_in_bf16_the_router_sends_some_tokens_elsewhere():
    """Why logits are compared over equal experts: a rounding chooses others for some tokens, and their logits move
    far."""
    found = agreement.prove(torch.bfloat16, tokens=600, queries=range(0, 600, 97))
    assert found.other_experts > 0 and found.largest_difference <= agreement.BOUND[torch.bfloat16]


def test_greedy_generations_are_equal_or_their_first_difference_is_explained():
    found = agreement.generate(torch.float32, prompt=2020, tokens=60)
    assert found.compared > 2052 - 2020
    assert found.first_difference is None or found.explanation, found
