"""How much of the attention's own weight do rows chosen by several kinds of index keys read?

For every 41st query of the text's second half and each layer: dense attention weights, averaged over heads; the share
of them that lies on a row of each budget (chosen groups and tail), averaged over queries and layers. What each kind is
stands beside its scores below. Everything here is plain torch on dense weights; Seriatim is not involved.
"""

import collections

import torch

import smol
from index_keys import GROUP_TOKENS

BUDGETS = (256, 512, 1024, 2048)
THETA = 100000.0


def rotate(keys, positions):
    """RoPE as the model has it, of [3, T, 64] keys; negative positions take it off."""
    frequencies = THETA ** (-torch.arange(0, 64, 2) / 64)
    angles = (positions[:, None] * frequencies).repeat(1, 2)
    turned = torch.cat([-keys[..., 32:], keys[..., :32]], dim=-1)
    return keys * angles.cos() + turned * angles.sin()


def group_means(keys):
    return keys.unflatten(1, (-1, GROUP_TOKENS)).mean(dim=2)


def rms_norm(keys):
    """Over the dims of all heads together, as QSA's norm would with w = 0."""
    return keys * (keys.pow(2).mean(dim=(0, 2), keepdim=True) + 1e-6).rsqrt()


def kinds_of_scores(queries, keys, weights, centre):
    """Each kind's name and its scores [Q, groups]; queries [9, Q, 64], keys [3, T, 64], weights [Q, T]."""
    groups = keys.shape[1] // GROUP_TOKENS
    positions = torch.arange(keys.shape[1], dtype=torch.float32)
    first = positions[::GROUP_TOKENS]
    shared = keys.clone()
    shared[:, 1:GROUP_TOKENS] = shared[:, :1]  # the first group has the first token's key
    plain, unrotated = rotate(keys, -positions), rotate(shared, -positions)
    centred = shared - centre.view(3, 1, 64)

    def summed(pooled, bend=torch.relu):
        return bend(torch.einsum("hqd,hgd->hqg", queries, pooled.repeat_interleave(3, dim=0))).sum(dim=0)

    def same(logits):
        return logits

    def per_group(token_scores):
        return token_scores.unflatten(-1, (groups, GROUP_TOKENS))

    token_logits = torch.einsum("hqd,htd->hqt", queries, keys.repeat_interleave(3, dim=0))
    newest = torch.arange(groups, dtype=torch.float32).expand(queries.shape[1], groups)
    yield "the best there is: the weights themselves", per_group(weights).sum(dim=-1)
    yield "no scores: the newest groups", newest
    yield "no scores: the first group and the newest", torch.where(newest == 0, float(groups), newest)
    yield "QSA's pooling of keys before RoPE", summed(rotate(rms_norm(group_means(plain)), first))
    yield "the same, first group shared", summed(rotate(rms_norm(group_means(unrotated)), first))
    yield "keys after RoPE, norm", summed(rms_norm(group_means(keys)))
    yield "keys after RoPE, norm, first group shared", summed(rms_norm(group_means(shared)))
    yield "the same, no relu", summed(rms_norm(group_means(shared)), same)
    yield "the same, no norm and no relu", summed(group_means(shared), same)
    yield "centred, no norm, first group shared", summed(group_means(centred))
    yield "centred, norm, first group shared (used here)", summed(rms_norm(group_means(centred)))
    yield "centred, norm, not shared", summed(rms_norm(group_means(keys - centre.view(3, 1, 64))))
    best = per_group(torch.relu(token_logits)).amax(dim=-1)
    yield "best token of each group, uncentred (not poolable)", best.sum(dim=0)


def shares_read(scores, weights, queries_at):
    """Per budget, the mean share of `weights` on the rows that `scores` choose."""
    closed = ((queries_at + 1) // GROUP_TOKENS)[:, None]
    open_groups = torch.arange(scores.shape[1])[None] >= closed
    per_group = weights.unflatten(-1, (-1, GROUP_TOKENS)).sum(dim=-1).masked_fill(open_groups, 0.0)
    tail = weights.sum(dim=-1) - per_group.sum(dim=-1)
    order = (-scores.masked_fill(open_groups, -torch.inf)).argsort(dim=-1, stable=True)
    read = per_group.gather(1, order).cumsum(dim=-1)
    taken = {budget: min(budget // GROUP_TOKENS, read.shape[1]) for budget in BUDGETS}  # a short text has fewer groups
    return {budget: (read[:, groups - 1] + tail).mean().item() for budget, groups in taken.items()}


def probe(model, tokens, centre):
    """{kind: {budget: [share per layer]}}"""
    length = tokens.shape[1]
    queries_at = torch.arange(length // 2 + 7, length, 41)
    future = torch.arange(length)[None] > queries_at[:, None]
    found = collections.defaultdict(lambda: collections.defaultdict(list))

    def attention(module, query, key, value, mask, scaling=None, **options):
        queries, keys = query[0, :, queries_at], key[0]
        logits = torch.einsum("hqd,htd->hqt", queries, keys.repeat_interleave(3, dim=0)) * scaling
        weights = logits.masked_fill(future, -torch.inf).softmax(dim=-1).mean(dim=0)
        for kind, scores in kinds_of_scores(queries, keys, weights, centre[module.layer_idx]):
            for budget, share in shares_read(scores, weights, queries_at).items():
                found[kind][budget].append(share)
        output = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return output.transpose(1, 2).contiguous(), None

    smol.register("probe", attention)
    smol.hidden_states(model, "probe", tokens)
    return found


def table(model, tokens, centre):
    """{kind: {budget: mean share}}"""
    found = probe(model, tokens, centre)
    return {kind: {str(b): round(sum(s) / len(s), 4) for b, s in per.items()} for kind, per in found.items()}
