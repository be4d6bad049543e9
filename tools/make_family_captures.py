"""Makes tests/fixtures/families from Transformers' own minimax_m3_vl and deepseek_v4 on tiny random models, or shows
that they have not changed.

    python3 tools/make_family_captures.py                write tests/fixtures/families anew
    python3 tools/make_family_captures.py --out DIR      write elsewhere
    python3 tools/make_family_captures.py --check        make them in a temporary folder and compare, tensor by tensor

Needs the package installed, and tools/requirements-capture.txt. Rows are those of tests/oracle/families.py; where the
model chose otherwise (among equal scores) its own are kept beside, as reference_rows. canonical_output and
canonical_lse come of the library's parts: one call a selection, entries in front of tokens in one store.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

# As in make_capture.py: which bits a matrix product has depends on both.
os.environ.update(
    ATEN_CPU_CAPABILITY="avx2", MKL_CBWR="COMPATIBLE", MKL_NUM_THREADS="1", OMP_NUM_THREADS="1", DNNL_MAX_CPU_ISA="AVX2"
)

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers.cache_utils import DynamicCache
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as v4_source
from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config
from transformers.models.minimax_m3_vl import modeling_minimax_m3_vl as m3_source
from transformers.models.minimax_m3_vl.configuration_minimax_m3_vl import MiniMaxM3VLTextConfig

import seriatim

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests" / "fixtures" / "families"
sys.path.insert(0, str(ROOT / "tests" / "oracle"))

import families
from scores import group_scores

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
M3_SMALL = dict(query_heads=4, kv_heads=2, head_dim=16, block=8, blocks=6)
V4_TINY = dict(heads=4, dim=32, top=16, window=24, short=4, long=20)
V4_LAYERS = ("sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
             "compressed_sparse_attention")
# name: (family, dtype, seed, tokens, sizes of the calls, visible counts of the recorded queries, layer, geometry)
RECIPES = {
    "m3_f32": ("m3", "f32", 4101, 400, [150, 1, 1, 48, 200],
               [1, 2, 7, 8, 9, 47, 48, 49, 50, 56, 57, 149, 150, 151, 152, 153, 200, 201, 256, 257, 399, 400], 2,
               M3_SMALL),
    "m3_bf16": ("m3", "bf16", 4102, 400, [400], [1, 8, 9, 48, 49, 55, 56, 57, 160, 161, 255, 300, 399, 400], 2,
                M3_SMALL),
    "m3_own_numbers_bf16": ("m3", "bf16", 4103, 2305, [512] * 4 + [256, 1],
                            [1, 127, 128, 129, 2047, 2048, 2049, 2050, 2176, 2177, 2304, 2305], 2,
                            {**M3_SMALL, "block": 128, "blocks": 16}),
    "v4_f32": ("v4", "f32", 4201, 420, [150, 1, 1, 48, 1, 1, 1, 1, 216],
               [1, 2, 3, 4, 5, 7, 8, 23, 24, 25, 67, 68, 69, 71, 72, 150, 151, 152, 153, 200, 201, 202, 203, 204, 205,
                419, 420], 1, V4_TINY),
    "v4_bf16": ("v4", "bf16", 4202, 420, [420],
                [1, 3, 4, 24, 25, 66, 67, 68, 69, 72, 200, 203, 204, 417, 418, 419, 420], 1, V4_TINY),
    "v4_unscored_f32": ("v4", "f32", 4203, 420, [400] + [1] * 20, [1, 19, 20, 21, 39, 40, 41, 399, 400, 401, 419, 420],
                        2, V4_TINY),
    "v4_own_numbers_bf16": ("v4", "bf16", 4204, 2305, [512] * 4 + [256, 1],
                            [1, 3, 4, 127, 128, 129, 132, 2047, 2048, 2050, 2051, 2052, 2053, 2056, 2304, 2305], 0,
                            dict(heads=2, dim=32, top=512, window=128, short=4, long=128, layers=V4_LAYERS[1:3],
                                 pools=False)),
}


def as_loaded(model, dtype):
    """As from_pretrained would load it: what a family keeps in f32 stays so."""
    if dtype == "f32":
        return model.eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return type(model).from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager").eval()


def m3_model(dtype, seed, query_heads, kv_heads, head_dim, block, blocks):
    config = MiniMaxM3VLTextConfig(
        vocab_size=211, hidden_size=64, num_hidden_layers=3, num_attention_heads=query_heads,
        num_key_value_heads=kv_heads, head_dim=head_dim, dense_intermediate_size=96, mlp_layer_types=["dense"] * 3,
        layer_types=["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"], index_n_heads=kv_heads,
        index_head_dim=head_dim, index_block_size=block, index_topk_blocks=blocks, index_local_blocks=1,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
        rope_parameters=dict(rope_type="default", rope_theta=5e6, partial_rotary_factor=0.5))
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = m3_source.MiniMaxM3VLTextModel(config)
    for module in model.modules():
        if isinstance(module, m3_source.MiniMaxM3VLRMSNorm):
            module.weight.copy_(0.3 * torch.randn_like(module.weight))
        elif isinstance(module, torch.nn.Linear):
            module.weight.copy_(torch.randn_like(module.weight) / module.weight.shape[1] ** 0.5)
        elif isinstance(module, torch.nn.Embedding):
            module.weight.copy_(torch.randn_like(module.weight))
    return as_loaded(model, dtype)


def v4_model(dtype, seed, heads, dim, top, window, short, long, layers=V4_LAYERS, pools=True):
    ropes = {name: dict(rope_type="default", rope_theta=theta, partial_rotary_factor=0.25)
             for name, theta in (("main", 1e4), ("compress", 1.6e5))}
    config = DeepseekV4Config(
        vocab_size=211, hidden_size=64, moe_intermediate_size=32, num_hidden_layers=len(layers),
        num_attention_heads=heads, head_dim=dim, q_lora_rank=48, num_experts_per_tok=2, n_routed_experts=4,
        layer_types=list(layers), mlp_layer_types=["moe"] * len(layers), sliding_window=window,
        compress_rates={V4_LAYERS[1]: short, V4_LAYERS[2]: long}, hc_mult=2, hc_sinkhorn_iters=3, o_groups=2,
        o_lora_rank=16, index_n_heads=4, index_head_dim=dim, index_topk=top, partial_rotary_factor=0.25,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, max_position_embeddings=4096, rope_parameters=ropes)
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = v4_source.DeepseekV4Model(config)
    for name, parameter in model.named_parameters():
        if name.endswith(("position_bias", "sinks")):
            parameter.copy_(torch.randn_like(parameter))
        elif name.endswith("norm.weight") or "layernorm" in name:
            parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
        elif name.endswith("_proj.weight"):
            parameter.copy_(torch.randn_like(parameter) / parameter.shape[-1] ** 0.5)
        elif "embed" in name:
            parameter.copy_(torch.randn_like(parameter))
    return as_loaded(model, dtype)


class Tape:
    """One run of a model in calls of `sizes`: what named parts of a layer's attention put out, and what attention was
    given, call by call."""

    def __init__(self, model, source, layer, parts, tokens, seed, sizes):
        self.outputs, self.calls, self.sizes = {}, [], sizes
        attention = model.layers[layer].self_attn
        hooks = []
        for part in parts:
            try:
                module = attention.get_submodule(part)
            except AttributeError:
                continue
            if module is not None:
                hooks.append(module.register_forward_hook(
                    lambda _, __, output, part=part: self.outputs.setdefault(part, []).append(output)))
        eager = source.eager_attention_forward

        def watched(module, query, key, value, mask, scaling, **more):
            output, weights = eager(module, query, key, value, mask, scaling, **more)
            if module.layer_idx == layer:
                self.calls.append((query, key, value, mask, output))
            return output, weights

        ids = torch.randint(3, 211, (1, tokens), generator=torch.Generator().manual_seed(seed))
        self.cache, at = DynamicCache(config=model.config), 0
        source.eager_attention_forward = watched
        try:
            for size in sizes:
                model(input_ids=ids[:, at : at + size], cache=self.cache, use_cache=True)
                at += size
        finally:
            source.eager_attention_forward = eager
            for hook in hooks:
                hook.remove()
        assert at == tokens

    def of(self, part):
        return torch.cat(self.outputs[part], dim=1)[0]

    def call_of(self, position):
        """The call that had this query, its place there, and the tokens that were held then."""
        begin = 0
        for call, size in zip(self.calls, self.sizes):
            if position < begin + size:
                return call, position - begin, begin + size
            begin += size
        raise IndexError(position)


def numbers(tensor):
    return tensor.detach().float().numpy()


def padded(rows, width):
    out = torch.full((len(rows), width), -1, dtype=torch.int32)
    for row, into in zip(rows, out):
        into[: len(row)] = torch.tensor(row, dtype=torch.int32)
    return out


def m3_capture(dtype, seed, tokens, sizes, visible, layer, numbers_of):
    model = m3_model(dtype, seed, **numbers_of)
    config, attention = model.config, model.layers[layer].self_attn
    tape = Tape(model, m3_source, layer, ["indexer.q_proj"], tokens, seed, sizes)
    sets, block, keep = config.index_n_heads, config.index_block_size, config.index_topk_blocks
    index_keys = tape.cache.layers[layer].idx_keys[0, 0]
    raw = attention.indexer.q_norm(tape.of("indexer.q_proj").view(1, tokens, sets, -1)).transpose(1, 2)
    cos_sin = model.rotary_emb(index_keys, torch.arange(tokens)[None])
    index_queries = m3_source.apply_rotary_pos_emb(raw, torch.zeros_like(raw[:, :1]), *cos_sin)[0][0].transpose(0, 1)
    ours, theirs, queries, outputs = [], [], [], []
    for n in visible:
        (query, _, _, mask, output), at, _ = tape.call_of(n - 1)
        queries.append(query[0, :, at])
        outputs.append(output[0, at].float())
        for s in range(sets):
            theirs.append(np.flatnonzero(numbers(mask[0, s * config.num_attention_heads // sets, at]) == 0))
            scores = group_scores(numbers(index_queries[n - 1, s])[None, None], numbers(index_keys)[:n], None, False,
                                  "nowhere")[0]
            best = families.unit_max(scores, block)
            chosen = families.select_set(best, keep, families.forced_groups(len(best), 0, config.index_local_blocks))
            ours.append(families.expand(chosen, block, n))
    positions = [n - 1 for n in visible]
    _, keys, values, _, _ = tape.calls[-1]
    shape = len(visible), sets, block * keep
    tensors = dict(
        queries=torch.stack(queries), keys=keys[0].transpose(0, 1), values=values[0].transpose(0, 1),
        index_queries=index_queries[positions], index_keys=index_keys, query_positions=torch.tensor(positions),
        expected_output=torch.stack(outputs), expected_rows=padded(ours, shape[-1]).view(shape),
        reference_rows=padded(theirs, shape[-1]).view(shape))
    geometry = dict(
        group_tokens=block, budget_tokens=block * keep, tail="group", forced_newest=config.index_local_blocks,
        selections=sets, query_heads=config.num_attention_heads, kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim, index_heads=sets, index_dim=config.index_head_dim, index_rotary_dim=0,
        rope_theta=5e6, norm_eps=1e-6, pooling="unit_max", relu=False, scale_at="nowhere")
    share, positions = config.num_attention_heads // sets, tensors["query_positions"]
    counts = (tensors["expected_rows"] >= 0).sum(-1, dtype=torch.int32)
    answers = [seriatim.attend(tensors["queries"][:, s * share : (s + 1) * share].contiguous(),
                               tensors["keys"][:, s : s + 1].contiguous(),
                               tensors["values"][:, s : s + 1].contiguous(),
                               (tensors["expected_rows"][:, s].contiguous(), counts[:, s].contiguous()), positions,
                               dtype="f32", return_lse=True) for s in range(sets)]
    return "minimax_m3_vl", tensors, geometry, [torch.cat(parts, dim=1) for parts in zip(*answers)]


def v4_capture(dtype, seed, tokens, sizes, visible, layer, numbers_of):
    model = v4_model(dtype, seed, **numbers_of)
    config, attention = model.config, model.layers[layer].self_attn
    scored = config.layer_types[layer] == V4_LAYERS[1]
    stride, window = config.compress_rates[config.layer_types[layer]], config.sliding_window
    stores = {"": "compressor", "index_": "compressor.indexer"} if scored else {"": "compressor"}
    parts = [f"{store}.{part}" for store in stores.values() for part in ("kv_proj", "gate_proj")]
    parts += ["compressor.indexer.q_b_proj", "compressor.indexer.scorer.weights_proj"]
    tape = Tape(model, v4_source, layer, parts, tokens, seed, sizes)
    held = tape.cache.layers[layer]
    entries, more = held.compressed_kv["compressor"][0], {}
    keep = config.index_topk if scored else len(entries)
    if scored:
        raw = tape.of("compressor.indexer.q_b_proj").view(1, tokens, config.index_n_heads, -1)
        turn = model.rotary_emb(raw, torch.arange(tokens)[None], layer_type="compress")
        index_queries = v4_source.apply_rotary_pos_emb(raw.transpose(1, 2), *turn)[0].transpose(0, 1)
        weights = tape.of("compressor.indexer.scorer.weights_proj").float() * config.index_n_heads**-0.5
        positions = [n - 1 for n in visible]
        more = dict(index_queries=index_queries[positions], index_entries=held.compressed_kv["indexer"][0],
                    index_head_weights=weights[positions])
    new_keys, held_tokens = [], 0
    for (_, key, _, _, _), size in zip(tape.calls, sizes):
        held_tokens += size
        slots = key.shape[2] - held_tokens // stride
        new_keys.append(key[0, 0, slots - size : slots])
    ours, counts, theirs, queries, outputs = [], [], [], [], []
    for i, n in enumerate(visible):
        (query, key, _, mask, output), at, held_tokens = tape.call_of(n - 1)
        queries.append(query[0, :, at])
        outputs.append(output[0, at].float())
        slots = key.shape[2] - held_tokens // stride
        seen = np.flatnonzero(numbers(mask[0, 0, at]) > -1e30)
        scores = None
        if scored:
            scores = group_scores(numbers(more["index_queries"][i : i + 1]), numbers(more["index_entries"]),
                                  numbers(more["index_head_weights"][i : i + 1]), True, "after_relu")[0]
        chosen, recent = families.two_store_row(scores, n, stride, keep, window)
        assert (seen[seen < slots] + held_tokens - slots).tolist() == recent
        ours.append(chosen + recent)
        counts.append([len(chosen), len(recent)])
        theirs.append((seen[seen >= slots] - slots).tolist() + recent)
    if numbers_of.get("pools", True):
        for prefix, store in stores.items():
            module = attention.get_submodule(store)
            more.update({prefix + "pool_kv": tape.of(f"{store}.kv_proj"),
                         prefix + "pool_gate": tape.of(f"{store}.gate_proj"),
                         prefix + "pool_bias": module.position_bias.float(),
                         prefix + "pool_norm": module.kv_norm.weight.float()})
        more["inv_freq"] = model.rotary_emb.compress_inv_freq.float()
    tensors = dict(
        queries=torch.stack(queries), keys=torch.cat(new_keys)[:, None], entries=entries[:, None],
        sinks=attention.sinks.float(), query_positions=torch.tensor([n - 1 for n in visible]),
        expected_output=torch.stack(outputs), expected_rows=padded(ours, keep + window),
        expected_counts=torch.tensor(counts, dtype=torch.int32), reference_rows=padded(theirs, keep + window), **more)
    geometry = dict(scored=scored, entry_stride=stride, entry_close=stride, entry_overlap=scored, budget_entries=keep,
                    window_tokens=window, query_heads=config.num_attention_heads, kv_heads=1, head_dim=config.head_dim,
                    values_alias_keys=True)
    if scored:
        geometry.update(index_heads=config.index_n_heads, index_dim=config.index_head_dim, pooling="none", relu=True,
                        scale_at="after_relu")
    store = torch.cat([tensors["entries"], tensors["keys"]]).contiguous()
    as_one = [[*row[:chosen], *(t + len(entries) for t in row[chosen:])] for row, (chosen, _) in zip(ours, counts)]
    rows = padded(as_one, keep + window)
    answer = seriatim.attend(tensors["queries"].contiguous(), store, store,
                             (rows, tensors["expected_counts"].sum(1, dtype=torch.int32)),
                             tensors["query_positions"] + len(entries), sinks=tensors["sinks"], dtype="f32",
                             return_lse=True)
    return "deepseek_v4", tensors, geometry, answer


@torch.no_grad()
def make(folder):
    for name, (family, dtype, seed, tokens, sizes, visible, layer, numbers_of) in RECIPES.items():
        maker = m3_capture if family == "m3" else v4_capture
        family, tensors, geometry, (output, lse) = maker(dtype, seed, tokens, sizes, visible, layer, numbers_of)
        if torch.equal(tensors["reference_rows"], tensors["expected_rows"]):
            del tensors["reference_rows"]
        tensors.update(canonical_output=output, canonical_lse=lse)
        source = f"transformers {transformers.__version__} torch {torch.__version__} {family} seed {seed}"
        save_file({key: value.contiguous() for key, value in tensors.items()}, folder / f"{name}.safetensors",
                  metadata={"seriatim": "capture/1", "geometry": json.dumps(geometry), "source": source})


def tensors_of(path):
    with safe_open(path, "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, file.metadata()


def changes(made, kept):
    """What differs, bit by bit."""
    (ours, about), (theirs, was) = tensors_of(made), tensors_of(kept)
    names = sorted(set(ours) ^ set(theirs))
    names += [key for key in ours if key in theirs and not (
        ours[key].dtype == theirs[key].dtype and ours[key].shape == theirs[key].shape
        and torch.equal(ours[key].contiguous().view(torch.uint8), theirs[key].contiguous().view(torch.uint8)))]
    return names + (["geometry"] if json.loads(about["geometry"]) != json.loads(was["geometry"]) else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true",
                        help="compare with tests/fixtures/families; write nothing there")
    parser.add_argument("--out", type=Path, default=FIXTURES, help="folder to write to")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)
    if not options.check:
        options.out.mkdir(parents=True, exist_ok=True)
        return make(options.out)
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        changed = {name: changes(Path(folder) / f"{name}.safetensors", FIXTURES / f"{name}.safetensors")
                   for name in RECIPES}
    for name, what in changed.items():
        print(f"{name}: {'CHANGED: ' + ', '.join(what) if what else 'unchanged'}")
    sys.exit(1 if any(changed.values()) else 0)


if __name__ == "__main__":
    main()
