"""(a) How perplexity moves with the budget, and (c) whether a budget past the context gives the dense logits."""

import math

import torch

import attention
import greedy
import smol

BUDGETS = (4096, 2048, 1024, 512, 256)


def hidden_under(lab, name, tokens):
    """The hidden states of the whole text under Transformers' "sdpa" or "eager", or under "CLASS-BUDGET" of ours."""

    def measure():
        if name in ("sdpa", "eager"):
            lab.model.config._attn_implementation = name
            # Transformers may not see a cache here: what it would hold is never read.
            return lab.model.model(tokens, use_cache=False).last_hidden_state
        kind, budget = name.split("-")
        return lab.ours(getattr(attention, kind), int(budget)).hidden(lab.model, tokens, 0)

    return lab.once(f"hidden-{tokens.shape[1]}-{name}.pt", measure)


def perplexities(lab, name, tokens):
    """Over the whole text and over its second half, where every row below the largest budget has dropped something."""

    def measure():
        losses = smol.losses(lab.model, hidden_under(lab, name, tokens), tokens)
        half = tokens.shape[1] // 2
        windows = losses[: len(losses) // 512 * 512].unflatten(0, (-1, 512)).mean(dim=1)
        return {
            "all": math.exp(losses.mean().item()),
            "second_half": math.exp(losses[half - 1 :].mean().item()),
            "per_512": [round(math.exp(loss), 3) for loss in windows.tolist()],
        }

    return lab.once(f"perplexity-{tokens.shape[1]}-{name}.json", measure)


def budget_table(lab, length):
    tokens = lab.tokens(length)
    table = {"dense": perplexities(lab, "sdpa", tokens)}
    for budget in (length, *(b for b in BUDGETS if b < length)):
        table[f"Selective-{budget}"] = perplexities(lab, f"Selective-{budget}", tokens)
    for budget in (b for b in BUDGETS if b < length):
        table[f"Window-{budget}"] = perplexities(lab, f"Window-{budget}", tokens)
    return table


def logit_distance(lab, a, b, tokens, block=512):
    """Between two ways to compute the same logits: how far apart, and how often another token is the likeliest."""
    left, right = (hidden_under(lab, name, tokens)[0] for name in (a, b))
    largest, squares, flips, magnitude = 0.0, 0.0, 0, 0.0
    for first in range(0, len(left), block):
        x, y = (lab.model.lm_head(hidden[first : first + block]) for hidden in (left, right))
        distance = (x - y).abs()
        largest = max(largest, distance.max().item())
        squares += distance.double().pow(2).sum().item()
        flips += int((x.argmax(dim=-1) != y.argmax(dim=-1)).sum())
        magnitude = max(magnitude, x.abs().max().item())
    count = len(left) * lab.model.config.vocab_size
    return {"largest": largest, "root_mean_square": math.sqrt(squares / count), "other_likeliest_token": flips,
            "positions": len(left), "largest_logit": magnitude}  # fmt: skip


def dense_agreement(lab, length):
    """Seriatim with a budget of the whole context, sdpa and eager, each against each."""
    tokens = lab.tokens(length)
    ours = f"Selective-{length}"
    pairs = {"seriatim_sdpa": (ours, "sdpa"), "seriatim_eager": (ours, "eager"), "eager_sdpa": ("eager", "sdpa")}
    return lab.once(f"dense-{length}.json",
                    lambda: {name: logit_distance(lab, *pair, tokens) for name, pair in pairs.items()})  # fmt: skip
