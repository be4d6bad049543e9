"""Small random qwen4_exp models, and what an eager model makes of the rows that Seriatim chose."""

import contextlib
import sys

import torch
from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpForCausalLM

import verdict
from support_shared import indexers_answer

INDEXED, LINEAR = "indexed_attention", "linear_attention"
NEAR_MARGIN = {torch.float32: verdict.NEAR_MARGIN["F32"], torch.bfloat16: verdict.NEAR_MARGIN["BF16"]}


def make_model(layers=(INDEXED, LINEAR, INDEXED), budget=2048, dtype=torch.float32, seed=0, implementation="eager",
               **changes):
    """Weights large enough that attention is far from uniform; norms' w spread so that 1 + w matters."""
    torch.manual_seed(seed)
    options = dict(
        vocab_size=97, hidden_size=64, num_hidden_layers=len(layers), layer_types=list(layers), num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2,
        linear_num_value_heads=4, moe_intermediate_size=32, shared_expert_intermediate_size=32, num_experts_per_tok=2,
        num_experts=4, hc_count=2, hc_lowrank=16, initializer_range=0.15, indexer_n_heads=4, indexer_kv_heads=1,
        indexer_head_dim=48, indexer_budget=budget, indexer_compress_ratio=4, bos_token_id=1, eos_token_id=None,
        pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 1.0,
                         "mrope_section": [6, 5, 5],
                         "mrope_interleaved": True},
    )
    config = Qwen4ExpTextConfig(**{**options, **changes})
    config._attn_implementation = implementation
    model = Qwen4ExpForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("q_layernorm.weight", "k_layernorm.weight", "q_norm.weight", "k_norm.weight")):
                parameter.normal_(0.3, 0.3)
    return model.to(dtype).requires_grad_(False)


def draw_ids(batch_size, tokens, seed=1):
    return torch.randint(1, 97, (batch_size, tokens), generator=torch.Generator().manual_seed(seed))


def attentions_of(model):
    return [layer.self_attn for layer in model.model.layers if hasattr(layer, "self_attn")]


class Watcher:
    """Rows of every layer, in order of slots over all calls, and the hidden states that each layer was given."""

    def __init__(self):
        self.rows, self.counts, self.index_queries, self.hidden, self.outputs, self.last = {}, {}, {}, {}, {}, {}

    def __call__(self, seen):
        at = seen.attention.layer_idx
        for store, value in ((self.rows, seen.rows), (self.counts, seen.counts),
                             (self.index_queries, seen.index_queries), (self.outputs, seen.output)):
            store[at] = value.clone() if at not in store else torch.cat([store[at], value], dim=1)
        self.last[at] = seen

    @contextlib.contextmanager
    def on_hidden_states(self, model):
        def keep(attention, args, kwargs):
            hidden = args[0] if args else kwargs["hidden_states"]
            at = attention.layer_idx
            self.hidden[at] = hidden.clone() if at not in self.hidden else torch.cat([self.hidden[at], hidden], dim=1)

        handles = [attention.register_forward_pre_hook(keep, with_kwargs=True) for attention in attentions_of(model)]
        try:
            yield self
        finally:
            for handle in handles:
                handle.remove()


@contextlib.contextmanager
def forced_rows(model, rows):
    """An eager model whose indexers answer `rows[layer]` [B, all slots, width]: the mask of the newest slots."""

    def answer(indexer, hidden_states, position_embeddings, attention_mask, cache):
        if cache is not None:
            cache.update_indexer(hidden_states[..., : indexer.index_head_dim], indexer.layer_idx)
        queries, slots = hidden_states.shape[1], attention_mask.shape[-1]
        wanted = rows[indexer.layer_idx][:, slots - queries : slots].long()
        mask = torch.zeros(*wanted.shape[:2], slots + 1, dtype=torch.bool)
        mask.scatter_(-1, torch.where(wanted < 0, slots, wanted), True)
        return mask[:, None, :, :slots]

    with indexers_answer(attentions_of(model), answer):
        yield model


def gates_of(model):
    return {at: layer.mlp.gate for at, layer in enumerate(model.model.layers)}


