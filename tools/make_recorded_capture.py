"""Makes tests/fixtures/recorded from a small random DeepSeek-V3.2, through `seriatim.record`, or shows that it has not
changed.

    python3 tools/make_recorded_capture.py                write tests/fixtures/recorded anew
    python3 tools/make_recorded_capture.py --out DIR      write elsewhere
    python3 tools/make_recorded_capture.py --check        make it in a temporary folder and compare, byte by byte

Needs the package installed, and tools/requirements-capture.txt.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

# As in make_capture.py: which bits a matrix product has depends on both.
os.environ.update(
    ATEN_CPU_CAPABILITY="avx2", MKL_CBWR="COMPATIBLE", MKL_NUM_THREADS="1", OMP_NUM_THREADS="1", DNNL_MAX_CPU_ISA="AVX2"
)

import torch
import transformers
from transformers.models.deepseek_v32 import DeepseekV32Config, DeepseekV32Model

import seriatim

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "recorded"
NAMES = {"layer_00.safetensors": "dsa_f32_dump.safetensors", "layer_00_capture.safetensors": "dsa_f32.safetensors"}
PINNED = {"torch": "2.13.0", "transformers": "5.24.0"}
SEED, PAD_SLOTS, TOKENS = 20305, 5, 120


def make_model():
    torch.manual_seed(SEED)
    config = DeepseekV32Config(
        vocab_size=512, hidden_size=64, intermediate_size=64, num_hidden_layers=1, mlp_layer_types=["dense"],
        num_attention_heads=4,
        num_key_value_heads=4, kv_lora_rank=16, q_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=12,
        index_topk=48,
        index_head_dim=12, index_n_heads=8, initializer_range=0.2, pad_token_id=0,
    )
    config._attn_implementation = "eager"
    return DeepseekV32Model(config).eval().requires_grad_(False)


@torch.no_grad()
def make(folder):
    """Prefill in two pieces and single steps, behind pad slots."""
    model = make_model()
    slots = PAD_SLOTS + TOKENS
    ids = torch.randint(1, 512, (1, slots), generator=torch.Generator().manual_seed(SEED))
    mask = (torch.arange(slots) >= PAD_SLOTS).long()[None]
    cache = transformers.DynamicCache(config=model.config)
    with tempfile.TemporaryDirectory() as scratch:
        with seriatim.record(model, scratch, what="both") as recording:
            first = 0
            for count in [70, slots - 70 - 8] + [1] * 8:
                model(ids[:, first : first + count], attention_mask=mask[:, : first + count], cache=cache,
                      use_cache=True)
                first += count
        for path in recording.files:
            shutil.copy(path, folder / NAMES[path.name])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true",
                        help="compare with tests/fixtures/recorded; write nothing there")
    parser.add_argument("--out", type=Path, default=FIXTURES, help="folder to write to")
    options = parser.parse_args()
    found = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    if found != PINNED:
        sys.exit(f"the fixtures are made with {PINNED}, this environment has {found}")
    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)
    if not options.check:
        options.out.mkdir(parents=True, exist_ok=True)
        make(options.out)
        return
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        changed = [name for name in NAMES.values()
                   if (Path(folder) / name).read_bytes() != (FIXTURES / name).read_bytes()]
    print("\n".join(f"{name}: CHANGED" for name in changed) or f"{len(NAMES)} files, unchanged")
    sys.exit(1 if changed else 0)


if __name__ == "__main__":
    main()
