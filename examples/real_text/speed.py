"""(d) Tokens per second of the whole model, and what part of the time attention takes."""

import statistics
import time

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.llama.modeling_llama import eager_attention_forward

import attention
import greedy
import smol

DECODED = 16
BUDGETS = (2048, 1024, 512, 256)


def names(length):
    return ["eager", "sdpa", *(f"Selective-{budget}" for budget in (length, *BUDGETS) if budget <= length)]


class Timed:
    """An attention function, and the seconds spent in it."""

    def __init__(self, function):
        self.function = function
        self.seconds = 0.0

    def __call__(self, *arguments, **options):
        began = time.perf_counter()
        result = self.function(*arguments, **options)
        self.seconds += time.perf_counter() - began
        return result

    def taken(self):
        seconds, self.seconds = self.seconds, 0.0
        return seconds


def prepare(lab, name):
    if name in ("eager", "sdpa"):
        timed = Timed({"eager": eager_attention_forward, "sdpa": sdpa_attention_forward}[name])
        # The mask is what Transformers makes for the function's own name, so only the function itself is exchanged.
        smol.AttentionInterface.register(f"timed_{name}", timed)
        smol.AttentionMaskInterface.register(f"timed_{name}", smol.AttentionMaskInterface._global_mapping[name])
        return timed, greedy.Dense(f"timed_{name}")
    kind, budget = name.split("-")
    made = getattr(attention, kind)(lab.index_keys(), int(budget), lab.layers)
    timed = Timed(made)
    return timed, greedy.Remembering("timed_seriatim", timed)


def measure(lab, name, length):
    """Prefill of `length` tokens, then the median of single steps after it."""
    prompt = lab.tokens(smol.CONTEXT)[:, :length]
    timed, through = prepare(lab, name)
    lab.model.lm_head(through.hidden(lab.model, prompt[:, :64], 0))  # wakes threads and touches every weight
    timed, through = prepare(lab, name)
    began = time.perf_counter()
    hidden = through.hidden(lab.model, prompt[:, :-DECODED], 0)
    prefill, prefill_attention = time.perf_counter() - began, timed.taken()
    steps, steps_attention = [], []
    for at in range(length - DECODED, length):
        began = time.perf_counter()
        hidden = through.hidden(lab.model, prompt[:, at : at + 1], at)
        lab.model.lm_head(hidden[:, -1])
        steps.append(time.perf_counter() - began)
        steps_attention.append(timed.taken())
    step, step_attention = statistics.median(steps), statistics.median(steps_attention)
    return {
        "prefill_tokens_per_s": round((length - DECODED) / prefill, 1),
        "prefill_s": round(prefill, 2),
        "prefill_attention_s": round(prefill_attention, 2),
        "decode_tokens_per_s": round(1 / step, 2),
        "decode_ms": round(1e3 * step, 2),
        "decode_attention_ms": round(1e3 * step_attention, 2),
    }


def speed(lab, name, length):
    return lab.once(f"speed-{length}-{name}.json", lambda: measure(lab, name, length))


def speed_table(lab, length):
    return {name: speed(lab, name, length) for name in names(length)}
