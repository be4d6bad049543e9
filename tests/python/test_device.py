"""Engine(device=...): the host's bits from a device, and what is refused by name. Skipped where there is no device,
unless SERIATIM_NEED_DEVICE is set, as in CI."""

import os

import numpy as np
import pytest

import seriatim
from support_layers import filled


def devices():
    try:
        return seriatim.devices()
    except seriatim.Unsupported:
        return []


NAME = next((device.name for device in devices() if not device.lacks), "opencl")
if "asan" in os.environ.get("LD_PRELOAD", ""):
    pytest.skip("a driver's compiler in the process is not ours to check", allow_module_level=True)
pytestmark = pytest.mark.skipif(not devices() and "SERIATIM_NEED_DEVICE" not in os.environ,
                                reason="no device on this machine")


def answers(layer, tokens, first, last):
    at = np.arange(first, last)
    rows = layer.plan(tokens.index_queries[first:last], at)
    output, lse = layer.attend(tokens.queries[first:last], at, rows, return_lse=True)
    return rows.positions.tobytes(), rows.counts.tobytes(), output.tobytes(), lse.tobytes()


def test_a_published_state_gives_the_hosts_bits(geometry, tokens):
    _, host = filled(geometry, tokens)
    cache, user = filled(geometry, tokens, engine=seriatim.Engine(device=NAME))
    assert cache.engine.device == NAME
    assert host.layer().plan(tokens.index_queries[-1:], [74]).counts[0] < 75  # a sparse row is among them
    assert answers(user.layer(), tokens, 0, 75) == answers(host.layer(), tokens, 0, 75)


def test_staged_tokens_a_rollback_a_fork_and_an_eviction_give_the_hosts_bits(geometry, tokens):
    _, whole = filled(geometry, tokens)
    due = {last: answers(whole.layer(), tokens, last - 5, last) for last in (50, 75)}
    cache = seriatim.Cache(geometry, layers=2, capacity_tokens=2048, engine=seriatim.Engine(device=NAME))
    user = cache.add()

    def append(step, sequence, first, last):
        for layer in (0, 1):
            step.append(sequence, layer, tokens.keys[first:last], tokens.values[first:last],
                        tokens.index_keys[first:last])

    with cache.begin() as step:
        append(step, user, 0, 50)
        assert answers(step.layer(user, 1), tokens, 45, 50) == due[50]
    for publish in (False, True):
        step = cache.begin()
        append(step, user, 50, 75)
        for layer in (0, 1):
            assert answers(step.layer(user, layer), tokens, 70, 75) == due[75]
        step.commit() if publish else step.rollback()
        last = 75 if publish else 50
        assert answers(user.layer(1), tokens, last - 5, last) == due[last]
    other = user.fork()
    other.truncate(50)
    assert answers(other.layer(), tokens, 45, 50) == due[50]
    assert answers(user.layer(), tokens, 70, 75) == due[75]
    user.evict_prefix(7)
    whole.evict_prefix(7)
    assert answers(user.layer(), tokens, 70, 75) == answers(whole.layer(), tokens, 70, 75)
    other.remove()
    third = cache.add(7)
    third.copy_from(user, 7, 60)
    assert answers(third.layer(), tokens, 60, 67) == answers(whole.layer(), tokens, 60, 67)


def test_what_cannot_be_is_refused_by_name_and_leaves_the_outputs(geometry, tokens):
    with pytest.raises(seriatim.NotFound, match=NAME) as caught:
        seriatim.Engine(device="nope")
    assert caught.value.argument == "device"
    with pytest.raises(seriatim.InvalidArgument) as caught:
        seriatim.Cache(geometry, engine=seriatim.Engine(device=NAME))
    assert caught.value.argument == "capacity_tokens"
    _, user = filled(geometry, tokens, engine=seriatim.Engine(device=NAME))
    for name, option in (("threads", 2), ("kernels", "reference")):
        with pytest.raises(seriatim.InvalidArgument) as caught:
            seriatim.Engine(device=NAME, **{name: option})
        assert caught.value.argument == name
    out = np.full((1, 4, 8), 7, np.float32)
    rows = (np.array([[0, 2, 1]], np.int32), np.array([3], np.int32))
    with pytest.raises(seriatim.NotChronological):
        user.layer().attend(tokens.queries[:1], [40], rows, out=out)
    assert (out == 7).all()


def test_a_mapped_file_is_refused_and_a_copied_one_serves(geometry, tokens, tmp_path):
    cache, user = filled(geometry, tokens, engine=seriatim.Engine(device=NAME))
    path = tmp_path / "cache.safetensors"
    cache.save(path)
    due = answers(user.layer(), tokens, 70, 75)
    (copied,) = cache.restore(path).values()
    assert answers(copied.layer(), tokens, 70, 75) == due
    (mapped,) = cache.restore(path, "map").values()
    with pytest.raises(seriatim.InvalidArgument) as caught:
        mapped.layer().plan(tokens.index_queries[70:75], np.arange(70, 75))
    assert caught.value.argument == "layer"
    assert answers(user.layer(), tokens, 70, 75) == due


def test_a_snapshot_outlives_its_cache_and_the_device(geometry, tokens):
    cache, user = filled(geometry, tokens, engine=seriatim.Engine(device=NAME))
    due = answers(user.layer(), tokens, 70, 75)
    layer = user.snapshot().layer(0)
    user.remove()
    del cache, user
    assert answers(layer, tokens, 70, 75) == due


def test_a_device_pins_no_tokens_that_a_sequence_has_lost(geometry, tokens):
    cache = seriatim.Cache(geometry, capacity_tokens=256, page_tokens=64, engine=seriatim.Engine(device=NAME))
    user = cache.add()
    for _ in range(8):
        for _ in range(3):
            with cache.begin() as step:
                step.append(user, 0, tokens.keys, tokens.values, tokens.index_keys)
        layer = user.layer()
        layer.plan(tokens.index_queries[:5], np.arange(layer.frontier - 5, layer.frontier))
        del layer
        user.truncate(0)
    assert user.layer().tokens == 0
