"""Enabled models in a process that others share: default devices and modes, tensors that others hold,
pickles."""

import copy
import io
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import seriatim
import seriatim.transformers as st
from support_enabled import ALL, KINDS, ids_of, in_steps, indexed_layers, made, new_cache
from support_models import INDEXED, draw_ids, make_model

@torch.no_grad()
@pytest.mark.parametrize("family", ALL)
def test_a_default_device_other_than_the_cpu_changes_nothing(enabled, family):
    model, ids = enabled(family), ids_of(family, 1, 70)
    wanted = in_steps(model, ids, [60, 9, 1])
    seen, cache = [], new_cache(model)  # Transformers' own sliding layers cannot be made under another default device
    with torch.device("meta"), st.watching(model, seen.append):
        logits = in_steps(model, ids, [60, 9, 1], cache)
    assert torch.equal(logits, wanted) and seen
    assert all(one.rows.device.type == "cpu" and one.output.device.type == "cpu" for one in seen)


@torch.no_grad()
@pytest.mark.parametrize("family", KINDS)
def test_what_is_recorded_under_another_default_device_is_the_same(family, tmp_path):
    model, ids = made(family), ids_of(family, 1, 70)
    what = "dump" if family == "glm5_next" else "both"  # whose pools cannot be captured
    for name, device in (("here", "cpu"), ("elsewhere", "meta")):
        with torch.device(device), seriatim.record(model, tmp_path / name, what=what):
            model(ids, use_cache=False)
    files = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) and len(files) >= 2
    for name in files:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "elsewhere" / name).read_bytes(), name


@torch.no_grad()
@pytest.mark.parametrize("family", KINDS)
def test_other_defaults_of_the_process_change_nothing(enabled, family):
    model, ids = enabled(family), ids_of(family, 1, 70)
    wanted = in_steps(model, ids, [69, 1])
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(in_steps(model, ids, [69, 1]), wanted)
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_default_dtype(torch.float32)
    with torch.inference_mode():
        cache = new_cache(model)
        assert torch.equal(model(ids[:, :69], cache=cache).logits, wanted[:, :69])
    assert torch.equal(model(ids[:, 69:], cache=cache).logits, wanted[:, 69:])


@torch.no_grad()
@pytest.mark.parametrize("family", KINDS)
def test_fake_tensors_are_refused_by_name_before_anything_runs(enabled, family):
    model, ids = enabled(family), ids_of(family, 1, 70)
    cache = new_cache(model)
    model(ids, cache=cache)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        for given in (ids[:, :1], mode.from_tensor(ids[:, :1])):
            with pytest.raises(st.Unsupported, match="FakeTensorMode"):
                model(given, cache=cache)
    assert cache.get_seq_length() == 70
    with pytest.raises(st.Unsupported, match="FakeTensorMode"):
        model(mode.from_tensor(ids[:, :1]), cache=cache)


def snapshot(cache, privately=False):
    """What prefix caches keep of a cache: its layers' attributes, not copied."""
    return [{name: value for name, value in vars(layer).items() if privately or not name.startswith("_")}
            for layer in cache.layers]


def restored(model, state):
    cache = new_cache(model)
    for layer, attributes in zip(cache.layers, state):
        layer.__dict__.update(attributes)
    return cache


def tensors_of(state):
    return {(at, name): value for at, layer in enumerate(state) for name,
            value in layer.items() if isinstance(value, torch.Tensor)}


@torch.no_grad()
@pytest.mark.parametrize("privately", [False, True], ids=["public", "all"])
@pytest.mark.parametrize("family", KINDS[:2])
def test_what_a_cache_handed_out_never_changes(enabled, family, privately):
    model = enabled(family)
    ids, other = ids_of(family, 2, 90), ids_of(family, 2, 60, seed=9)
    cache = new_cache(model)
    model(ids[:, :61], cache=cache)
    held = snapshot(cache, privately)
    before = {name: value.clone() for name, value in tensors_of(held).items()}
    wanted = model(ids[:, 61:], cache=copy.deepcopy(cache)).logits
    assert len(before) >= 6
    for removed, tokens in ((20, 30), (31, 1), (1, 1), (5, 40)):
        cache.crop(-removed)
        model(other[:, :tokens], cache=cache)
    for name, value in tensors_of(held).items():
        assert torch.equal(value, before[name]), name
    assert torch.equal(model(ids[:, 61:], cache=restored(model, held)).logits, wanted)
    for name, value in tensors_of(held).items():
        assert torch.equal(value, before[name]), name


