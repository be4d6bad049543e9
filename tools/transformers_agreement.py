"""Proves an enabled qwen4_exp model against Transformers' eager one, on small random models with the real budget.

    python3 tools/transformers_agreement.py             2,120 tokens, f32 and bf16
    python3 tools/transformers_agreement.py --long      16,384 tokens, and 200 greedy tokens across 2,052
    python3 tools/transformers_agreement.py --long --only greedy --dtypes bf16

Which leaves nothing to belief. Every row that Seriatim chose, of every sparse layer, is judged against Transformers'
own selection for the very same hidden states: exact, tie (equal scores in f64), near (within the margin of `seriatim
run`) or wrong. The attention outputs are compared with f64 over the same rows, and so are eager's. Logits are compared
with those of an eager model that attends the same rows and asks the same experts, beside them those of sdpa with that
eager model. Greedy generations are compared token by token; at a first difference the gap of the two best logits must
be smaller than the logits' distance.
"""

import argparse
import copy
import pathlib
import sys
import types
from typing import NamedTuple

import torch
from transformers import DynamicCache
from transformers.models.qwen4_exp.modeling_qwen4_exp import eager_attention_forward

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "oracle"), str(ROOT / "tests" / "python" / "transformers")]

import seriatim.transformers as st
from support_models import (INDEXED, LINEAR, Watcher, attentions_of, draw_ids, forced_experts, forced_rows, judge_rows,
                            kept_experts, make_model)

LAYERS = (INDEXED, LINEAR, INDEXED)
# With four random index heads a group in sixteen scores exactly 0, so that just past the budget nearly every row is a
# tie; eight leave one in 256.
INDEX_HEADS = 8
# On logits that reach 3, between Seriatim and eager over the same rows and experts. Where Seriatim's difference comes
# from the rest of the model, sdpa's is as large: the bound is twice sdpa's too.
BOUND = {torch.float32: 1e-4, torch.bfloat16: 1.0}
# On attention outputs against f64, in units of the last place of the largest element of a head's output. In bf16 that
# is the one rounding at the end; in f32 a row of 2,051 tokens adds up its own.
ULPS = {torch.float32: 32.0, torch.bfloat16: 0.51}
BLOCK = 1024  # queries that the eager model is given at once, so that its mask fits


class Proof(NamedTuple):
    rows: dict  # verdicts, over all layers
    worst_margin: float
    dropped_rows: int  # that hold fewer tokens than are visible
    ulps: float  # of attention outputs, from f64
    eager_ulps: float
    largest_difference: float  # of logits
    sdpa_difference: float  # between Transformers' own two
    logits_scale: float
    other_experts: int  # tokens, over all layers, that eager would have sent to other experts


def ulps_of(output, exact):
    """`output` and `exact` [queries, heads, dim]: the largest distance in units of the last place of each head's
    largest element."""
    last_place = torch.exp2(exact.abs().amax(-1).log2().floor()) * torch.finfo(output.dtype).eps
    return float(((output.double() - exact).abs().amax(-1) / last_place).max())


def attention_ulps(seen, queries):
    """Of one layer's call, Seriatim's and eager's outputs over the same rows, keys and values, against f64."""
    attention, tokens = seen.attention, seen.keys.shape[2]
    allowed = torch.zeros(len(queries), tokens + 1, dtype=torch.bool)
    rows = seen.rows[0, queries].long()
    allowed = allowed.scatter(1, torch.where(rows < 0, tokens, rows), True)[:, :tokens]
    query, repeats = seen.queries[0, queries].transpose(0, 1), seen.queries.shape[2] // seen.keys.shape[1]
    keys, values = (x[0].double().repeat_interleave(repeats, 0) for x in (seen.keys, seen.values))
    logits = (query.double() @ keys.transpose(1, 2) * attention.scaling).masked_fill(~allowed, float("-inf"))
    exact = (logits.softmax(-1) @ values).transpose(0, 1)
    mask = torch.zeros(allowed.shape, dtype=query.dtype).masked_fill(~allowed, torch.finfo(query.dtype).min)
    module = types.SimpleNamespace(num_key_value_groups=repeats, training=False)
    eager = eager_attention_forward(module, query[None], seen.keys, seen.values, mask[None, None],
                                    attention.scaling)[0][0]
    return ulps_of(seen.output[0, queries], exact), ulps_of(eager, exact)


def logits_of(model, ids, rows, experts):
    """Logits of a model of Transformers' that attends `rows` and asks `experts`, in blocks, and how many tokens would
    not have."""
    with forced_rows(model, rows), forced_experts(model, experts) as others:
        cache = DynamicCache(config=model.config)
        blocks = [model(ids[:, at : at + BLOCK], cache=cache).logits.float() for at in range(0, ids.shape[1], BLOCK)]
    return torch.cat(blocks, 1), sum(others.values())


