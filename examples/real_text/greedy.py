"""Greedy generation, one token at a time, under any attention; what several runs of it have in common."""

import torch
from transformers import DynamicCache

import smol


class Dense:
    """Transformers' own attention ("sdpa" or "eager") with its own KV cache."""

    def __init__(self, implementation):
        self.implementation = implementation
        self.cache = DynamicCache()

    @torch.no_grad()
    def hidden(self, model, tokens, first_position):
        model.config._attn_implementation = self.implementation
        return model.model(tokens, cache=self.cache, use_cache=True).last_hidden_state


class Remembering:
    """An attention of ours, which keeps the earlier tokens itself."""

    def __init__(self, name, attention):
        smol.register(name, attention)
        self.name = name

    def hidden(self, model, tokens, first_position):
        return smol.hidden_states(model, self.name, tokens, first_position)


@torch.no_grad()
def generate(model, attention, prompt, steps, after_each=lambda: None):
    """`steps` tokens after each prompt of [B, T]: tokens [B, steps], and the logits of sequence 0 [steps,
    vocabulary]."""
    hidden = attention.hidden(model, prompt, 0)
    tokens, logits = [], []
    for step in range(steps):
        of_all = model.lm_head(hidden[:, -1])
        logits.append(of_all[0])
        tokens.append(of_all.argmax(dim=-1, keepdim=True))
        after_each()
        if step + 1 < steps:
            hidden = attention.hidden(model, tokens[-1], prompt.shape[1] + step)
    return torch.cat(tokens, dim=1), torch.stack(logits)


def compare(run, base):
    """How one generation of sequence 0 differs from another; logits are compared as far as both had read the same
    tokens."""
    differs = (run["tokens"] != base["tokens"]).nonzero().flatten()
    first = differs[0].item() if len(differs) else None
    shared = len(base["tokens"]) if first is None else first + 1
    distance = (run["logits"][:shared] - base["logits"][:shared]).abs()
    return {
        "tokens": len(base["tokens"]),
        "changed": len(differs),
        "first": first,
        "same_bits": bool(torch.equal(run["logits"][:shared], base["logits"][:shared])),
        "largest_logit_difference": distance.max().item(),
    }
