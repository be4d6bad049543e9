"""The families that attend over latents, each held against Transformers: rows against its own selection for the same
inputs, logits and layers against eager ones that attend the same rows.
"""

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache, StaticCache

import seriatim
import seriatim.transformers as st
from seriatim.transformers import latent
from seriatim.transformers.families import BY_TEXT_MODEL
from seriatim.transformers.latent_cache import LatentIndexedLayer
from support_families import (
    FULL, INDEXED, LINEAR, MAKERS, SHARED, SLIDING, WINDOW, Watcher, attentions_of, draw_ids, forced_rows, make_model,
    text_model_of,
)
from support_shared import attributes_of

TOKENS, BUDGET = 90, 16
LOGITS_BOUND = 2e-4  # f32, of logits that reach 4 to 6, after two to six layers
BF16_LOGITS_BOUND = 0.5  # of logits that reach 5, without experts
# On a layer's output in parts of its largest element, and against what eager's own rounding costs it.
LAYER_BOUND = {torch.float32: 2e-6, torch.bfloat16: 2e-2}
MOST_OF_EAGER = 1.5

families = pytest.mark.parametrize("family", list(MAKERS))


@pytest.fixture(scope="module")
def pairs():
    """The same weights, eager and enabled, made when first asked for."""
    made = {}

    def pair(family, dtype=torch.float32):
        if (family, dtype) not in made:
            eager = make_model(family, BUDGET, dtype)
            made[family, dtype] = eager, st.enable(copy.deepcopy(eager))
        for model in made[family, dtype]:
            if hasattr(model.model, "rope_deltas"):
                model.model.rope_deltas = None  # hy_v4_vl remembers them from call to call, whatever the batch
        return made[family, dtype]

    return pair


def left_padded(lengths):
    total = max(lengths)
    ids, mask = draw_ids(len(lengths), total, seed=5), torch.ones(len(lengths), total, dtype=torch.long)
    for row, length in enumerate(lengths):
        mask[row, : total - length] = 0
        ids[row, : total - length] = 0
    return ids, mask


def new_cache(model):
    return DynamicCache(config=text_model_of(model).config)


def run(model, ids, sizes, mask=None, cache=None):
    """Feeds `ids` in chunks of `sizes`, the last size repeated; all logits."""
    cache = new_cache(model) if cache is None else cache
    logits, at, sizes = [], 0, list(sizes)
    while at < ids.shape[1]:
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        seen = None if mask is None else mask[:, : at + size]
        logits.append(model(input_ids=ids[:, at : at + size], attention_mask=seen, cache=cache).logits)
        at += size
    return torch.cat(logits, dim=1), cache


def check_rows(watcher, rows_at_least, most=1.0):
    counts, dropped, worst = watcher.judge()
    assert counts["wrong"] == 0 and sum(counts.values()) >= rows_at_least, counts
    assert counts["exact"] >= 0.97 * sum(counts.values()) and dropped > 0.5 * sum(counts.values()), (counts, dropped)
    return counts, worst


def check_logits(eager, watcher, logits, ids, mask=None):
    with forced_rows(eager, watcher):
        expected = eager(input_ids=ids, attention_mask=mask, use_cache=False).logits
    real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    assert int(real.sum()) > 100 and float(expected[real].abs().max()) > 1
    assert float((logits - expected).abs().amax(-1)[real].max()) < LOGITS_BOUND


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


class Calls:
    """What each attention was given and answered."""

    def __init__(self, model):
        self.given, self.answers = {}, {}
        for attention in attentions_of(model):
            attention.register_forward_pre_hook(self._before, with_kwargs=True)
            attention.register_forward_hook(self._after)

    def _before(self, attention, args, kwargs):
        self.given[attention.layer_idx] = dict(kwargs)

    def _after(self, attention, args, output):
        self.answers[attention.layer_idx] = output[0].clone()


def dense_mask(attention, tokens, dtype):
    """Additive, causal, of the layer's window."""
    window = getattr(attention, "sliding_window", None) or tokens
    back = torch.arange(tokens)[:, None] - torch.arange(tokens)
    return torch.zeros(1, 1, tokens, tokens, dtype=dtype).masked_fill((back < 0) | (back >= window),
                                                                      torch.finfo(dtype).min)


def in_dtype(value, dtype):
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if hasattr(value, "items"):
        return {key: in_dtype(each, dtype) for key, each in value.items()}
    return tuple(in_dtype(each, dtype) for each in value) if isinstance(value, tuple) else value


def answer_of(attention, given, dtype):
    """An eager attention's answer to what an enabled one was given."""
    given = {name: in_dtype(value, dtype) if dtype == torch.float64 else value for name, value in given.items()}
    rows = given.get("prev_topk_indices")
    if rows is not None:
        given["prev_topk_indices"] = torch.where(rows < 0, rows[..., :1], rows)
    given["attention_mask"] = dense_mask(attention, given["hidden_states"].shape[1], dtype)
    return attention(**given)[0]


@torch.no_grad()
@families
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_layer_answers_as_an_eager_one_over_the_same_rows(family, dtype):
    eager = make_model(family, BUDGET, dtype)
    model = st.enable(copy.deepcopy(eager))
    exact = copy.deepcopy(eager).double()
    calls, watcher, ids = Calls(model), Watcher(model), draw_ids(2, TOKENS)
    with st.watching(model, watcher), watcher.beside():
        model(input_ids=ids, use_cache=False)
    check_rows(watcher, 4 * TOKENS)
    assert len(calls.given) == len(attentions_of(model)) == len(calls.answers)
    with forced_rows(eager, watcher), forced_rows(exact, watcher):
        for at, (plain, truth) in enumerate(zip(attentions_of(eager), attentions_of(exact))):
            expected = answer_of(truth, calls.given[at], torch.float64)
            theirs = answer_of(plain, calls.given[at], dtype).double() - expected
            ours = calls.answers[at].double() - expected
            scale = float(expected.abs().max())
            print(f"{family} {dtype} layer {at}: ours {float(ours.abs().max()) / scale:.2g}, "
                  f"eager {float(theirs.abs().max()) / scale:.2g} of {scale:.2g}")
            assert float(ours.abs().max()) <= LAYER_BOUND[dtype] * scale
            assert float(ours.square().mean().sqrt()) <= MOST_OF_EAGER * float(theirs.square().mean().sqrt())


