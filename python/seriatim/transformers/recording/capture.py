"""A capture per layer and sequence: what the layer was given and what it answered, as `seriatim run` replays it."""

import abc
import json
import sys
from typing import Any

import torch
from torch import nn

from ..refusal import Unsupported
from .dump import describe, name_of
from .files import GrowingTensor, save


class _Sequence:
    """What is written of one sequence: tensors of its tokens, tensors of its recorded queries."""

    def __init__(self, scratch, anchor, position):
        self.scratch, self.anchor, self.position = scratch, anchor, position  # slot and position of the first token
        self.tensors = {}
        self.tokens = 0

    def append(self, name, rows):
        if name not in self.tensors:
            self.tensors[name] = GrowingTensor(f"{self.scratch}.{name}", rows.dtype, tuple(rows.shape[1:]))
        self.tensors[name].append(rows)


class Captures(abc.ABC):
    """The captures of one layer. `seen` is an AttentionWatch after the attention layer, `index` says what scored."""

    def __init__(self, layer, folder, scratch):
        self.layer, self.folder, self.scratch = layer, folder, scratch
        self._sequences = {}
        self._known = None  # of the tokens so far, to notice a cache that was cropped or reordered
        self._check_model()

    @abc.abstractmethod
    def _check_model(self):
        """Raises Unsupported for a layer that the format cannot express."""

    @abc.abstractmethod
    def _of_tokens(self, seen):
        """What is kept of the tokens so far, [B, heads, T, dim]."""

    @abc.abstractmethod
    def _token_tensors(self, b, new, slots, seen, index):
        """By name, the rows of sequence b's tokens in the slots `new`."""

    @abc.abstractmethod
    def _query_tensors(self, b, queries, seen, index):
        """By name, the rows of sequence b's `queries`, counted in the call."""

    @abc.abstractmethod
    def _constants(self):
        """By name, f32 vectors of the layer."""

    @abc.abstractmethod
    def _geometry(self):
        """As docs/capture.md has it."""

    def append(self, seen, index, chosen):
        """`chosen`: per sequence its selections (one, none or one per head) and which of their queries are kept."""
        # A single query may come with its heads packed as if they were queries of one kv head.
        heads = self._geometry()["query_heads"]
        seen.queries, seen.output = (x.reshape(x.shape[0], heads, -1, x.shape[-1]) for x in (seen.queries, seen.output))
        self._check_growth(self._of_tokens(seen))
        for b, entries in enumerate(chosen):
            if entries:
                self._append_sequence(b, seen, index, *self._joined(entries, seen))

    def _joined(self, entries, seen):
        """The sequence's selection, of token positions, and which of its queries are recorded."""
        return entries[0]

    def _check_growth(self, now):
        known, self._known = self._known, now
        if known is None:
            return
        tokens = known.shape[2]
        if now.shape[:2] != known.shape[:2] or now.shape[2] <= tokens or not torch.equal(now[:, :, :tokens], known):
            raise Unsupported(
                "record: a capture holds sequences that grow, and these were cropped, reordered or begun anew; "
                "record each text on its own")

    def _append_sequence(self, b, seen, index, selection, kept):
        slots, calls = seen.keys.shape[2], seen.queries.shape[2]
        if b not in self._sequences:
            self._sequences[b] = _Sequence(self.scratch / name_of(self.layer, b, "capture"), selection.anchor,
                                           self._position(b, selection.anchor, slots))
        to = self._sequences[b]
        if to.anchor != selection.anchor:
            raise Unsupported(
                f"record: sequence {b} began at slot {to.anchor} and now at {selection.anchor}; "
                "record each text on its own")
        if to.tokens == 0 and slots - calls > to.anchor:
            raise Unsupported(
                "record: a capture has to see its text from the first token on; begin to record before the prefill")
        new = slice(to.anchor + to.tokens, slots)
        for name, rows in self._token_tensors(b, new, slots, seen, index).items():
            to.append(name, rows)
        to.tokens = slots - to.anchor
        shift = to.position - to.anchor
        queries = selection.queries[kept]
        rows = selection.rows[kept.to(selection.rows.device)].cpu()
        rows = torch.where(rows < 0, torch.iinfo(torch.int32).max, rows + shift).sort(dim=-1).values
        to.append("expected_rows", torch.where(rows == torch.iinfo(torch.int32).max, -1, rows).to(torch.int32))
        to.append("query_positions", (selection.anchor + selection.visible[kept] - 1 + shift).to(torch.int64))
        for name, rows in self._query_tensors(b, queries, seen, index).items():
            to.append(name, rows)

    def _position(self, b, anchor, slots):
        return anchor

    def save(self):
        paths = []
        for b, sequence in self._sequences.items():
            name = name_of(self.layer, b if max(self._sequences) else None, "capture")
            path = self.folder / f"{name}.safetensors"
            constants = {}
            for key, value in self._constants().items():
                constants[key] = GrowingTensor(f"{sequence.scratch}.{key}", torch.float32, ())
                constants[key].append(value.detach().float().cpu())
            source = f"{describe(self.layer)}, sequence {b}, recorded by seriatim.record"
            save(path, sequence.tensors | constants, {
                "seriatim": "capture/1", "geometry": json.dumps(self._geometry()), "anchor": str(sequence.position),
                "source": source})
            paths.append(path)
        return paths