@torch.no_grad()
@pytest.mark.parametrize("family", KINDS[:2])
def test_two_caches_of_one_state_go_different_ways(enabled, family):
    """Each continues the other's snapshot; neither may write where the other reads."""
    model = enabled(family)
    ids, one, other = ids_of(family, 1, 61), ids_of(family, 1, 30, seed=8), ids_of(family, 1, 30, seed=9)
    alone = []
    for rest in (one, other):
        cache = new_cache(model)
        model(ids, cache=cache)
        alone.append(torch.cat([model(rest[:, at : at + 5], cache=cache).logits for at in range(0, 30, 5)], 1))
    first = new_cache(model)
    model(ids, cache=first)
    second = restored(model, snapshot(first, privately=True))
    together = [[], []]
    for at in range(0, 30, 5):
        for logits, cache, rest in zip(together, (first, second), (one, other)):
            logits.append(model(rest[:, at : at + 5], cache=cache).logits)
    for logits, wanted in zip(together, alone):
        assert torch.equal(torch.cat(logits, 1), wanted)


@torch.no_grad()
@pytest.mark.parametrize("family", KINDS)
def test_where_nobody_holds_tensors_a_crop_and_appends_copy_nothing(enabled, family):
    model, ids = enabled(family), ids_of(family, 1, 70)
    cache = new_cache(model)
    if family == "glm5_next":
        cache.activate_past_recording()
    model(ids, cache=cache)
    places = lambda: [(layer.keys.data_ptr(), layer.indexer_keys.data_ptr(), layer.panels.data_ptr())
                      for layer in indexed_layers(cache)]
    was = places()
    assert was
    for _ in range(5):
        model(ids[:, :6], cache=cache)  # a draft of six, of which two are taken
        cache.crop(-4)
    assert places() == was and cache.get_seq_length() == 80


@torch.no_grad()
def test_a_numpy_view_counts_as_somebody_who_holds(enabled):
    model, ids = enabled("qwen4_exp"), draw_ids(1, 70)
    cache = new_cache(model)
    model(ids, cache=cache)
    view = cache.layers[0].values.numpy()
    before = view.copy()
    cache.crop(-30)
    model(ids[:, :40], cache=cache)
    assert (view == before).all()


ARRIVAL = """
import sys, torch
import seriatim.transformers as st
model, ids, wanted = torch.load(sys.argv[1], weights_only=False)
assert st.is_enabled(model)
with torch.no_grad():
    assert torch.equal(model(ids).logits, wanted)
    st.disable(model)
    model(ids)
"""


@torch.no_grad()
@pytest.mark.parametrize("family", ALL)
def test_an_enabled_model_travels(enabled, family):
    model, ids = enabled(family), ids_of(family, 1, 70)
    wanted = model(ids).logits
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    for arrived in (torch.load(buffer, weights_only=False), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        seen, elsewhere = [], []
        with st.watching(arrived, seen.append), st.watching(model, elsewhere.append):
            assert torch.equal(arrived(ids).logits, wanted)
        assert seen and not elsewhere
        parts = set(map(id, arrived.modules()))
        assert all(id(one.attention) in parts for one in seen)
        st.disable(arrived)
        assert st.is_enabled(model) and not st.is_enabled(arrived)
        assert torch.isfinite(arrived(ids).logits).all()


@torch.no_grad()
def test_an_enabled_model_arrives_in_another_process(enabled, tmp_path):
    model, ids = enabled("qwen4_exp"), draw_ids(1, 70)
    torch.save((model, ids, model(ids).logits), tmp_path / "model")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", ARRIVAL, tmp_path / "model"], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr


@torch.no_grad()
@pytest.mark.parametrize("family", KINDS)
def test_a_cache_travels_and_goes_on(enabled, family):
    model, ids = enabled(family), ids_of(family, 1, 90)
    cache = new_cache(model)
    model(ids[:, :70], cache=cache)
    arrived = pickle.loads(pickle.dumps(cache))
    wanted = model(ids[:, 70:], cache=cache).logits
    assert torch.equal(model(ids[:, 70:], cache=arrived).logits, wanted)


@torch.no_grad()
@pytest.mark.parametrize("family", KINDS[:2])
def test_a_cache_that_torch_sends_to_a_process_shares_no_memory_that_is_written(enabled, family):
    """torch.multiprocessing moves tensors to shared memory and sends its name: both processes hold the same keys."""
    model, ids, other = enabled(family), ids_of(family, 1, 90), ids_of(family, 1, 60, seed=9)
    cache = new_cache(model)
    model(ids[:, :70], cache=cache)
    alone = copy.deepcopy(cache)
    wanted = [model(ids[:, at : at + 10], cache=alone).logits for at in (70, 80)]
    strategy = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        sent = bytes(ForkingPickler.dumps(cache))
        torch.multiprocessing.reductions.shared_cache.clear()  # as in another process: it maps the memory itself
        arrived = pickle.loads(sent)
    finally:
        torch.multiprocessing.set_sharing_strategy(strategy)
    assert indexed_layers(arrived)[0].keys.is_shared()
    cache.crop(-20)
    model(other, cache=cache)
    assert torch.equal(model(ids[:, 70:80], cache=arrived).logits, wanted[0])
    model(other, cache=cache)
    assert torch.equal(model(ids[:, 80:], cache=arrived).logits, wanted[1])


@torch.no_grad()
@pytest.mark.parametrize("family", KINDS)
def test_threads_that_call_one_model_at_once_get_what_one_alone_gets(enabled, family):
    model = enabled(family)
    prompts = [ids_of(family, 1, 60 + 5 * at, seed=at) for at in range(3)]
    alone = [in_steps(model, ids, [50, 5, 1, 1]) for ids in prompts]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda ids: in_steps_quietly(model, ids), prompts * 3))
    for at, logits in enumerate(together):
        assert torch.equal(logits, alone[at % 3])


