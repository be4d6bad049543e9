"""Every family of llama.cpp with sparse attention, as a small random model: what the backend takes, the rows, the
logits."""

import numpy as np
import pytest
import running

# Layers of the model (four) that call each kind of node; a chain is TOP_K and attention in one.
TAKEN = {
    "qwen4exp": {"top_k": 2, "indexer": 0, "attention": 2},
    "deepseek32": {"top_k": 4, "indexer": 4, "attention": 4},
    "glm-dsa": {"top_k": 2, "indexer": 2, "attention": 4},
    "dots3note": {"top_k": 2, "indexer": 2, "attention": 2},
    "hy_v4": {"top_k": 2, "indexer": 2, "attention": 4},
    "glm5-next": {"top_k": 2, "indexer": 2, "attention": None},  # none in decoding: its rows are gathered
    "deepseek4": {"top_k": 2, "indexer": 2, "attention": 2},
    "minimax-m3": {"top_k": 3, "indexer": 0, "attention": None},
}
FAMILIES = list(TAKEN)
PREFILL, UBATCH, STEPS = 600, 200, 8  # three calls and eight


def counted(result):
    counters = dict(result.counters)
    chains = counters.pop("chains")
    counters["top_k"] += chains
    counters["attention"] += chains
    return counters


@pytest.mark.parametrize("flash", ["on", "auto"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_node_that_the_page_names_is_taken(model, run, family, flash):
    result = run(model(family), tokens=PREFILL, ubatch=UBATCH, steps=STEPS, flash=flash, threads=1)
    calls = PREFILL // UBATCH + STEPS
    if family == "minimax-m3":
        calls -= 1  # the first sees no more blocks than the budget has
    counters = counted(result)
    for kind, layers in TAKEN[family].items():
        if layers is not None:
            assert counters[kind] == layers * calls, kind
    if family != "minimax-m3":  # it does not say what its masks leave: those that leave most cells go back
        assert counters["left to ggml"] == 0
    if TAKEN[family]["attention"]:
        assert 0 < counters["row entries"] < counters["offered"]
    assert np.isfinite(result.logits).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_rows_keep_the_rule_and_are_llama_cpps_own_where_those_are_right(built, model, run, tmp_path, family):
    options = dict(tokens=PREFILL, ubatch=UBATCH, steps=STEPS, threads=1)
    for engine, backend in (("plain", False), ("ours", True)):
        run(model(family), backend=backend, record=tmp_path / engine, **options)
    dumps = sorted(path.name for path in (tmp_path / "ours").iterdir())
    assert dumps and dumps == sorted(path.name for path in (tmp_path / "plain").iterdir())
    for name in dumps:
        verdict = running.judge(built.check, tmp_path / "ours" / name, "canonical")
        assert verdict["conforms"], (name, running.faults(verdict), verdict["findings"][:3])
        assert verdict["rows"] == PREFILL + STEPS
        assert verdict["counts"]["membership"]["judged"] > 200 and verdict["counts"]["tie"]["judged"] > 200

    # What stands before the first layer that selects is the same in both, but for the last bits of the scores.
    first = dumps[0]
    verdict = running.judge(built.check, tmp_path / "plain" / first, "set")
    wrong = {finding["row"] for finding in verdict["findings"]}
    assert len(wrong) == verdict["faulty_rows"]
    ours, plain = (running.read_dump(tmp_path / engine / first)["rows"] for engine in ("ours", "plain"))
    right = [row for row in range(PREFILL + STEPS) if row not in wrong]
    differ = [row for row in right if set(ours[row]) - {-1} != set(plain[row]) - {-1}]
    assert len(right) > 200 and len(differ) <= len(right) // 50


@pytest.mark.parametrize("cache_type", ["f16", "bf16", "f32", "q8_0"])
@pytest.mark.parametrize("family", FAMILIES)
def test_below_the_budget_the_logits_are_close(model, run, family, cache_type):
    options = dict(tokens=240, ubatch=120, steps=4, threads=1, cache_type=cache_type)
    whole = model(family, budget=512)
    plain, ours = run(whole, backend=False, **options), run(whole, **options)
    # llama.cpp itself moves by 5e-3 with the size of the batches (docs/llama.md).
    assert running.distance(plain.logits, ours.logits) < 1e-2


@pytest.mark.parametrize("flags", [(), ("--unified",)], ids=["streams", "unified"])
@pytest.mark.parametrize("family", FAMILIES)
def test_three_sequences_answer_as_one(model, run, family, flags):
    if family == "minimax-m3" and flags:
        pytest.skip("llama.cpp runs it dense")
    options = dict(tokens=400, ubatch=240, steps=4, threads=1)
    alone, three = run(model(family), **options), run(model(family), *flags, sequences=3, **options)
    assert counted(three)["top_k"] > 0 and three.logits.shape[1] == 3
    if not flags:  # in one pool the cells of the others stand between
        assert (three.logits[:, 0] == three.logits[:, 1]).all() and (three.logits[:, 0] == three.logits[:, 2]).all()
    # Batches are cut elsewhere, which moves projections and with them single rows.
    assert running.distance(alone.logits[:, 0], three.logits[:, 0]) < 0.5


def test_without_flash_attention_the_selection_is_ours(model, run):
    result = run(model("deepseek32"), tokens=300, flash="off", threads=1)
    assert result.counters["top_k"] > 0 and result.counters["indexer"] > 0 and result.counters["attention"] == 0


def test_equal_scores_select_the_earlier_tokens(built, model, run, tmp_path):
    for family in ("qwen4exp", "deepseek32"):
        run(model(family, tie=True), record=tmp_path / family, tokens=300, steps=3, threads=1)
        for dump in (tmp_path / family).iterdir():
            verdict = running.judge(built.check, dump, "canonical")
            assert verdict["conforms"] and verdict["counts"]["tie"]["judged"] > 200
            assert len(np.unique(running.read_dump(dump)["scores"][-1])) == 1


def test_seriatim_ggml_says_what_is_taken(built, model):
    def counters(word):
        return running.run(built.run, model("deepseek32"), backend=built.backend, tokens=200, steps=2, threads=1,
                           environment={"SERIATIM_GGML": word}).counters

    off, top_k, attend = counters("off"), counters("topk"), counters("attend")
    assert not any(off.values())
    assert top_k["top_k"] > 0 and top_k["attention"] == top_k["indexer"] == 0
    assert attend["attention"] > 0 and attend["indexer"] == 0


def test_quantised_weights_leave_the_rest_to_ggml(model, run):
    for family in ("qwen4exp", "deepseek32"):
        result = run(model(family, weights="Q4_0"), tokens=400, ubatch=200, steps=4, threads=1)
        assert counted(result)["attention"] > 0 and np.isfinite(result.logits).all()


def test_recording_changes_no_bit(model, run, tmp_path):
    for family in ("qwen4exp", "deepseek32"):
        options = dict(tokens=300, steps=4, threads=1)
        watched = run(model(family), record=tmp_path / family, **options)
        assert (watched.logits == run(model(family), **options).logits).all()


def test_the_same_call_twice_answers_the_same_bits_whatever_the_threads_of_the_backend(model, run):
    options = dict(tokens=300, steps=4, threads=2)
    first = run(model("deepseek32"), **options)
    assert (first.logits == run(model("deepseek32"), **options).logits).all()
