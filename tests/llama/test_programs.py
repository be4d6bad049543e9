"""llama_run and make_model.py themselves."""

import json
import subprocess

import numpy as np
import pytest
import running


def test_a_filled_cache_is_decoded_from(model, run):
    for family in ("qwen4exp", "deepseek32", "glm-dsa", "hy_v4", "minimax-m3"):
        for cache_type in ("f16", "q8_0"):
            result = run(model(family), backend=False, fill=1500, tokens=8, steps=2, threads=1, cache_type=cache_type)
            assert result.answer["position"] == 1510
            assert np.isfinite(result.logits).all()


def test_a_family_whose_state_is_not_known_is_not_filled(built, model):
    with pytest.raises(running.Failed, match="a cache of dots3note cannot be filled"):
        running.run(built.run, model("dots3note"), fill=1500)


def test_the_sparse_parts_of_layers_are_timed(built, model):
    for family, layers in (("qwen4exp", 2), ("deepseek32", 4), ("glm-dsa", 4)):
        result = running.run(built.run, model(family), "--time-layers", tokens=300, steps=3, threads=1)
        assert result.answer["sparse_layers"] == layers
        assert len(result.answer["sparse_ms"]) == 3
        for sparse, whole in zip(result.answer["sparse_ms"], result.answer["decode_ms"]):
            assert 0 < sparse < whole
    timed = running.run(built.run, model("qwen4exp"), "--time-layers", backend=built.backend, tokens=300, steps=3)
    assert timed.counters["chains"] > 0 and timed.answer["sparse_layers"] == 2  # not taken apart by being looked at


def test_options_are_refused_by_name(built):
    for arguments, message in ((["--tokns", "3"], "there is no --tokns"),
                               (["--tokens", "x"], "--tokens must be a number"),
                               (["--flash", "maybe"], "--flash must be on, off or auto"),
                               (["--cache-type", "f17"], "ggml has no type 'f17'"), ([], "usage: llama_run")):
        done = subprocess.run([built.run, *arguments], capture_output=True, text=True)
        assert done.returncode == 2 and message in done.stderr


def test_a_recording_holds_every_query(model, run, tmp_path):
    run(model("glm-dsa"), backend=False, tokens=100, ubatch=30, steps=5, record=tmp_path, threads=1)
    dump = running.read_dump(tmp_path / "layer_00.safetensors")
    assert (dump["visible"] == np.arange(1, 106)).all()
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".safetensors") == [
        "layer_00.safetensors", "layer_02.safetensors"]
    header = (tmp_path / "layer_00.safetensors").read_bytes()
    metadata = json.loads(header[8:8 + int.from_bytes(header[:8], "little")])["__metadata__"]
    assert metadata["budget_tokens"] == "64" and metadata["engine"].startswith("llama.cpp with ggml ")
