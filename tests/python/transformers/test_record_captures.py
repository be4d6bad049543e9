"""seriatim.record's captures: the rule over what they hold gives what the model answered, by the NumPy oracle."""

import collections

import pytest
import torch

import canonical
import judge_families
import seriatim
import seriatim.transformers as st
from capture import read_capture
from judge_captures import OUTPUT_BOUND, judge_capture
from seriatim.transformers.recording import FAMILIES
from support_dumps import KNOWN, broken_by, header_of, judge_dump
from support_indexers import LATENT_FAMILIES, draw_ids, make_model
from test_record import STEPS, read

CAPTURED = ("qwen4_exp", *LATENT_FAMILIES)
SHORT = (17, 9, 1, 1, 5)


def judge(path):
    capture = read_capture(path)
    verdicts, output = judge_capture(capture, canonical.answer(capture))
    return capture, collections.Counter(verdict.kind for verdict in verdicts), output


@pytest.mark.parametrize("family", CAPTURED)
@torch.no_grad()
def test_a_capture_replays_and_its_outputs_are_the_layers(family, tmp_path):
    assert {name for name, known in FAMILIES.items() if known.capture in ("latent", "groups")} == set(CAPTURED)
    model, ids = make_model(family), draw_ids(1, sum(SHORT), seed=4)
    plain = read(model, ids, steps=SHORT)
    with seriatim.record(model, tmp_path, what="both", layers=[0]) as recording:
        recorded = read(model, ids, steps=SHORT)
    assert torch.equal(plain, recorded)
    assert [path.name for path in recording.files] == ["layer_00.safetensors", "layer_00_capture.safetensors"]
    capture, kinds, output = judge(recording.files[1])
    assert kinds["wrong"] == 0 and kinds["exact"] > 20 and sum(kinds.values()) == len(ids[0])
    assert (capture.visible >= capture.budget_tokens + capture.group_tokens).sum() > 10
    assert output <= 5e-6
    assert (capture.index_head_weights is not None
            and (capture.index_head_weights < 0).any()) == (family != "qwen4_exp")
    assert (capture.sinks is not None) == family.startswith("hy_v4")


