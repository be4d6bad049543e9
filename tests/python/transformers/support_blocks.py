"""Small random minimax_m3_vl models, and Transformers' own choice of blocks beside each of their calls."""

import contextlib
import inspect

import torch
from torch.overrides import TorchFunctionMode
from transformers.models.minimax_m3_vl import modeling_minimax_m3_vl as source
from transformers.models.minimax_m3_vl.configuration_minimax_m3_vl import MiniMaxM3VLTextConfig

import verdict
from support_shared import indexers_answer

FULL, SPARSE = "full_attention", "minimax_m3_sparse"
BLOCK, BLOCKS = 8, 3


def make_model(dtype=torch.float32, seed=0, layers=(FULL, SPARSE, SPARSE), **changes):
    torch.manual_seed(seed)
    options = dict(
        vocab_size=97, hidden_size=64, intermediate_size=32, num_hidden_layers=len(layers), num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, num_experts_per_tok=2, num_local_experts=4, dense_intermediate_size=64,
        shared_intermediate_size=32, initializer_range=0.15, index_n_heads=2, index_head_dim=24,
        index_block_size=BLOCK, index_topk_blocks=BLOCKS, index_local_blocks=1, layer_types=list(layers),
        mlp_layer_types=["dense"] * len(layers), bos_token_id=1, eos_token_id=None, pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5})
    config = MiniMaxM3VLTextConfig(**{**options, **changes})
    config._attn_implementation = "eager"
    model = source.MiniMaxM3VLForCausalLM(config).eval()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, source.MiniMaxM3VLRMSNorm):
                module.weight.normal_(0.0, 0.3)
    return model.to(dtype).requires_grad_(False)


def draw_ids(batch_size, tokens, seed=1):
    return torch.randint(1, 97, (batch_size, tokens), generator=torch.Generator().manual_seed(seed))


def sparse_of(model):
    return [layer.self_attn for layer in model.model.layers if layer.self_attn.indexer is not None]


class _Scores(TorchFunctionMode):
    """Keeps what `topk` is asked to choose from."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.topk:
            self.seen = args[0].clone()
        return function(*args, **(kwargs or {}))


class Watcher:
    """Of every sparse layer, over all calls in order of slots: our rows, and Transformers' blocks and their scores for
    the same inputs."""

    def __init__(self, model):
        self.model, self.rows, self.theirs, self.outputs, self.seen = model, {}, {}, {}, {}
        self._keys = {}

    def __call__(self, seen):
        at = seen.attention.layer_idx
        self.rows.setdefault(at, []).append(seen.rows.clone())
        self.outputs.setdefault(at, []).append(seen.output.clone())
        self.seen[at] = seen

    def rows_of(self, layer):
        return torch.cat(self.rows[layer], dim=1)

    @contextlib.contextmanager
    def beside(self):
        handles = [a.indexer.register_forward_pre_hook(self._select_beside, with_kwargs=True)
                   for a in sparse_of(self.model)]
        try:
            yield self
        finally:
            for handle in handles:
                handle.remove()

    def _select_beside(self, indexer, args, kwargs):
        own = type(indexer).forward
        given = inspect.signature(own).bind(indexer, *args, **kwargs)
        given.arguments["cache"] = self
        with _Scores() as scores:
            blocks = own(*given.args, **given.kwargs)
        self.theirs.setdefault(indexer.layer_idx, []).append((blocks, scores.seen))

    @property
    def layers(self):  # as an indexer asks a cache
        return {a.layer_idx: _Held(self._keys, a.layer_idx) for a in sparse_of(self.model)}

    def judge(self):
        """Counts of exact, tie, near and wrong over all rows, and how many drop tokens. For unpadded calls."""
        counts, dropped = {"exact": 0, "tie": 0, "near": 0, "wrong": 0}, 0
        for attention in sparse_of(self.model):
            size, slots = attention.indexer.block_size, 0
            for (blocks, scores), rows in zip(self.theirs[attention.layer_idx], self.rows[attention.layer_idx],
                                              strict=True):
                rows = rows if rows.ndim == 4 else rows[:, :, None]
                slots += rows.shape[1]
                for b, q, s in torch.cartesian_prod(*map(torch.arange, rows.shape[:3])).tolist():
                    visible = slots - rows.shape[1] + q + 1
                    ours = rows[b, q, s][rows[b, q, s] >= 0]
                    theirs = blocks[b, s, q].sort().values
                    theirs = theirs[theirs >= 0]
                    got = torch.unique(ours // size)
                    whole = (got[:, None] * size + torch.arange(size)).flatten()
                    assert torch.equal(ours.long(), whole[whole < visible])
                    dropped += len(ours) < visible
                    seen = scores[b, s, q, : -(-visible // size)]
                    cut = seen[got].min().item()
                    found = verdict.judge(theirs.numpy(), got.numpy(), seen.numpy(), cut, 0, 1,
                                          verdict.NEAR_MARGIN["F32"])
                    counts[found.kind] += 1
        return counts, dropped


class _Held:
    def __init__(self, keys, layer_idx):
        self.keys, self.layer_idx = keys, layer_idx

    def update_index(self, new):
        held = self.keys.get(self.layer_idx)
        self.keys[self.layer_idx] = new if held is None else torch.cat([held, new], dim=2)
        return self.keys[self.layer_idx]


@contextlib.contextmanager
def forced_rows(model, watcher):
    """An eager model whose indexers answer the blocks of the rows that `watcher` saw."""

    def answer(indexer, *args, **kwargs):
        rows = watcher.rows_of(indexer.layer_idx)
        rows = rows if rows.ndim == 4 else rows[:, :, None]
        blocks = torch.where(rows < 0, -1, rows // indexer.block_size)
        return blocks.transpose(1, 2).long()

    with indexers_answer(sparse_of(model), answer):
        yield model
