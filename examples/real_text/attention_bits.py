"""(b), the attention alone: the same queries, keys and values under other batches, threads and chunks, bit for bit.

A generation also runs the model's matrix products, whose bits torch lets move with the batch and the threads. Here are
the attention functions by themselves, on what the model's own layers give them.
"""

import types

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.llama.modeling_llama import eager_attention_forward

import attention
import smol

LAYERS = (0, 14, 29)
DECODED = 32  # queries that are asked once more, one at a time


def recorded_layers(lab, tokens):
    """Queries, keys and values of a few layers as the dense model makes them."""
    found = {}

    def record(module, query, key, value, mask, **options):
        if module.layer_idx in LAYERS:
            found[module.layer_idx] = (query, key, value)
        output = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return output.transpose(1, 2).contiguous(), None

    smol.register("record", record)
    smol.hidden_states(lab.model, "record", tokens)
    return found


def causal_mask(queries, keys):
    newest = torch.arange(keys - queries, keys)[:, None]
    return torch.where(torch.arange(keys)[None] <= newest, 0.0, torch.finfo(torch.float32).min)[None, None]


def dense(function):
    def attend(layer, query, key, value):
        module = types.SimpleNamespace(num_key_value_groups=3, is_causal=True, training=False)
        mask = causal_mask(query.shape[2], key.shape[2])
        return function(module, query, key, value, mask, scaling=0.125)[0]

    return attend


def selective(lab, budget):
    def attend(layer, query, key, value):
        # One layer of a model of its own; queries fewer than keys are the newest tokens', so the others only fill it.
        made = attention.Selective(lab.index_keys(), budget, lab.layers, len(query))
        made.step = made.cache.begin()
        rest = key.shape[2] - query.shape[2]
        outputs = []
        for at, sequence in enumerate(made.sequences):
            for chunk in (slice(0, rest), slice(rest, None)):
                keys, values = key[at, :, chunk].transpose(0, 1), value[at, :, chunk].transpose(0, 1)
                if len(keys):
                    queries = query[at].transpose(0, 1) if chunk.stop is None else query.new_zeros(0, 9, 64)
                    output = made.append_and_attend(sequence, layer, queries, keys, values)
            outputs.append(output)
        made.step.rollback()
        return torch.stack(outputs)

    return attend


def differing(a, b):
    """The share of elements whose bits differ, and by how much at most."""
    return {"elements": a.numel(), "differ": int((a.view(torch.int32) != b.view(torch.int32)).sum()),
            "largest": (a - b).abs().max().item()}


def add(total, one):
    for name, value in one.items():
        total[name] = max(total.get(name, 0), value) if name == "largest" else total.get(name, 0) + value


def variations(lab, attend, layer, tensors, neighbour):
    base = attend(layer, *tensors)
    yield "again", base, attend(layer, *tensors)
    lab.set_threads(2 if lab.threads == 1 else 1)
    yield "on two threads and on one", base, attend(layer, *tensors)
    lab.set_threads(lab.threads)
    yield "in a batch of two", base, attend(layer, *(torch.cat([x, y]) for x, y in zip(tensors, neighbour)))[:1]
    query, key, value = tensors
    length = key.shape[2]
    singly = [attend(layer, query[:, :, at : at + 1], key[:, :, : at + 1], value[:, :, : at + 1])
              for at in range(length - DECODED, length)]
    yield f"the last {DECODED} one at a time", base[:, -DECODED:], torch.cat(singly, dim=1)


def attention_bits(lab, length, budget):
    """{function: {variation: differing elements over three layers}}"""

    def measure():
        text = lab.tokens(4 * length)
        layers, neighbours = (recorded_layers(lab, text[:, first : first + length]) for first in (0, length))
        functions = {f"seriatim {budget}": selective(lab, budget), f"seriatim {length}": selective(lab, length),
                     "sdpa": dense(sdpa_attention_forward), "eager": dense(eager_attention_forward)}  # fmt: skip
        found = {}
        for name, attend in functions.items():
            of_function = found.setdefault(name, {})
            for layer, tensors in layers.items():
                for variation, a, b in variations(lab, attend, layer, tensors, neighbours[layer]):
                    add(of_function.setdefault(variation, {}), differing(a.contiguous(), b.contiguous()))
        return found

    return lab.once(f"attention-bits-{length}-{budget}.json", measure)