def prove(dtype, tokens, queries, seed=0):
    eager = make_model(LAYERS, dtype=dtype, seed=seed, indexer_n_heads=INDEX_HEADS)
    model = st.enable(copy.deepcopy(eager))
    ids, watcher = draw_ids(1, tokens), Watcher()
    with torch.inference_mode():
        with st.watching(model, watcher), watcher.on_hidden_states(model), kept_experts(model) as experts:
            logits = model(ids).logits.float()
        rows, worst = judge_rows(eager, watcher, 0, queries, dtype)
        ulps = [attention_ulps(seen, queries) for seen in watcher.last.values()]
        expected, others = logits_of(eager, ids, watcher.rows, experts)
        eager.config._attn_implementation = "sdpa"
        by_sdpa, _ = logits_of(eager, ids, watcher.rows, experts)
        dropped = sum(int((watcher.counts[a.layer_idx][0, queries] < torch.tensor(queries) + 1).sum())
                      for a in attentions_of(eager))
    return Proof(rows, worst, dropped, *(max(of_layers) for of_layers in zip(*ulps)),
                 float((logits - expected).abs().max()),
                 float((by_sdpa - expected).abs().max()), float(expected.abs().max()), others)


class Generation(NamedTuple):
    compared: int  # the number of tokens in the sequences
    first_difference: int | None  # place of the first generated token that differs
    explanation: str


def generate(dtype, prompt, tokens, seed=0):
    eager = make_model(LAYERS, dtype=dtype, seed=seed, indexer_n_heads=INDEX_HEADS)
    model = st.enable(copy.deepcopy(eager))
    ids = draw_ids(1, prompt)
    with torch.inference_mode():
        one, other = (m.generate(ids, max_new_tokens=tokens, do_sample=False, attention_mask=torch.ones_like(ids))[0]
                      for m in (eager, model))
        differ = (one != other).nonzero().flatten()
        if not len(differ):
            return Generation(len(one), None, "")
        at = int(differ[0])
        first, second = (m(one[None, :at], logits_to_keep=1).logits[0, -1].float() for m in (eager, model))
    best = first.topk(2).values
    gap, distance = float(best[0] - best[1]), float((first - second).abs().max())
    explained = f"the two best logits are {gap:.3g} apart, the models {distance:.3g}" if gap <= 2 * distance else ""
    return Generation(len(one), at - prompt, explained)


COLUMNS = ("dtype", "tokens", "rows judged", "exact", "tie", "near", "wrong", "largest margin", "rows that drop tokens",
           "attention against f64, ulp", "eager's, ulp", "logits against eager", "sdpa's", "logits reach",
           "tokens eager would route elsewhere")


def show_rows(dtypes, long):
    """Prints a line per dtype; whether all of them hold."""
    tokens = 16384 if long else 2120
    queries = list(range(2040, tokens, 29 if long else 1)) + list(range(0, 2040, 97))
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    holds = True
    for dtype in dtypes:
        found = prove(dtype, tokens, queries)
        rows = found.rows
        cells = (str(dtype)[6:], f"{tokens:,}", f"{sum(rows.values()):,}", f"{rows['exact']:,}", rows["tie"],
                 rows["near"], rows["wrong"],
                 f"{found.worst_margin:.2g}", f"{found.dropped_rows:,}", f"{found.ulps:.2f}", f"{found.eager_ulps:.2f}",
                 f"{found.largest_difference:.2g}", f"{found.sdpa_difference:.2g}", f"{found.logits_scale:.2g}",
                 found.other_experts)
        print(f"| {' | '.join(str(cell) for cell in cells)} |", flush=True)
        holds = holds and not rows["wrong"] and found.ulps <= ULPS[dtype]
        holds = holds and found.largest_difference <= min(BOUND[dtype], 2 * found.sdpa_difference)
    return holds


def show_greedy(dtypes, long):
    holds = True
    for dtype in dtypes:
        found = generate(dtype, 1952 if long else 2020, 200 if long else 60)
        holds = holds and (found.first_difference is None or bool(found.explanation))
        what = "equal"
        if found.first_difference is not None:
            what += f" for {found.first_difference} tokens; then {found.explanation or 'UNEXPLAINED'}"
        print(f"\nGreedy, {str(dtype)[6:]}, to {found.compared:,} tokens: {what}.", flush=True)
    return holds


PARTS = {"rows": show_rows, "greedy": show_greedy}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="16,384 tokens and 200 generated ones; some minutes")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--dtypes", default="f32,bf16")
    options = parser.parse_args()
    dtypes = [{"f32": torch.float32, "bf16": torch.bfloat16}[name] for name in options.dtypes.split(",")]
    return 0 if all([PARTS[part](dtypes, options.long) for part in options.only.split(",")]) else 1


if __name__ == "__main__":
    sys.exit(main())