@torch.no_grad()
@families
def test_bf16_logits_are_as_near_to_f64_as_eager_ones(pairs, family):
    """Of models without experts: a router that chooses by top-k turns a last bit into another expert."""
    dense = ["dense"] * len(attentions_of(pairs(family)[0]))
    eager = make_model(family, BUDGET, torch.bfloat16, mlp_layer_types=dense)
    model, exact = st.enable(copy.deepcopy(eager)), copy.deepcopy(eager).double()
    ids, watcher = draw_ids(2, TOKENS), Watcher(model)
    with st.watching(model, watcher), watcher.beside():
        ours, _ = run(model, ids, [TOKENS])
    check_rows(watcher, 4 * TOKENS)
    with forced_rows(eager, watcher), forced_rows(exact, watcher):
        theirs, truth = (one(input_ids=ids, use_cache=False).logits for one in (eager, exact))
    of_ours, of_theirs = (float((logits - truth).square().mean().sqrt()) for logits in (ours, theirs))
    print(f"{family}: ours {of_ours:.2g}, eager {of_theirs:.2g} from f64, "
          f"{float((ours - theirs).abs().max()):.2g} at most from one another")
    assert 0 < of_ours <= 1.25 * of_theirs and float((ours - theirs).abs().max()) < BF16_LOGITS_BOUND


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


REFUSED = {
    "StaticCache": lambda model: dict(cache=StaticCache(config=text_model_of(model).config, max_cache_len=64)),
    "offloads": lambda model: dict(cache=offloading(new_cache(model))),
    "without layers": lambda model: dict(cache=DynamicCache()),
    "failed half-way": lambda model: dict(cache=uneven(model)),
    "output_attentions": lambda model: dict(output_attentions=True),
    "hole at slot 7": lambda model: dict(attention_mask=torch.ones(2, 40).index_fill(1, torch.tensor([7]), 0)),
    "4 axes": lambda model: dict(attention_mask=torch.ones(2, 1, 40, 40, dtype=torch.bool)),
}


def offloading(cache):
    cache.offloading = True
    return cache


def uneven(model):
    cache = run(model, draw_ids(2, 20), [20])[1]
    cache.layers[0].crop(-3)
    return cache


@torch.no_grad()
@families
def test_what_is_not_supported_is_refused_by_name_before_any_layer_runs(family):
    model, ran = st.enable(make_model(family, BUDGET)), []
    for attention in attentions_of(model):
        attention.register_forward_pre_hook(lambda *_: ran.append(1))
    for name, arguments in REFUSED.items():
        arguments = arguments(model)
        ran.clear()
        with pytest.raises(st.Unsupported, match=name):
            model(input_ids=draw_ids(2, 40), **arguments)
        assert not ran, name
    model(input_ids=draw_ids(2, 40))
    assert ran


def test_families_that_are_not_served_yet_are_refused_with_the_list_of_known_ones():
    from transformers import AutoConfig, AutoModel

    for name in ("minimax_m3_vl", "deepseek_v4"):
        config = AutoConfig.for_model(name)
        with torch.device("meta"):
            model = AutoModel.from_config(config)
        known = "qwen4_exp, deepseek_v32, glm_moe_dsa, hy_v4, hy_v4_vl, dots3_note, axk2, mistral_large4, glm5_next"
        with pytest.raises(st.Unsupported, match=f"'{name}' is not a known family; known are {known}"):
            st.enable(model)


def test_a_projection_that_cannot_be_absorbed_is_refused_when_enabling():
    model = make_model("deepseek_v32", BUDGET)
    attentions_of(model)[1].kv_b_proj = torch.nn.Linear(32, 4 * 40, bias=True)
    with pytest.raises(st.Unsupported, match="layer 1: kv_b_proj"):
        st.enable(model)
    assert not st.is_enabled(model)


@torch.no_grad()
def test_latents_that_are_not_finite_are_refused_when_they_are_appended():
    model = st.enable(make_model("deepseek_v32", BUDGET))
    attentions_of(model)[0].kv_a_proj_with_mqa.weight[40, 3] = float("inf")
    for cached in (True, False):
        with pytest.raises(ValueError, match="keys"):
            model(input_ids=draw_ids(1, 20), cache=new_cache(model) if cached else None, use_cache=cached)


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


def test_pools_whose_tail_is_not_attended_are_refused_when_enabling():
    with pytest.raises(st.Unsupported, match="index_kpool_always_select_tail"):
        st.enable(make_model("glm5_next", BUDGET, index_kpool_always_select_tail=False))


def test_sliding_layers_read_their_window_and_no_more(pairs):
    model = pairs("dots3_note")[1]
    sliding = [attention for attention in attentions_of(model)
               if model.config.layer_types[attention.layer_idx] == SLIDING]
    assert len(sliding) == 2
    with torch.no_grad():
        _, cache = run(model, draw_ids(1, 70), [50, 1])
    assert all(cache.layers[attention.layer_idx].keys.shape[2] == WINDOW - 1 for attention in sliding)