class BlockCaptures(Captures):
    """A choice of blocks per kv head, each block scored by its best token; index keys arrive finished."""

    def _check_model(self):
        pass  # padding, the only thing that is not expressed, is refused for dumps too

    def _joined(self, entries, seen):
        """Of the heads' block numbers the tokens that each query sees, one row beside the other."""
        selection, kept = entries[0]
        size, slots, calls = self.layer.indexer.block_size, seen.keys.shape[2], seen.queries.shape[2]
        visible = slots - calls + selection.queries + 1
        blocks = torch.stack([one.rows for one, _ in entries], dim=1).long()[..., None]
        tokens = blocks * size + torch.arange(size, device=blocks.device)
        seen_by = (blocks >= 0) & (tokens < visible[:, None, None, None])
        rows = torch.where(seen_by, tokens, -1).flatten(-2).to(torch.int32)
        return selection._replace(visible=visible, rows=rows), kept

    def _of_kv_heads(self, states):
        """Without the copies for each query head."""
        return states[:, :: states.shape[1] // self.layer.attention.config.num_key_value_heads]

    def _of_tokens(self, seen):
        return self._of_kv_heads(seen.keys)

    def _token_tensors(self, b, new, slots, seen, index):
        return {"index_keys": index.keys[b, 0].transpose(0, 1)[new],
                "keys": self._of_kv_heads(seen.keys)[b, :, new].transpose(0, 1),
                "values": self._of_kv_heads(seen.values)[b, :, new].transpose(0, 1)}

    def _query_tensors(self, b, queries, seen, index):
        return {"index_queries": index.queries[b, :, queries].transpose(0, 1),
                "queries": seen.queries[b, :, queries].transpose(0, 1),
                "expected_output": seen.output[b, :, queries].transpose(0, 1).float()}

    def _constants(self):
        return {}

    def _geometry(self):
        attention, indexer = self.layer.attention, self.layer.indexer
        return {
            "group_tokens": indexer.block_size, "budget_tokens": indexer.block_size * indexer.topk_blocks,
            "tail": "group", "forced_newest": indexer.local_blocks, "selections": indexer.num_heads,
            "query_heads": attention.config.num_attention_heads,
            "kv_heads": attention.config.num_key_value_heads, "head_dim": attention.head_dim,
            "softmax_scale": attention.scaling, "index_heads": indexer.num_heads, "index_dim": indexer.head_dim,
            "index_rotary_dim": 0, "rope_theta": 10000.0, "norm_eps": 1e-6, "pooling": "unit_max", "relu": False,
            "scale_at": "nowhere"}


class LatentCaptures(Captures):
    """Attention over latents. Query heads share one key head: the latent, of which keys and values are projections,
    beside the part that rotates. The key projection moves to the queries; outputs are those of the latents, before the
    value projection."""

    def _check_model(self):
        projection = self.layer.attention.kv_b_proj
        if type(projection) is not nn.Linear or projection.bias is not None:
            raise Unsupported(
                f"record: kv_b_proj is a {type(projection).__name__}; "
                "only a Linear without bias can move to the queries")

    def _of_tokens(self, seen):
        return seen.latents

    def _token_tensors(self, b, new, slots, seen, index):
        rope = self.layer.attention.qk_rope_head_dim
        latents = seen.latents[b].reshape(slots, -1)[new]
        rotated = seen.keys[b, 0, new, seen.keys.shape[-1] - rope :]
        return {"index_keys": index.keys.transpose(-1, -2).reshape(len(seen.keys), slots, -1)[b, new],
                "keys": torch.cat([latents, rotated], dim=-1)[:, None]}

    def _query_tensors(self, b, queries, seen, index):
        attention = self.layer.attention
        nope, rank = attention.qk_nope_head_dim, attention.kv_lora_rank
        up = attention.kv_b_proj.weight.view(-1, nope + attention.v_head_dim, rank)[:, :nope].float()
        given = seen.queries[b, :, queries]  # [H, Q, d]
        absorbed = torch.matmul(given[..., :nope].float(), up).to(given.dtype)
        tensors = {
            "index_queries": index.queries[b, queries],
            "index_head_weights": index.weights[b, queries, 0].float(),
            "queries": torch.cat([absorbed, given[..., nope:]], dim=-1).transpose(0, 1),
        }
        if seen.probabilities is not None:
            latents = seen.latents[b].reshape(seen.keys.shape[2], rank).float()
            tensors["expected_output"] = torch.matmul(seen.probabilities[b, :, queries].float(),
                                                      latents).transpose(0, 1)
        return tensors

    def _constants(self):
        sinks = getattr(self.layer.attention, "sinks", None)
        return {} if sinks is None else {"sinks": sinks}

    def _geometry(self):
        attention, indexer, family = self.layer.attention, self.layer.indexer, self.layer.family
        return {
            "group_tokens": 1, "budget_tokens": indexer.index_topk, "query_heads": attention.num_heads, "kv_heads": 1,
            "head_dim": attention.kv_lora_rank + attention.qk_rope_head_dim, "value_dim": attention.kv_lora_rank,
            "softmax_scale": attention.scaling, "index_heads": indexer.n_heads, "index_dim": indexer.head_dim,
            "index_rotary_dim": 0,
            "rope_theta": 10000.0, "norm_eps": 1e-6, "pooling": "none", "scale_at": family.scale_at}


class GroupCaptures(Captures):
    """qwen4_exp: raw index keys, pooled, normed and rotated where they are scored; keys and values per kv head."""

    def _check_model(self):
        rotary = self.layer.text_model.rotary_emb
        if rotary.attention_scaling != 1.0:
            raise Unsupported(
                f"record: rope_type {rotary.rope_type!r} scales cos and sin by {rotary.attention_scaling}; "
                "a capture has no place for it")
        self.position_ids: Any = None  # of the whole context, as the rotation was last asked for

    def _position(self, b, anchor, slots):
        positions = self.position_ids[:, b, anchor:slots]
        if not bool((positions - positions[0, 0] == torch.arange(slots - anchor, device=positions.device)).all()):
            raise Unsupported("record: position_ids do not count on by one, as with images; a capture holds text alone")
        return int(positions[0, 0])

    def _token_tensors(self, b, new, slots, seen, index):
        self._position(b, self._sequences[b].anchor, slots)
        raw = index.raw_keys[b]
        keys, values = (self._by_kv_head(x)[b, :, new].transpose(0, 1) for x in (seen.keys, seen.values))
        return {"index_keys": raw[len(raw) - (new.stop - new.start) :], "keys": keys, "values": values}

    def _of_tokens(self, seen):
        return self._by_kv_head(seen.keys)

    def _by_kv_head(self, tensor):
        """As cached: some attention functions are handed each head repeated for the queries that read it."""
        return tensor[:, :: tensor.shape[1] // self.layer.attention.config.num_key_value_heads]

    def _query_tensors(self, b, queries, seen, index):
        cos, sin = (x[:, -index.normed_queries.shape[1] :] for x in index.position_embeddings)
        rotate = sys.modules[type(self.layer.indexer).__module__].apply_rotary_pos_emb
        rotated = rotate(index.normed_queries, cos=cos, sin=sin, unsqueeze_dim=2)
        queries_given, output = (x[b, :, queries].transpose(0, 1) for x in (seen.queries, seen.output))
        return {"index_queries": rotated[b, queries], "queries": queries_given, "expected_output": output.float()}

    def _constants(self):
        rotary = self.layer.text_model.rotary_emb
        return {"index_norm_weight": self.layer.indexer.k_layernorm.weight, "inv_freq": rotary.inv_freq}

    def _geometry(self):
        attention, indexer = self.layer.attention, self.layer.indexer
        rotary = self.layer.text_model.rotary_emb
        return {
            "group_tokens": indexer.compress_ratio, "budget_tokens": indexer.token_budget,
            "query_heads": attention.config.num_attention_heads,
            "kv_heads": attention.config.num_key_value_heads, "head_dim": attention.head_dim,
            "softmax_scale": attention.scaling,
            "index_heads": indexer.index_n_heads, "index_dim": indexer.index_head_dim,
            "index_rotary_dim": 2 * rotary.inv_freq.shape[0],
            "rope_theta": float(rotary.config.rope_parameters["rope_theta"]), "norm_eps": indexer.k_layernorm.eps}
