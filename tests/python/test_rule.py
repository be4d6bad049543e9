"""select against the oracle, and what it refuses."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import seriatim
from selection import pad_row, select_row

SCORES = st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, np.inf])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_rows_are_the_oracles(data):
    group = data.draw(st.integers(1, 5), "group")
    budget = group * data.draw(st.integers(1, 4), "budget groups")
    scores = np.array(data.draw(st.lists(SCORES, max_size=12), "scores"), np.float32)
    visible = len(scores) * group + data.draw(st.integers(0, group - 1), "tail")
    anchor = data.draw(st.integers(0, 1000), "anchor")
    positions, counts = seriatim.select(scores, visible=visible, group_tokens=group, budget_tokens=budget,
                                        anchor=anchor)
    wanted = select_row(scores, visible, group, budget, anchor)
    assert counts.tolist() == [len(wanted)]
    np.testing.assert_array_equal(positions[0], pad_row(wanted, group, budget))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 9))
def test_a_batch_is_its_rows(seed, groups, rows):
    scores = np.random.default_rng(seed).integers(0, 4, (rows, groups)).astype(np.float32)
    visible = [groups * 4 - q % 4 for q in range(rows)]
    batch = seriatim.select(scores, visible=visible, budget_tokens=16)
    for q in range(rows):
        one = seriatim.select(scores[q], visible=visible[q], budget_tokens=16)
        np.testing.assert_array_equal(batch.positions[q], one.positions[0])
        assert batch.counts[q] == one.counts[0]


def test_the_kind_of_the_input_is_the_kind_of_the_rows():
    scores = np.array([[3, 1, 2]], np.float32)
    from_numpy = seriatim.select(scores)
    from_torch = seriatim.select(torch.from_numpy(scores))
    assert isinstance(from_numpy.positions, np.ndarray) and from_numpy.positions.dtype == np.int32
    assert isinstance(from_torch.positions, torch.Tensor) and from_torch.counts.dtype == torch.int32
    np.testing.assert_array_equal(from_torch.positions.numpy(), from_numpy.positions)


def test_out_is_written_and_returned_in_place():
    scores = np.array([[3, 1, 2], [1, 2, 3]], np.float32)
    out = np.full((2, 11), 77, np.int32), np.zeros(2, np.int32)
    rows = seriatim.select(scores, budget_tokens=8, out=out)
    assert rows.positions is out[0] and rows.counts is out[1]
    np.testing.assert_array_equal(out[0], seriatim.select(scores, budget_tokens=8).positions)


def test_a_refused_row_leaves_out_as_it_was():
    scores = np.array([[3, 1, 2], [1, 2, np.nan]], np.float32)
    out = np.full((2, 11), 77, np.int32), np.full(2, 77, np.int32)
    with pytest.raises(seriatim.NotANumber) as caught:
        seriatim.select(scores, budget_tokens=8, out=out)
    assert (caught.value.argument, caught.value.row, caught.value.index) == ("scores", 1, 2)
    assert isinstance(caught.value, ValueError) and caught.value.code is seriatim.Code.NotANumber
    assert (out[0] == 77).all() and (out[1] == 77).all()


def test_excluded_nan_groups_make_the_row_shorter():
    rows = seriatim.select(np.array([np.nan, 1], np.float32), nan="exclude")
    assert rows.positions[0, : rows.counts[0]].tolist() == [4, 5, 6, 7]


def test_strided_rows_are_read_in_place_and_a_strided_last_axis_is_refused():
    scores = np.random.default_rng(1).standard_normal((6, 9)).astype(np.float32)
    np.testing.assert_array_equal(seriatim.select(scores[::2, :5], budget_tokens=8).positions,
                                  seriatim.select(scores[::2, :5].copy(), budget_tokens=8).positions)
    with pytest.raises(seriatim.InvalidArgument, match="last axis") as caught:
        seriatim.select(scores[:, ::2])
    assert caught.value.argument == "scores"
    with pytest.raises(seriatim.InvalidArgument, match="negative stride"):
        seriatim.select(scores[::-1])


@pytest.mark.parametrize("given, words", [
    (np.zeros(3), "float32"), (np.zeros((1, 1, 1), np.float32), r"\[Q, G\]"), ("text", "not an array"),
    (np.zeros(3, ">f4"), "byte order"), (torch.zeros(3, requires_grad=True), "detach"),
    (np.zeros(3, np.complex64), "dtype"),
    (np.zeros(3, [("score", "f4"), ("other", "i2")])["score"], "no multiple of an element"),
])
def test_what_cannot_be_scores_is_refused_by_name(given, words):
    with pytest.raises(seriatim.InvalidArgument, match=words) as caught:
        seriatim.select(given)
    assert caught.value.argument == "scores"


@pytest.mark.parametrize("options, argument", [
    (dict(visible=13), "visible"), (dict(visible=[12, 12]), "visible"), (dict(budget_tokens=6), "budget_tokens"),
    (dict(nan="maybe"), "nan"), (dict(anchor=-1), None), (dict(visible=2**40), None), (dict(out=3), "out"),
])
def test_options_that_do_not_fit_are_refused_by_name(options, argument):
    with pytest.raises(seriatim.InvalidArgument) as caught:
        seriatim.select(np.zeros(3, np.float32), **{"visible": 12, **options}
                        if options != dict(visible=13) else dict(visible=16))
    assert caught.value.argument == (argument or caught.value.argument) != ""


def test_read_only_arrays_are_read_and_not_written():
    scores = np.zeros(3, np.float32)
    scores.flags.writeable = False
    assert seriatim.select(scores).counts.tolist() == [12]
    out = np.zeros((1, 2051), np.int32), np.zeros(1, np.int32)
    out[0].flags.writeable = False
    with pytest.raises(seriatim.InvalidArgument, match="read-only"):
        seriatim.select(scores, out=out)
