"""Makes the captures of tests/fixtures from Transformers' own QSA layer, or shows that they have not changed.

    python3 tools/make_capture.py                 write tests/fixtures/*.safetensors anew
    python3 tools/make_capture.py --out DIR       write elsewhere
    python3 tools/make_capture.py --check         make them in a temporary folder and compare, byte by byte

Needs tools/requirements-capture.txt; building and testing Seriatim needs none of it.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

# One thread and instruction sets that x86-64 machines have had for ten years: which bits a matrix product has
# depends on both. The variables are read when torch is loaded.
os.environ.update(
    ATEN_CPU_CAPABILITY="avx2", MKL_CBWR="COMPATIBLE", MKL_NUM_THREADS="1", OMP_NUM_THREADS="1", DNNL_MAX_CPU_ISA="AVX2"
)

import numpy as np
import safetensors
import torch
import transformers

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
sys.path.insert(0, str(ROOT / "tests" / "oracle"))

from capture_recipes import RECIPES
from qsa_layer import BUDGET_TOKENS, GROUP_TOKENS, INDEX_ROTARY_DIM, MROPE_SECTION, ROPE_THETA, run_layer
from safetensors_file import Tensor, load, save

PINNED = {"torch": "2.13.0", "transformers": "5.24.0"}


def require_pinned_versions():
    found = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    if found != PINNED:
        sys.exit(f"the fixtures are made with {PINNED}, this environment has {found}")


def to_file(tensor):
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return Tensor("BF16", tensor.view(torch.uint16).numpy())
    names = {torch.float32: "F32", torch.int32: "I32", torch.int64: "I64"}
    return Tensor(names[tensor.dtype], tensor.numpy())


def rows_from_mask(selected):
    """[Q, slots] booleans to [Q, B + r - 1] ascending slots, -1 past each count."""
    rows = torch.full((len(selected), BUDGET_TOKENS + GROUP_TOKENS - 1), -1, dtype=torch.int32)
    for query, chosen in enumerate(selected):
        slots = chosen.nonzero().flatten()
        rows[query, : len(slots)] = slots
    return rows


def describe(recipe):
    rotation = "the layer's own" if recipe.head_dim == INDEX_ROTARY_DIM else f"of {recipe.head_dim} dims in attention"
    return (
        f"Qwen4ExpTextAttention of transformers {PINNED['transformers']}, torch {PINNED['torch']} (CPU), "
        f"tools/make_capture.py, {recipe.name}, seed {recipe.seed}, {recipe.dtype}, {recipe.left_padding} pad slots "
        f"on the left, rotation {rotation}, mrope sections {MROPE_SECTION}"
    )


def make_capture(recipe, path):
    seen, constants = run_layer(recipe)
    real = slice(recipe.left_padding, None)
    # Slots and logical positions are the same numbers (see qsa_layer.py), pad slots included.
    positions = recipe.left_padding - 1 + torch.tensor(recipe.visible, dtype=torch.int64)
    tensors = {
        "index_keys": seen["index_keys"][real],
        "index_norm_weight": constants["index_norm_weight"],
        "inv_freq": constants["inv_freq"],
        "index_queries": seen["index_queries"][positions],
        "queries": seen["queries"][positions],
        "keys": seen["keys"][real],
        "values": seen["values"][real],
        "query_positions": positions,
        "expected_rows": rows_from_mask(seen["selected"][positions]),
        "expected_output": seen["output"][positions].float(),
    }
    geometry = {
        "group_tokens": GROUP_TOKENS,
        "budget_tokens": BUDGET_TOKENS,
        "query_heads": recipe.query_heads,
        "kv_heads": recipe.kv_heads,
        "head_dim": recipe.head_dim,
        "index_heads": recipe.index_heads,
        "index_dim": recipe.index_dim,
        "index_rotary_dim": INDEX_ROTARY_DIM,
        "rope_theta": ROPE_THETA,
        "norm_eps": constants["norm_eps"],
        "softmax_scale": constants["softmax_scale"],
    }
    metadata = {
        "seriatim": "capture/1",
        "geometry": json.dumps(geometry),
        "anchor": str(recipe.left_padding),
        "source": describe(recipe),
    }
    save(path, {name: to_file(tensor) for name, tensor in tensors.items()}, metadata)
    # Another reader than our own has to accept the file and see the same tensors.
    with safetensors.safe_open(path, framework="pt") as file:
        assert set(file.keys()) == set(tensors) and file.metadata() == metadata
        assert all(torch.equal(file.get_tensor(name), tensor) for name, tensor in tensors.items())


def describe_change(committed, remade):
    """Names the tensors, or the metadata, in which two files differ."""
    (old, old_metadata), (new, new_metadata) = load(committed), load(remade)
    changes = ["metadata"] if old_metadata != new_metadata else []
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            changes.append(f"{name} (only in one)")
        elif old[name].dtype != new[name].dtype or old[name].data.shape != new[name].data.shape:
            changes.append(f"{name} (dtype or shape)")
        elif old[name].data.tobytes() != new[name].data.tobytes():
            count = int(np.sum(old[name].data != new[name].data))
            changes.append(f"{name} ({count} of {old[name].data.size} elements)")
    return ", ".join(changes) or "only the layout of the bytes"


def check():
    changed = 0
    strays = {path.name for path in FIXTURES.glob("*.safetensors")} - {f"{r.name}.safetensors" for r in RECIPES}
    for name in sorted(strays):
        print(f"{name}: no recipe makes it")
    with tempfile.TemporaryDirectory() as folder:
        for recipe in RECIPES:
            committed, remade = FIXTURES / f"{recipe.name}.safetensors", Path(folder) / recipe.name
            make_capture(recipe, remade)
            if not committed.exists():
                print(f"{committed.name}: missing")
            elif committed.read_bytes() == remade.read_bytes():
                print(f"{committed.name}: {committed.stat().st_size} bytes, unchanged")
                continue
            else:
                print(f"{committed.name}: CHANGED in {describe_change(committed, remade)}")
            changed += 1
    return 1 if changed or strays else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with tests/fixtures; write nothing there")
    parser.add_argument("--out", type=Path, default=FIXTURES, help="folder to write to")
    options = parser.parse_args()
    require_pinned_versions()
    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)
    if options.check:
        sys.exit(check())
    options.out.mkdir(parents=True, exist_ok=True)
    for recipe in RECIPES:
        path = options.out / f"{recipe.name}.safetensors"
        make_capture(recipe, path)
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
