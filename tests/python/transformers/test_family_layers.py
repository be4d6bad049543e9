"""Layers of the families over latents against eager ones over the same rows, and against f64."""

import copy

import pytest
import torch

import seriatim.transformers as st
from support_families import Watcher, attentions_of, draw_ids, forced_rows, make_model
from support_family_runs import BUDGET, TOKENS, check_rows, families, run

# On a layer's output in parts of its largest element, and against what eager's own rounding costs it.
LAYER_BOUND = {torch.float32: 2e-6, torch.bfloat16: 2e-2}
MOST_OF_EAGER = 1.5
BF16_LOGITS_BOUND = 0.5  # of logits that reach 5, without experts


class Calls:
    """What each attention was given and answered."""

    def __init__(self, model):
        self.given, self.answers = {}, {}
        for attention in attentions_of(model):
            attention.register_forward_pre_hook(self._before, with_kwargs=True)
            attention.register_forward_hook(self._after)

    def _before(self, attention, args, kwargs):
        self.given[attention.layer_idx] = dict(kwargs)

    def _after(self, attention, args, output):
        self.answers[attention.layer_idx] = output[0].clone()


def dense_mask(attention, tokens, dtype):
    """Additive, causal, of the layer's window."""
    window = getattr(attention, "sliding_window", None) or tokens
    back = torch.arange(tokens)[:, None] - torch.arange(tokens)
    return torch.zeros(1, 1, tokens, tokens, dtype=dtype).masked_fill((back < 0) | (back >= window),
                                                                      torch.finfo(dtype).min)


def in_dtype(value, dtype):
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if hasattr(value, "items"):
        return {key: in_dtype(each, dtype) for key, each in value.items()}
    return tuple(in_dtype(each, dtype) for each in value) if isinstance(value, tuple) else value


def answer_of(attention, given, dtype):
    """An eager attention's answer to what an enabled one was given."""
    given = {name: in_dtype(value, dtype) if dtype == torch.float64 else value for name, value in given.items()}
    rows = given.get("prev_topk_indices")
    if rows is not None:
        given["prev_topk_indices"] = torch.where(rows < 0, rows[..., :1], rows)
    given["attention_mask"] = dense_mask(attention, given["hidden_states"].shape[1], dtype)
    return attention(**given)[0]


@torch.no_grad()
@families
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_layer_answers_as_an_eager_one_over_the_same_rows(family, dtype):
    eager = make_model(family, BUDGET, dtype)
    model = st.enable(copy.deepcopy(eager))
    exact = copy.deepcopy(eager).double()
    calls, watcher, ids = Calls(model), Watcher(model), draw_ids(2, TOKENS)
    with st.watching(model, watcher), watcher.beside():
        model(input_ids=ids, use_cache=False)
    check_rows(watcher, 4 * TOKENS)
    assert len(calls.given) == len(attentions_of(model)) == len(calls.answers)
    with forced_rows(eager, watcher), forced_rows(exact, watcher):
        for at, (plain, truth) in enumerate(zip(attentions_of(eager), attentions_of(exact))):
            expected = answer_of(truth, calls.given[at], torch.float64)
            theirs = answer_of(plain, calls.given[at], dtype).double() - expected
            ours = calls.answers[at].double() - expected
            scale = float(expected.abs().max())
            print(f"{family} {dtype} layer {at}: ours {float(ours.abs().max()) / scale:.2g}, "
                  f"eager {float(theirs.abs().max()) / scale:.2g} of {scale:.2g}")
            assert float(ours.abs().max()) <= LAYER_BOUND[dtype] * scale
            assert float(ours.square().mean().sqrt()) <= MOST_OF_EAGER * float(theirs.square().mean().sqrt())


@torch.no_grad()
@families
def test_bf16_logits_are_as_near_to_f64_as_eager_ones(pairs, family):
    """Of models without experts: a router that chooses by top-k turns a last bit into another expert."""
    dense = ["dense"] * len(attentions_of(pairs(family)[0]))
    eager = make_model(family, BUDGET, torch.bfloat16, mlp_layer_types=dense)
    model, exact = st.enable(copy.deepcopy(eager)), copy.deepcopy(eager).double()
    ids, watcher = draw_ids(2, TOKENS), Watcher(model)
    with st.watching(model, watcher), watcher.beside():
        ours, _ = run(model, ids, [TOKENS])
    check_rows(watcher, 4 * TOKENS)
    with forced_rows(eager, watcher), forced_rows(exact, watcher):
        theirs, truth = (one(input_ids=ids, use_cache=False).logits for one in (eager, exact))
    of_ours, of_theirs = (float((logits - truth).square().mean().sqrt()) for logits in (ours, theirs))
    print(f"{family}: ours {of_ours:.2g}, eager {of_theirs:.2g} from f64, "
          f"{float((ours - theirs).abs().max()):.2g} at most from one another")
    assert 0 < of_ours <= 1.25 * of_theirs and float((ours - theirs).abs().max()) < BF16_LOGITS_BOUND
