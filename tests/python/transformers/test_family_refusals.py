"""What is refused of the families over latents, and of those that are not served."""

import pytest
import torch
from transformers import DynamicCache, StaticCache

import seriatim.transformers as st
from support_families import attentions_of, draw_ids, make_model, text_model_of
from support_family_runs import BUDGET, families, new_cache, run


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

    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model("deepseek_v4"))
    known = ("qwen4_exp, deepseek_v32, glm_moe_dsa, hy_v4, hy_v4_vl, dots3_note, axk2, mistral_large4, glm5_next, "
             "minimax_m3_vl")
    with pytest.raises(st.Unsupported, match=f"'deepseek_v4' is not a known family; known are {known}"):
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


def test_pools_whose_tail_is_not_attended_are_refused_when_enabling():
    with pytest.raises(st.Unsupported, match="index_kpool_always_select_tail"):
        st.enable(make_model("glm5_next", BUDGET, index_kpool_always_select_tail=False))
