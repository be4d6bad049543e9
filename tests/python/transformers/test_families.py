"""The families that attend over latents, each held against Transformers: rows against its own selection for the same
inputs, logits and layers against eager ones that attend the same rows.
"""

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import seriatim
import seriatim.transformers as st
from seriatim.transformers import latent
from seriatim.transformers.families import BY_TEXT_MODEL
from seriatim.transformers.latent_cache import LatentIndexedLayer
from support_families import (
    FULL, INDEXED, LINEAR, MAKERS, SHARED, SLIDING, WINDOW, Watcher, attentions_of, draw_ids, forced_rows, make_model,
    text_model_of,
)
from support_family_runs import (
    BUDGET, LOGITS_BOUND, TOKENS, check_logits, check_rows, families, left_padded, new_cache, run,
)
from support_shared import attributes_of


@torch.no_grad()
@families
@pytest.mark.parametrize("sizes", [[TOKENS], [37, 1, 1, 26, 3, 5], [1]], ids=["prefill", "chunks", "decode"])
def test_rows_and_logits_of_any_chunking(pairs, family, sizes):
    eager, model = pairs(family)
    ids, watcher = draw_ids(2, TOKENS), Watcher(model)
    with st.watching(model, watcher), watcher.beside():
        logits, _ = run(model, ids, sizes)
    check_rows(watcher, 4 * TOKENS)
    check_logits(eager, watcher, logits, ids)


@torch.no_grad()
@families
@pytest.mark.parametrize("sizes", [[TOKENS], [70, 1]], ids=["prefill", "decode"])
def test_left_padding_and_unequal_lengths(pairs, family, sizes):
    eager, model = pairs(family)
    ids, mask = left_padded([TOKENS, TOKENS - 9, 50])
    watcher = Watcher(model)
    with st.watching(model, watcher), watcher.beside():
        logits, _ = run(model, ids, sizes, mask)
    check_rows(watcher, 2 * (3 * TOKENS - 49))
    check_logits(eager, watcher, logits, ids, mask)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_across_the_real_budget(dtype):
    eager = make_model("deepseek_v32", 2048, dtype, index_n_heads=4)
    model, ids = st.enable(copy.deepcopy(eager)), draw_ids(1, 2120)
    watcher = Watcher(model)
    with torch.inference_mode(), st.watching(model, watcher), watcher.beside():
        run(model, ids, [2000, 100, 19, 1])
    counts, dropped, _ = watcher.judge()
    assert counts["wrong"] == 0 and counts["exact"] > 0.97 * sum(counts.values()) and sum(counts.values()) == 2 * 2120
    assert dropped == 2 * 72


@torch.no_grad()
@families
def test_crop_and_another_continuation_equal_a_cache_that_never_saw_the_rest(pairs, family):
    model = pairs(family)[1]
    ids, other = draw_ids(2, TOKENS), draw_ids(2, TOKENS, seed=9)
    for kept in (1, 41):
        cropped, fresh = new_cache(model), new_cache(model)
        for cache in (cropped, fresh):
            cache.activate_past_recording()  # without it a sliding layer forgets what a crop would have to bring back
            run(model, ids[:, :kept], [kept], cache=cache)
        run(model, ids[:, kept : kept + 30], [30], cache=cropped)
        cropped.crop(-30)
        assert cropped.get_seq_length() == kept
        assert torch.equal(run(model, other[:, :40], [25, 1], cache=cropped)[0],
                           run(model, other[:, :40], [25, 1], cache=fresh)[0])


@torch.no_grad()
@families
@pytest.mark.parametrize("operation, rows", [
    (lambda cache: cache.reorder_cache(torch.tensor([2, 0, 0])), [2, 0, 0]),
    (lambda cache: cache.batch_repeat_interleave(2), [0, 0, 1, 1, 2, 2]),
    (lambda cache: cache.batch_select_indices(torch.tensor([1])), [1]),
], ids=["reorder", "repeat", "select"])
def test_operations_on_the_batch(pairs, family, operation, rows):
    eager, model = pairs(family)
    ids, mask = left_padded([60, 51, 40])
    after = draw_ids(len(rows), 12, seed=11)
    cache, watcher = new_cache(model), Watcher(model)
    run(model, ids, [60], mask, cache)
    operation(cache)
    whole = torch.cat([ids[rows], after], 1)
    mask = torch.cat([mask[rows], torch.ones(len(rows), 12, dtype=torch.long)], 1)
    logits = [model(input_ids=after[:, at : at + 4], attention_mask=mask[:, : 64 + at], cache=cache).logits
              for at in (0, 4, 8)]
    with st.watching(model, watcher), watcher.beside():
        expected, _ = run(model, whole, [72], mask)
    check_rows(watcher, len(rows) * 40)
    close = (torch.cat(logits, 1) - expected[:, 60:]).abs().amax(-1) < LOGITS_BOUND
    assert close.float().mean() > 0.9  # a tie may fall otherwise where projections round otherwise


