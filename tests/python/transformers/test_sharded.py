"""A model whose sparse layers' keys and values lie spread over ranks gives the logits of one process, bit for bit."""

import copy
import threading

import pytest
import torch
from transformers import DynamicCache

import seriatim.shard
import seriatim.transformers
from seriatim.transformers.refusal import Unsupported
from seriatim.transformers.sharded import ShardedIndexedLayer
from support_families import make_model as make_latent
from support_models import INDEXED, draw_ids, make_model

CALLS = [(0, 150), (150, 400), *((at, at + 1) for at in range(400, 408))]  # a prompt, a second chunk, decode


def logits_of(model, ids):
    cache, logits = DynamicCache(config=model.config), []
    with torch.inference_mode():
        for first, last in CALLS:
            logits.append(model(ids[:, first:last], cache=cache, use_cache=True).logits)
    return torch.cat(logits, dim=1), cache


def on_ranks(ranks, work):
    ends, seen = seriatim.shard.thread_ends(ranks, 60.0), [None] * ranks

    def run(rank):
        try:
            seen[rank] = work(seriatim.shard.meet(ends[rank]))
        except BaseException as error:
            seen[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in seen:
        if isinstance(one, BaseException):
            raise one
    return seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_those_of_one_process_and_each_rank_holds_its_part(dtype):
    model, ids = make_model(layers=(INDEXED, INDEXED), budget=64, dtype=dtype), draw_ids(2, 408)
    alone = copy.deepcopy(model)
    seriatim.transformers.enable(alone)
    due, whole = logits_of(alone, ids)
    held = sum(layer.keys.numel() for layer in whole.layers if isinstance(getattr(layer, "keys", None), torch.Tensor))
    assert due.std() > 0.1 and held > 0
    models = {rank: copy.deepcopy(model) for rank in range(3)}  # copies are no rank's to make

    def run(group):
        own = models[group.rank]
        seriatim.transformers.enable(own, shard=group)
        logits, cache = logits_of(own, ids)
        stores = [layer for layer in cache.layers if isinstance(layer, ShardedIndexedLayer)]
        assert len(stores) == 2 and all(layer.get_seq_length() == 408 for layer in stores)
        borders = stores[0].users[0].borders
        return logits, borders[group.rank + 1] - borders[group.rank]

    seen = on_ranks(3, run)
    for logits, _ in seen:
        assert torch.equal(logits, due)
    assert sum(tokens for _, tokens in seen) == 408
    assert max(tokens for _, tokens in seen) < 300, "the second chunk went to the last rank, and was shared out"


def test_a_cropped_context_goes_on_with_the_bits_of_one_process():
    model, ids = make_model(layers=(INDEXED,), budget=64), draw_ids(1, 200)
    alone = copy.deepcopy(model)
    seriatim.transformers.enable(alone)

    def run_on(own):
        cache = DynamicCache(config=own.config)
        with torch.inference_mode():
            own(ids[:, :160], cache=cache, use_cache=True)
            for layer in cache.layers:
                layer.crop(-30)
            return own(ids[:, 130:140], cache=cache, use_cache=True).logits

    due = run_on(alone)
    models = [copy.deepcopy(model) for _ in range(2)]
    for logits in on_ranks(2, lambda group: run_on(seriatim.transformers.enable(models[group.rank], shard=group))):
        assert torch.equal(logits, due)


def test_what_a_sharded_model_does_not_serve_is_refused_by_name():
    group = on_ranks(1, lambda group: group)[0]
    with pytest.raises(Unsupported, match="shard: "):
        seriatim.transformers.enable(make_latent("deepseek_v32"), shard=group)
    model = make_model(layers=(INDEXED,), budget=64)
    seriatim.transformers.enable(model, shard=group)
    ids = draw_ids(2, 20)
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    with torch.inference_mode(), pytest.raises(Unsupported, match="padding"):
        model(ids, attention_mask=mask)
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(ids, cache=cache, use_cache=True)
    for call in (lambda: copy.deepcopy(cache), lambda: cache.reorder_cache(torch.tensor([1, 0]))):
        with pytest.raises(Unsupported, match="cache: "):
            call()
    seriatim.transformers.disable(model)
