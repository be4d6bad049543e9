"""Enabled models of all families, for tests of what holds for each of them."""

import torch
from transformers import DynamicCache

from support_families import MAKERS, text_model_of
from support_families import draw_ids as family_ids
from support_families import make_model as make_family
from support_models import INDEXED, draw_ids, make_model

ALL = ["qwen4_exp", *MAKERS]
# One of each kind of layer: groups of raw keys, latents, pools of finished ones.
KINDS = ["qwen4_exp", "deepseek_v32", "glm5_next"]


def made(family):
    return make_model(layers=[INDEXED, INDEXED], budget=16) if family == "qwen4_exp" else make_family(family)


def new_cache(model):
    return DynamicCache(config=text_model_of(model).config)


def ids_of(family, batch_size, tokens, seed=1):
    return (draw_ids if family == "qwen4_exp" else family_ids)(batch_size, tokens, seed)


def indexed_layers(cache):
    return [layer for layer in cache.layers if getattr(layer, "indexer_keys", None) is not None]


def in_steps(model, ids, sizes, cache=None):
    cache, at, logits = cache or new_cache(model), 0, []
    for size in sizes:
        logits.append(model(ids[:, at : at + size], cache=cache).logits)
        at += size
    return torch.cat(logits, 1)