@torch.no_grad()
@families
def test_a_cache_changes_hands_between_eager_and_enabled(pairs, family):
    eager, model = pairs(family)
    ids = draw_ids(1, TOKENS)
    whole = model(input_ids=ids).logits
    for first, second in ((eager, model), (model, eager)):
        cache = new_cache(model)
        first(input_ids=ids[:, :50], cache=cache)
        second(input_ids=ids[:, 50:70], cache=cache)
        logits = first(input_ids=ids[:, 70:], cache=cache).logits
        assert cache.get_seq_length() == TOKENS
        assert ((logits - whole[:, 70:]).abs().amax(-1) < LOGITS_BOUND).float().mean() > 0.9


@torch.no_grad()
@families
@pytest.mark.parametrize("how", [dict(), dict(num_beams=3)], ids=["greedy", "beams"])
def test_generate(pairs, family, how):
    eager, model = pairs(family)
    ids, mask = left_padded([50, 41])
    answers = [one.generate(input_ids=ids, attention_mask=mask, max_new_tokens=12, do_sample=False, **how)
               for one in (eager, model, model)]
    assert torch.equal(answers[1], answers[2])
    assert answers[1].shape == answers[0].shape == (2, 62)
    assert (answers[1] == answers[0]).float().mean() > 0.95, "more than a tie's worth of tokens differ"


@torch.no_grad()
@families
def test_a_whole_model_repeats_its_bits_and_a_copied_cache_goes_its_own_way(pairs, family):
    model, ids = pairs(family)[1], draw_ids(2, TOKENS)
    once = model(input_ids=ids).logits
    assert all(torch.equal(model(input_ids=ids).logits, once) for _ in range(2))
    _, cache = run(model, ids[:, :60], [60])
    deep = copy.deepcopy(cache)
    expected, _ = run(model, ids[:, 60:], [30], cache=copy.deepcopy(cache))
    run(model, draw_ids(2, 30, seed=8), [30], cache=cache)
    assert torch.equal(run(model, ids[:, 60:], [30], cache=deep)[0], expected)
    cache.reset()
    assert torch.equal(run(model, ids, [TOKENS], cache=cache)[0], once)


