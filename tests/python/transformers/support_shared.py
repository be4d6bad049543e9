"""What the tests of qwen4_exp and those of the families over latents share."""

import contextlib
import types

import torch


def attributes_of(model):
    """Every attribute of every module, by identity, and what its config says."""
    found = {}
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            found[name, key] = len(value) if key.startswith("_") and hasattr(value, "__len__") else id(value)
        if hasattr(module, "config"):
            found[name, "implementation"] = module.config._attn_implementation
    return found


def same_bits(one, other):
    """Of two pairs of outputs and rows."""
    assert one[0].numel() > 1000
    return torch.equal(one[1], other[1]) and torch.equal(one[0].view(torch.uint8), other[0].view(torch.uint8))


@contextlib.contextmanager
def indexers_answer(attentions, answer):
    """`answer(indexer, ...)` in place of each indexer's forward."""
    for attention in attentions:
        attention.indexer.forward = types.MethodType(answer, attention.indexer)
    try:
        yield
    finally:
        for attention in attentions:
            del attention.indexer.forward
