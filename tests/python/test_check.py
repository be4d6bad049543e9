"""seriatim.check: the verdicts of the checker on arrays."""

import numpy as np
import pandas
import pytest

import seriatim

RULE = {"group_tokens": 2, "budget_tokens": 6}


def right(queries=5, groups=12):
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 4, (queries, groups)).astype(np.float32)
    visible = rng.integers(1, 2 * groups, queries)
    rows = seriatim.select(scores, visible=visible, **RULE)
    return rows, visible, scores


def test_our_own_rows_conform_in_either_integer():
    rows, visible, scores = right()
    for given in (rows, rows.positions, rows.positions.astype(np.int64)):
        report = seriatim.check(given, visible=visible, scores=scores, **RULE)
        assert report.conforms and bool(report) and report.rows == 5 and report.findings == ()
        assert "conforms: 5 rows" in repr(report)


def test_a_fault_is_named_with_its_evidence():
    rows, visible, scores = right()
    wrong = rows.positions.copy()
    wrong[3, 0] = 10_000
    report = seriatim.check(wrong, visible=visible, scores=scores, **RULE)
    assert not report.conforms and report.faulty_rows == 1
    (finding,) = report.findings
    assert (finding.row, finding.promise, finding.entry, finding.token) == (3, "range", 0, 10_000)
    assert report.faults["range"] == 1 and report.judged["range"] == 5 and sum(report.faults.values()) == 1
    assert seriatim.check(wrong, visible=visible, **RULE).judged["membership"] == 0


def test_rules_and_margins_relax_what_they_say():
    rows = np.array([[2, 3, 0, 1]], np.int32)
    scores = np.array([[1.0, 1.00001, 1.000005]], np.float32)
    arguments = {"visible": [6], "scores": scores, "group_tokens": 2, "budget_tokens": 4}
    assert set(f.promise for f in seriatim.check(rows, **arguments).findings) == {"order", "membership"}
    report = seriatim.check(rows, rule="arrival", margin=1e-3, **arguments)
    assert report.conforms and report.near_rows == 1
    groups = seriatim.check(np.array([[1, 2]]), unit="group", **arguments)
    assert groups.conforms, groups


def test_assert_conforms_says_what_to_do():
    rows, visible, scores = right()
    assert seriatim.assert_conforms(rows, visible=visible, scores=scores, **RULE).conforms
    with pytest.raises(AssertionError, match=r"(?s)row 0: .*What is demanded:.*range: Every entry"):
        seriatim.assert_conforms(np.full((1, 3), 99, np.int32), visible=[3], **RULE)


def test_misfits_are_errors():
    rows, visible, scores = right()
    for arguments in ({"visible": visible[:2]}, {"visible": -visible}, {"visible": visible, "rule": "chaos"},
                      {"visible": visible, "unit": "page"}, {"visible": visible, "scores": scores[:, :1]}):
        with pytest.raises(seriatim.InvalidArgument):
            seriatim.check(rows, **{**RULE, **arguments})
    scores[2, 0] = np.nan
    with pytest.raises(seriatim.NotANumber):
        seriatim.check(rows, visible=np.full(5, 24), scores=scores, **RULE)


def test_findings_become_a_table():
    table = seriatim.check(np.full((2, 3), 99, np.int32), visible=[3, 3], **RULE).to_dataframe()
    assert isinstance(table, pandas.DataFrame)
    assert list(table["row"]) == [0, 1] and list(table["promise"]) == ["range", "range"]
