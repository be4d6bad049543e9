"""seriatim.record: of each family the dump is judged, the model is not changed, and a worse row is found out."""

import importlib
import inspect

import numpy as np
import pytest
import torch
from transformers import DynamicCache, StaticCache
from transformers.models.llama import LlamaConfig, LlamaForCausalLM

import seriatim
import seriatim.transformers as st
from seriatim.transformers.recording import FAMILIES
from support_dumps import KNOWN, broken_by, judge_dump, read_dump
from support_indexers import FAMILIES as MODELS, draw_ids, make_model

STEPS = (21, 9, 1, 1, 8)  # prefill in two pieces, single steps, a piece again
PADDED = ("qwen4_exp", "deepseek_v32", "hy_v4", "dots3_note", "glm5_next")  # each way of reading a mask
# files per sequence
SELECTING = {name: 1 for name in MODELS} | {"deepseek_v32": 2, "axk2": 2, "mistral_large4": 2, "minimax_m3_vl": 2}


def read(model, ids, mask=None, steps=STEPS):
    """The model's answers, step by step through one cache."""
    cache, at, answers = DynamicCache(config=model.config), 0, []
    for count in steps:
        given = {} if mask is None else {"attention_mask": mask[:, : at + count]}
        answer = model(ids[:, at : at + count], cache=cache, use_cache=True, **given)
        answers.append(answer.logits if hasattr(answer, "logits") else answer.last_hidden_state)
        at += count
    return torch.cat(answers, dim=1)


def implementations(family):
    # sinks: Transformers has eager alone
    return ["eager"] if family in ("hy_v4", "hy_v4_vl", "deepseek_v4") else ["eager", "sdpa"]