def in_steps_quietly(model, ids):
    with torch.no_grad():  # a mode of the thread
        return in_steps(model, ids, [50, 5, 1, 1])


@torch.no_grad()
@pytest.mark.parametrize("family", KINDS)
def test_tracers_are_refused_and_those_who_look_on_are_not(enabled, family):
    model, ids = enabled(family), ids_of(family, 1, 70)
    logits_of = lambda given: model(given).logits
    for trace in (lambda: torch.jit.trace(logits_of, ids), lambda: make_fx(logits_of)(ids)):
        with pytest.raises(st.Unsupported, match="constants"):
            trace()
    with FlopCounterMode(display=False):
        watched = model(ids).logits
    assert torch.equal(watched, model(ids).logits)


@torch.no_grad()
@pytest.mark.parametrize("family", ["deepseek_v32", "glm5_next"])
def test_what_others_put_in_the_way_of_a_weight_that_is_read_in_place_is_refused(family):
    model, ids = st.enable(made(family)), ids_of(family, 1, 30)
    wanted = model(ids).logits
    attention = next(module for module in model.modules() if hasattr(module, "kv_b_proj"))
    expand = attention.kv_b_proj
    handle = expand.register_forward_hook(lambda module, args, output: output + 1)
    with pytest.raises(st.Unsupported, match="kv_b_proj has hooks"):
        model(ids)
    handle.remove()
    expand.forward = lambda hidden: hidden  # as accelerate's hooks do
    with pytest.raises(st.Unsupported, match="kv_b_proj has hooks"):
        model(ids)
    del expand.forward
    attention.kv_b_proj = torch.nn.Sequential(expand)  # as adapters and quantizers do
    with pytest.raises(st.Unsupported, match="kv_b_proj is a Sequential"):
        model(ids)
    attention.kv_b_proj = expand
    assert torch.equal(model(ids).logits, wanted)


@torch.no_grad()
def test_hooks_on_a_norm_that_is_read_in_place_are_refused():
    model, ids = st.enable(make_model(layers=[INDEXED], budget=16)), draw_ids(1, 30)
    norm = model.model.layers[0].self_attn.indexer.k_layernorm
    handle = norm.register_forward_pre_hook(lambda module, args: None)
    with pytest.raises(st.Unsupported, match="k_layernorm has hooks"):
        model(ids)
    handle.remove()
    model(ids)


@torch.no_grad()
def test_values_without_memory_are_refused_by_name(enabled):
    """As a model whose weights were freed, or whose projection answers a tensor that was never made."""
    model = st.enable(make_model(layers=[INDEXED], budget=16))
    attention = model.model.layers[0].self_attn
    forward = attention.v_proj.forward
    attention.v_proj.forward = lambda hidden: torch._efficientzerotensor(tuple(forward(hidden).shape))
    with pytest.raises(seriatim.InvalidArgument, match="values: has extents and no memory"):
        model(draw_ids(1, 70))