@contextlib.contextmanager
def kept_experts(model):
    """Gives {layer: [tokens, experts a token]}, which fills with what each layer's router chooses, in order of
    calls."""
    chosen = {}

    def keep(at):
        def hook(gate, args, output):
            chosen[at] = torch.cat([chosen[at], output[2]]) if at in chosen else output[2]

        return hook

    handles = [gate.register_forward_hook(keep(at)) for at, gate in gates_of(model).items()]
    try:
        yield chosen
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def forced_experts(model, experts):
    """A model whose routers choose `experts[layer]`, in order of calls, weighing them themselves. Gives {layer: the
    number of tokens for which its router would have chosen others}.
    """
    others, asked = dict.fromkeys(experts, 0), dict.fromkeys(experts, 0)

    def answer_for(at, gate):
        def answer(hidden_states):
            logits, _, own = type(gate).forward(gate, hidden_states)
            wanted = experts[at][asked[at] : asked[at] + len(own)]
            asked[at] += len(own)
            others[at] += int((own.sort(-1).values != wanted.sort(-1).values).any(-1).sum())
            scores = torch.softmax(logits, dtype=torch.float, dim=-1).gather(-1, wanted)
            if gate.norm_topk_prob:
                scores = scores / scores.sum(dim=-1, keepdim=True)
            return logits, scores.to(logits.dtype), wanted

        return answer

    for at, gate in gates_of(model).items():
        gate.forward = answer_for(at, gate)
    try:
        yield others
    finally:
        for gate in gates_of(model).values():
            del gate.forward


def eager_rows(attention, rotary, hidden, positions, first, queries):
    """Transformers' own selection for chosen queries of one sequence: a list of rows, and of f64 scores of their
    groups.

    Its loop over queries, on its own modules; scores in f64 are those of the same q and pooled keys.
    """
    indexer = attention.indexer
    source = sys.modules[type(indexer).__module__]
    cos, sin = type(rotary).forward(rotary, hidden, positions)
    qk = indexer.index_qk_proj(hidden).view(1, hidden.shape[1], -1, indexer.index_head_dim)
    raw = qk[0, :, indexer.index_n_heads]
    q = source.apply_rotary_pos_emb(indexer.q_layernorm(qk[:, :, : indexer.index_n_heads]), cos=cos, sin=sin,
                                    unsqueeze_dim=2)[0]
    r = indexer.compress_ratio
    groups = (len(raw) - first) // r
    starts = first + r * torch.arange(groups)
    pooled = indexer.k_layernorm(raw[first : first + groups * r].view(groups, r, -1).float().mean(dim=1).to(raw.dtype))
    keys = source.apply_rotary_pos_emb(pooled[:, None], cos=cos[0, starts], sin=sin[0, starts])[:, 0].float()
    answers = []
    for slot in queries:
        visible = slot + 1 - first
        closed = visible // r
        dots = torch.matmul(q[slot].float(), keys[:closed].T).T
        scores = torch.relu(dots).sum(dim=-1) / indexer.index_head_dim**0.5
        chosen = scores.topk(min(indexer.block_topk, closed), dim=0).indices.sort().values
        tokens = (first + chosen[:, None] * r + torch.arange(r)).flatten()
        row = torch.cat([tokens, torch.arange(first + closed * r, slot + 1)])
        exact = torch.relu(keys[:closed].double() @ q[slot].double().T).sum(dim=-1) / indexer.index_head_dim**0.5
        answers.append((row, exact))
    return answers


def judge_rows(model, watcher, first, queries, dtype, sequence=0, positions=None):
    """Counts of exact, tie, near and wrong over all layers and the chosen queries of one sequence."""
    counts = {"exact": 0, "tie": 0, "near": 0, "wrong": 0}
    worst = 0.0
    for attention in attentions_of(model):
        at = attention.layer_idx
        hidden = watcher.hidden[at][sequence : sequence + 1]
        if positions is None:
            positions = torch.arange(hidden.shape[1]).expand(3, 1, -1)
        indexer = attention.indexer
        for slot, (row, scores) in zip(queries, eager_rows(attention, model.model.rotary_emb, hidden, positions, first,
                                                           queries)):
            ours = watcher.rows[at][sequence, slot, : watcher.counts[at][sequence, slot]]
            limit = min(indexer.block_topk, len(scores))
            cut = scores.topk(limit).values[-1].item() if limit else float("-inf")
            found = verdict.judge(row.numpy(), ours.numpy(), scores.numpy(), cut, first, indexer.compress_ratio,
                                  NEAR_MARGIN[dtype])
            counts[found.kind] += 1
            if found.kind != "exact":
                worst = max(worst, found.margin)
    return counts, worst