def assert_a_worse_group_is_caught(path):
    """The last row takes the worst group in place of its best."""
    tensors, told = read_dump(path)
    rows, group_tokens, is_group = tensors["rows"].copy(), told["group_tokens"], told["unit"] == "group"
    scores = tensors["scores"][-1][: tensors["visible"][-1] // group_tokens]
    group = rows[-1] if is_group else np.where(rows[-1] >= 0, (rows[-1] - told["anchor"]) // group_tokens, -1)
    chosen = np.setdiff1d(group, [-1, len(scores)])
    left = np.setdiff1d(np.arange(len(scores)), chosen)
    best, worst = chosen[scores[chosen].argmax()], left[scores[left].argmin()]
    assert scores[best] > scores[worst]
    rows[-1] += np.where(group == best, (worst - best) * (1 if is_group else group_tokens), 0).astype(rows.dtype)
    found = [finding for finding in judge_dump(path, rule="set", rows=rows).findings if finding.promise == "membership"]
    assert [finding.row for finding in found] == [len(rows) - 1] and {found[0].group, found[0].other} == {best, worst}


@pytest.mark.parametrize("family, implementation", [(f, i) for f in MODELS for i in implementations(f)])
@torch.no_grad()
def test_recording_changes_nothing_and_the_dump_is_judged_and_a_worse_row_caught(family, implementation, tmp_path):
    assert set(MODELS) == set(FAMILIES)
    model, ids = make_model(family, implementation=implementation), draw_ids(1, sum(STEPS))
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    plain = read(model, ids)
    with seriatim.record(model, tmp_path) as recording:
        recorded = read(model, ids)
    assert torch.equal(plain, recorded)
    assert all(vars(module).keys() == before[name].keys() for name, module in model.named_modules())
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())
    assert len(recording.files) == SELECTING[family] and sorted(tmp_path.iterdir()) == sorted(recording.files)
    for path in recording.files:
        tensors, told = read_dump(path)
        groups = np.array([n // told["group_tokens"] for n in tensors["visible"]])
        assert len(tensors["rows"]) == len(ids[0]) and (
            groups > told["budget_tokens"] // told["group_tokens"]).sum() >= 8
        report = judge_dump(path)
        assert report.rows == len(ids[0]) and broken_by(report) <= KNOWN, report
        assert "order" in broken_by(report) and report.judged["membership"] > 8
        assert broken_by(judge_dump(path, rule="set")) <= {"tie"}
        assert_a_worse_group_is_caught(path)


@pytest.mark.parametrize("family", PADDED)
@torch.no_grad()
def test_padding_on_the_left_moves_the_anchor_and_each_sequence_has_its_dump(family, tmp_path):
    model, ids = make_model(family), draw_ids(2, sum(STEPS), seed=3)
    mask = torch.ones_like(ids)
    mask[1, :23] = 0  # past the first piece
    with seriatim.record(model, tmp_path) as recording:
        read(model, ids, mask)
    assert len(recording.files) == 2 * SELECTING[family]
    for path in recording.files:
        padded = path.name.endswith("_sequence_1.safetensors")
        tensors, told = read_dump(path)
        assert told["anchor"] == (23 if padded else 0)
        assert tensors["visible"].tolist() == list(range(1, 41 - told["anchor"]))
        assert broken_by(judge_dump(path)) <= KNOWN


@torch.no_grad()
def test_bf16_generation_and_every_third_position(tmp_path):
    model, ids = make_model("deepseek_v32", dtype=torch.bfloat16), draw_ids(2, 30)
    plain = model.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)
    with seriatim.record(model, tmp_path, every=3, layers=[1]) as recording:
        again = model.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)
    assert torch.equal(plain, again)
    assert [path.name for path in recording.files] == ["layer_01_sequence_0.safetensors",
                                                       "layer_01_sequence_1.safetensors"]
    for path in recording.files:
        tensors, _ = read_dump(path)
        assert tensors["visible"].tolist() == list(range(1, 42, 3))  # the last token generated was never read
        assert broken_by(judge_dump(path)) <= KNOWN


@torch.no_grad()
def test_what_cannot_be_recorded_is_refused_by_name_and_nothing_is_left(tmp_path):
    llama = LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                                         num_attention_heads=2, vocab_size=11))
    ids, padded = draw_ids(2, 24), torch.ones(2, 24, dtype=torch.int64).index_fill(1, torch.tensor([0]), 0)
    hole = torch.ones(2, 24, dtype=torch.int64).index_fill(1, torch.tensor([7]), 0)

    def refused(model, match, call=lambda model: None, error=st.Unsupported, **options):
        with pytest.raises(error, match=match), seriatim.record(model, tmp_path, **options):
            call(model)
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]
        assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())

    refused(llama, "'llama' has no layer that selects; known are qwen4_exp")
    model = make_model("deepseek_v32")
    refused(model, "layer 7 does not select; these do", error=ValueError, layers=[7])
    refused(model, "what is 'rows'", error=ValueError, what="rows")
    refused(model, "every is 0", error=ValueError, every=0)
    refused(model, "hole between", lambda m: m(ids, attention_mask=hole))
    refused(model, "StaticCache.*use DynamicCache",
            lambda m: m(ids, cache=StaticCache(config=m.config, max_cache_len=32)))
    refused(model, "with itself", lambda m: (_ for _ in ()).throw(RuntimeError("with itself")), error=RuntimeError)
    for family, why in (("minimax_m3_vl", "blocks"), ("deepseek_v4", "entries")):
        refused(make_model(family), f"{family} counts its {why} from slot 0", lambda m: m(ids, attention_mask=padded))
    for family in ("glm5_next", "deepseek_v4"):
        refused(make_model(family), f"{family} cannot be captured", what="capture")
    refused(make_model("glm5_next", index_kpool_always_select_tail=False), "always_select_tail is False")
    qwen = st.enable(make_model("qwen4_exp"))
    with pytest.raises(st.Unsupported, match="the model is enabled"), seriatim.record(qwen, tmp_path):
        pass


def test_the_module_that_is_a_command_cannot_hide_the_function():
    with pytest.raises(ImportError, match="python -m seriatim.record"):
        importlib.import_module("seriatim.record")
    assert inspect.isfunction(seriatim.record)