@pytest.mark.parametrize("family", ["deepseek_v32", "mistral_large4"])
@torch.no_grad()
def test_outputs_over_latents_become_the_layers_own_by_its_value_projection(family, tmp_path):
    model, ids = make_model(family), draw_ids(1, sum(SHORT))
    attention = next(module for module in model.modules() if hasattr(module, "kv_b_proj"))
    answers = []
    attention.o_proj.register_forward_pre_hook(lambda module, args: answers.append(args[0][0]))
    with seriatim.record(model, tmp_path, what="capture", layers=[0]) as recording:
        read(model, ids, steps=SHORT)
    latent = torch.from_numpy(read_capture(recording.files[0]).expected_output)
    up = attention.kv_b_proj.weight.view(latent.shape[1], -1, attention.kv_lora_rank)[:, attention.qk_nope_head_dim :]
    ours = torch.einsum("qhl,hvl->qhv", latent, up).flatten(1)
    theirs = torch.cat(answers)
    assert theirs.abs().max() > 0.1 and (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()


@pytest.mark.parametrize("family", ["qwen4_exp", "deepseek_v32", "hy_v4", "dots3_note"])
@torch.no_grad()
def test_bf16_and_padding_on_the_left(family, tmp_path):
    model, ids = make_model(family, dtype=torch.bfloat16), draw_ids(2, sum(STEPS), seed=5)
    mask = torch.ones_like(ids)
    mask[0, :6] = 0
    with seriatim.record(model, tmp_path, what="capture", every=2, layers=[0]) as recording:
        read(model, ids, mask)
    for path, anchor in zip(recording.files, (6, 0)):
        capture, kinds, output = judge(path)
        assert capture.attention_storage == "BF16"
        assert capture.index_storage == ("F32" if family == "dots3_note" else "BF16")
        assert capture.anchor == anchor and capture.query_positions.tolist() == list(range(anchor, 40, 2))
        assert kinds["wrong"] == 0 and kinds["exact"] > 10 and output <= OUTPUT_BOUND["BF16"]


@torch.no_grad()
def test_generation_numbers_real_tokens_from_0_and_so_does_the_capture_that_rotates(tmp_path):
    model, ids = make_model("qwen4_exp"), draw_ids(1, 40, seed=6)
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    with seriatim.record(model, tmp_path, what="both") as recording:
        model.generate(ids, attention_mask=mask, max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert header_of(recording.files[0])["__metadata__"]["anchor"] == "5"
    capture, kinds, output = judge(recording.files[1])
    assert capture.anchor == 0 and kinds["wrong"] == 0 and kinds["exact"] > 20 and output <= 5e-6


@torch.no_grad()
def test_sdpa_gives_groups_outputs_and_latents_none(tmp_path):
    for family in ("qwen4_exp", "deepseek_v32"):
        model, ids = make_model(family, implementation="sdpa"), draw_ids(1, sum(SHORT))
        with seriatim.record(model, tmp_path / family, what="capture", layers=[0]) as recording:
            read(model, ids, steps=SHORT)
        assert ("expected_output" in header_of(recording.files[0])) == (family == "qwen4_exp")
        if family == "qwen4_exp":
            _, kinds, output = judge(recording.files[0])
            assert kinds["wrong"] == 0 and output <= 5e-6


@torch.no_grad()
def test_a_capture_refuses_what_is_not_one_growing_text(tmp_path):
    model, ids = make_model("deepseek_v32"), draw_ids(2, 24)
    with pytest.raises(st.Unsupported, match="begun anew"), seriatim.record(model, tmp_path, what="capture"):
        model(ids)
        model(ids)
    with pytest.raises(st.Unsupported, match="reordered"), seriatim.record(model, tmp_path, what="capture"):
        model.generate(ids[:1], num_beams=3, max_new_tokens=8, do_sample=False, pad_token_id=0)
    cache = model(ids, use_cache=True).cache
    refused = pytest.raises(st.Unsupported, match="from the first token on")
    with refused, seriatim.record(model, tmp_path, what="capture"):
        model(ids, cache=cache)
    qwen = make_model("qwen4_exp")
    positions = torch.arange(24).expand(3, 1, -1).clone()
    positions[2, 0, 8:12] = 8
    with pytest.raises(st.Unsupported, match="do not count on by one"), seriatim.record(qwen, tmp_path, what="capture"):
        qwen(ids[:1], position_ids=positions)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@torch.no_grad()
def test_a_dump_goes_on_where_a_capture_cannot(tmp_path):
    """Beams: every row stands for itself."""
    model, ids = make_model("deepseek_v32"), draw_ids(1, 24)
    with seriatim.record(model, tmp_path) as recording:
        model.generate(ids, num_beams=3, max_new_tokens=8, do_sample=False, pad_token_id=0)
    assert len(recording.files) == 2 * 3
    for path in recording.files:
        report = judge_dump(path)
        assert report.rows == 24 + 7 and broken_by(report) <= KNOWN


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@torch.no_grad()
def test_a_capture_of_row_sets_is_the_models_own_choice(dtype, tmp_path):
    """By the NumPy rendering of part 2, and by the library: rows of either are those that the model attended to."""
    model, ids = make_model("minimax_m3_vl", dtype=dtype), draw_ids(1, sum(STEPS), seed=4)
    plain = read(model, ids)
    with seriatim.record(model, tmp_path, what="both", layers=[0]) as recording:
        assert torch.equal(read(model, ids), plain)
    (path,) = [path for path in recording.files if path.stem.endswith("capture")]
    judged = judge_families.Judge(path).run()
    assert judged.faults == [] and judged.rows == 2 * len(ids[0])
