"""What enable changes and disable puts back, and what is refused by name before anything runs."""

import copy

import pytest
import torch
from transformers import DynamicCache, StaticCache
from transformers.models.llama import LlamaConfig, LlamaForCausalLM

import seriatim.transformers as st
from support_models import INDEXED, attentions_of, draw_ids, make_model
from support_shared import attributes_of

IDS = draw_ids(2, 40)


@torch.no_grad()
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_disable_puts_back_state_attributes_and_outputs(implementation):
    model = make_model(budget=16, implementation=implementation)
    before, weights = model(IDS).logits, copy.deepcopy(model.state_dict())
    attributes = attributes_of(model)
    st.enable(model)
    assert st.is_enabled(model) and list(model.state_dict()) == list(weights)
    enabled = model(IDS).logits
    st.disable(model)
    assert not st.is_enabled(model)
    assert attributes_of(model) == attributes and len(attributes) > 100
    assert all(torch.equal(weights[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(model(IDS).logits, before) and not torch.equal(enabled, before)


@torch.no_grad()
def test_no_attention_forward_is_replaced():
    model = st.enable(make_model())
    assert all("forward" not in vars(attention) for attention in attentions_of(model))
    assert all("forward" in vars(attention.indexer) for attention in attentions_of(model))


@torch.no_grad()
def test_a_deep_copy_of_an_enabled_model_is_enabled_and_apart():
    model = st.enable(make_model(budget=16))
    twin = copy.deepcopy(model)
    assert torch.equal(twin(IDS).logits, model(IDS).logits)
    st.disable(model)
    assert st.is_enabled(twin) and twin.config._attn_implementation == "seriatim"
    attentions_of(twin)[0].indexer.index_qk_proj.weight.zero_()
    assert torch.isfinite(twin(IDS).logits).all()


@torch.no_grad()
def test_weights_that_change_afterwards_are_followed():
    model = st.enable(make_model(budget=16))
    model(IDS)
    for attention in attentions_of(model):
        attention.indexer.k_layernorm.weight.normal_(0, 1)
    fresh = copy.deepcopy(st.disable(model))
    assert torch.equal(st.enable(model)(IDS).logits, st.enable(fresh)(IDS).logits)
    halved = model.to(torch.bfloat16)(IDS).logits
    assert halved.dtype == torch.bfloat16 and torch.isfinite(halved).all()


def test_enabling_twice_and_disabling_what_is_not_enabled_are_errors():
    model = make_model()
    with pytest.raises(ValueError, match="not enabled"):
        st.disable(model)
    st.enable(model)
    with pytest.raises(ValueError, match="already"):
        st.enable(model)


def test_an_unknown_family_is_refused_with_the_list_of_known_ones():
    model = LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                                         num_attention_heads=2, vocab_size=11))
    with pytest.raises(st.Unsupported, match="'llama' is not a known family; known are qwen4_exp"):
        st.enable(model)
    assert model.config._attn_implementation != "seriatim"


def test_scaled_rotations_are_refused_when_enabling():
    rope = {"rope_type": "yarn", "rope_theta": 1e7, "factor": 4.0, "original_max_position_embeddings": 4096,
            "partial_rotary_factor": 1.0, "mrope_section": [6, 5, 5]}
    with pytest.raises(st.Unsupported, match="yarn"):
        st.enable(make_model(rope_parameters=rope))


REFUSED = {
    "output_attentions": lambda model: dict(output_attentions=True),
    "StaticCache": lambda model: dict(cache=StaticCache(config=model.config, max_cache_len=64)),
    "offloads": lambda model: dict(cache=offloading_cache(model)),
    "without layers": lambda model: dict(cache=DynamicCache()),
    "4 axes": lambda model: dict(attention_mask=torch.ones(2, 1, 40, 40, dtype=torch.bool)),
    "hole at slot 7": lambda model: dict(attention_mask=torch.ones(2, 40).index_fill(1, torch.tensor([7]), 0)),
    "packed sequences": lambda model: dict(position_ids=torch.arange(20).repeat(2, 2), use_cache=False),
    "cu_seq_lens_q": lambda model: dict(cu_seq_lens_q=torch.tensor([0, 20, 40])),
}


def offloading_cache(model):
    cache = DynamicCache(config=model.config)
    cache.offloading = True
    return cache


@torch.no_grad()
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_refused_by_name_before_any_layer_runs(name):
    model = st.enable(make_model(budget=16))
    ran = []
    for attention in attentions_of(model):
        attention.register_forward_pre_hook(lambda *_: ran.append(1))
    with pytest.raises(st.Unsupported, match=name):
        model(IDS, **REFUSED[name](model))
    assert not ran
    model(IDS)
    assert ran


def test_gradients_and_training_are_refused():
    model = st.enable(make_model(budget=16))
    model.requires_grad_(True)
    with pytest.raises(st.Unsupported, match="gradients"):
        model(IDS)
    with torch.no_grad():
        model(IDS)
        model.train()
        with pytest.raises(st.Unsupported, match="training"):
            model(IDS)
        model.eval()
        with torch.autocast("cpu", torch.bfloat16), pytest.raises(st.Unsupported, match="autocast"):
            model(IDS)


@torch.no_grad()
def test_a_static_cache_is_refused_in_generate_too():
    model = st.enable(make_model(budget=16))
    with pytest.raises(st.Unsupported, match="StaticCache"):
        model.generate(IDS, max_new_tokens=3, cache_implementation="static")


@torch.no_grad()
def test_values_that_are_not_finite_are_refused_when_they_are_appended():
    model = st.enable(make_model(budget=16, layers=[INDEXED]))
    attentions_of(model)[0].v_proj.weight[3, 3] = float("inf")
    with pytest.raises(ValueError, match="values"):
        model(IDS)