@torch.no_grad()
@families
def test_a_cache_grows_in_place_in_one_store(pairs, family):
    """Of layers of ours, which sliding layers and those that reuse another's latents are not."""
    model = pairs(family)[1]
    _, cache = run(model, draw_ids(1, 60), [60])
    ours = lambda: [layer for layer in cache.layers if isinstance(layer, LatentIndexedLayer) and layer.is_initialized]
    places = [(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in ours()]
    assert len(places) >= 2
    for crop in (False, family != "dots3_note"):  # a sliding layer would have to keep the past
        run(model, draw_ids(1, 15), [1], cache=cache)
        if crop:
            cache.crop(-3)
        assert places == [(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in ours()]
        for keys, values in ((layer.keys, layer.values) for layer in ours()):
            assert values.numel() == 0 or values.data_ptr() == keys.data_ptr() + keys.shape[-1] * keys.element_size()


class Largest(TorchDispatchMode):
    """The most elements of any tensor that torch made."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return made


@torch.no_grad()
@families
def test_no_tensor_of_queries_times_keys_is_made(pairs, family):
    model, tokens = pairs(family)[1], 1500
    with Largest() as largest:
        model(input_ids=draw_ids(1, tokens), use_cache=False, logits_to_keep=1)
    assert tokens * 64 <= largest.elements < tokens * tokens // 2


@pytest.mark.parametrize("family", [name for name in MAKERS if name != "glm5_next"])
@pytest.mark.parametrize("rope", [None, {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "mscale_all_dim": 0.7,
                                         "original_max_position_embeddings": 64}], ids=["default", "yarn"])
def test_a_geometry_from_the_configuration_is_that_of_its_layers(family, rope):
    changes = {} if rope is None or family in ("dots3_note", "hy_v4_vl") else {"rope_parameters": rope}
    model = make_model(family, BUDGET, **changes)
    family = BY_TEXT_MODEL[type(text_model_of(model)).__name__]
    own = latent.geometry_of(family, attentions_of(model)[0], torch.float32, torch.float32)
    geometry = seriatim.Geometry.from_config(model.config)
    assert own["pooling"] == "none"
    assert geometry.softmax_scale == pytest.approx(own["softmax_scale"], 1e-6)
    assert geometry.kv_dtype == geometry.index_dtype == "f32"
    for name in own.keys() - {"softmax_scale", "kv_dtype", "index_dtype"}:
        assert getattr(geometry, name) == own[name], name
    assert not changes or own["softmax_scale"] > 1.1 * 32**-0.5


@torch.no_grad()
@families
def test_disable_puts_everything_back(family):
    model, ids = make_model(family, BUDGET), draw_ids(2, 40)
    before, names, attributes = model(input_ids=ids).logits, list(model.state_dict()), attributes_of(model)
    st.enable(model)
    assert st.is_enabled(model) and list(model.state_dict()) == names
    assert all("forward" not in vars(attention) for attention in attentions_of(model))
    twin = copy.deepcopy(model)
    enabled = model(input_ids=ids).logits
    st.disable(model)
    assert attributes_of(model) == attributes and len(attributes) > 100
    assert torch.equal(model(input_ids=ids).logits, before) and not torch.equal(enabled, before)
    assert st.is_enabled(twin) and torch.equal(twin(input_ids=ids).logits, enabled)
    assert torch.equal(st.disable(twin)(input_ids=ids).logits, before)


@torch.no_grad()
def test_m_rope_positions_and_the_vision_tower_of_hy_v4_vl(pairs):
    eager, model = pairs("hy_v4_vl")
    ids, watcher = draw_ids(1, TOKENS), Watcher(model)
    positions = torch.arange(TOKENS).repeat(4, 1, 1)
    positions[2, 0, 30:66], positions[3, 0, 30:66] = 30 + torch.arange(36) // 6, 30 + torch.arange(36) % 6
    positions[1, 0, 30:66], positions[1:, 0, 66:] = 30, 36 + torch.arange(TOKENS - 66)
    with st.watching(model, watcher), watcher.beside():
        logits = model(input_ids=ids, position_ids=positions).logits
    check_rows(watcher, 2 * TOKENS)
    with forced_rows(eager, watcher):
        expected = eager(input_ids=ids, position_ids=positions, use_cache=False).logits
    assert float((logits - expected).abs().max()) < LOGITS_BOUND
    assert not torch.allclose(logits, model(input_ids=ids).logits, atol=0.1)
    pixels, grid = torch.randn(16, 3 * 16 * 16), torch.tensor([[1, 4, 4]])
    features = [one.get_image_features(pixels, grid).pooler_output for one in (eager, model)]
    assert all(torch.equal(a, b) for a, b in zip(*features)) and features[0][0].numel() > 100


@torch.no_grad()
def test_glm5_next_with_linear_layers_between_and_pools_of_sixteen():
    eager = make_model("glm5_next", 32, index_kpool=16, num_hidden_layers=4,
                       layer_types=[INDEXED, LINEAR, INDEXED, INDEXED],
                       indexer_types=[FULL, FULL, FULL, SHARED], mlp_layer_types=["dense"] * 4)
    model = st.enable(copy.deepcopy(eager))
    ids, mask = left_padded([TOKENS, TOKENS - 9, 61])
    for sizes in ([TOKENS], [64, 1, 15, 10]):
        watcher = Watcher(model)
        with st.watching(model, watcher), watcher.beside():
            logits, _ = run(model, ids, sizes, mask)
        counts, dropped, _ = watcher.judge()
        assert counts["wrong"] == 0 and counts["exact"] >= 0.97 * sum(counts.values()) and dropped > 150
        assert int((watcher.rows_of(0) >= 0).sum(-1).max()) == 47  # 32 chosen and a tail of 15
        check_logits(eager, watcher, logits, ids, mask)
    answers = [one.generate(input_ids=ids, attention_mask=mask, max_new_tokens=12, do_sample=False)
               for one in (eager, model)]
    assert (answers[0] == answers[1]).float().mean() > 0.95


def test_sliding_layers_read_their_window_and_no_more(pairs):
    model = pairs("dots3_note")[1]
    sliding = [attention for attention in attentions_of(model)
               if model.config.layer_types[attention.layer_idx] == SLIDING]
    assert len(sliding) == 2
    with torch.no_grad():
        _, cache = run(model, draw_ids(1, 70), [50, 1])
    assert all(cache.layers[attention.layer_idx].keys.shape[2] == WINDOW - 1 for attention in sliding)
