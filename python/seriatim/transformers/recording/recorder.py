"""What record() puts on a layer: hooks around its indexer and, for captures, around its attention."""

from collections.abc import Callable
from types import SimpleNamespace

import torch

from .capture import BlockCaptures, Captures, GroupCaptures, LatentCaptures
from .dump import Dumps
from .families import check_cache, check_padding, named_arguments
from .watch import AttentionWatch, IndexerWatch

_CAPTURES: dict[str, Callable[..., Captures]] = {
    "latent": LatentCaptures, "groups": GroupCaptures, "blocks": BlockCaptures}
_OF_PRODUCTS = LatentCaptures, BlockCaptures  # their index is seen where it is multiplied


class LayerRecorder:
    """Observes one layer until `detach`."""

    def __init__(self, layer, folder, scratch, what, every):
        self.layer, self.every = layer, every
        self.dumps = Dumps(layer, folder, scratch) if what != "capture" else None
        self.captures = _CAPTURES[layer.family.capture](layer, folder, scratch) if what != "dump" else None
        self._indexer_watch = self._attention_watch = None
        # of the call in progress, between indexer and the end of attention
        self._index, self._chosen = SimpleNamespace(), None
        self._handles = []

    def attach(self):
        indexer = self.layer.indexer
        self._handles += [
            self.layer.text_model.register_forward_pre_hook(self._before_model, with_kwargs=True),
            indexer.register_forward_pre_hook(self._before_indexer, with_kwargs=True),
            indexer.register_forward_hook(self._after_indexer, with_kwargs=True, always_call=True),
        ]
        if hasattr(indexer, "get_visible_tokens"):
            indexer.get_visible_tokens = self._see_visible_tokens
        if self.captures is not None:
            self._attach_captures(self.layer.attention, indexer)

    def _attach_captures(self, attention, indexer):
        self._handles += [
            attention.register_forward_pre_hook(self._before_attention),
            attention.register_forward_hook(self._after_attention, always_call=True),
        ]
        if isinstance(self.captures, LatentCaptures):
            self._handles.append(attention.kv_b_proj.register_forward_pre_hook(self._see_latents))
        elif isinstance(self.captures, GroupCaptures):
            self._handles += [
                indexer.index_qk_proj.register_forward_hook(self._see_projection),
                indexer.q_layernorm.register_forward_hook(self._see_normed_queries),
                self.layer.text_model.rotary_emb.register_forward_pre_hook(self._see_positions),
            ]

    def detach(self):
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.layer.indexer.__dict__.pop("get_visible_tokens", None)
        self.layer.indexer.__dict__.pop("seriatim_visible", None)

    def _before_model(self, module, args, kwargs):
        check_padding(self.layer, named_arguments(module, args, kwargs).get("attention_mask"))

    def _before_indexer(self, module, args, kwargs):
        check_cache(self.layer, named_arguments(module, args, kwargs).get("cache"))
        if self._attention_watch is not None:
            self._attention_watch.paused = True
        self._index = SimpleNamespace()
        self._indexer_watch = IndexerWatch(products=isinstance(self.captures, _OF_PRODUCTS))
        self._indexer_watch.__enter__()

    def _after_indexer(self, module, args, kwargs, output):
        watch, self._indexer_watch = self._indexer_watch, None
        if watch is None:
            return
        watch.__exit__(None, None, None)
        if self._attention_watch is not None:
            self._attention_watch.paused = False
        if output is None:  # it raised
            return
        given = named_arguments(module, args, kwargs)
        self._chosen = []
        for sequence, selections in enumerate(self.layer.family.select(module, watch, given, output)):
            self._chosen.append([])
            for selection in selections:
                newest = selection.anchor + selection.visible - 1
                kept = (newest % self.every == 0).nonzero()[:, 0]
                self._chosen[-1].append((selection, kept))
                if self.dumps is not None:
                    self.dumps.append(sequence, selection, kept)
        if isinstance(self.captures, _OF_PRODUCTS):
            self._index.queries, self._index.keys, self._index.weights = watch.queries, watch.keys, watch.weights
        elif self.captures is not None:
            self._index.position_embeddings = given["position_embeddings"]

    def _before_attention(self, module, args):
        self._attention_watch = AttentionWatch()
        self._attention_watch.__enter__()

    def _after_attention(self, module, args, output):
        watch, self._attention_watch = self._attention_watch, None
        if watch is None:
            return
        watch.__exit__(None, None, None)
        chosen, self._chosen = self._chosen, None
        if output is not None and chosen is not None:
            self.captures.append(watch, self._index, chosen)

    def _see_visible_tokens(self, *args, **kwargs):
        indexer = self.layer.indexer
        visible = type(indexer).get_visible_tokens(indexer, *args, **kwargs)
        object.__setattr__(indexer, "seriatim_visible", visible)
        return visible

    def _see_latents(self, module, args):
        if self._attention_watch is not None:
            self._attention_watch.latents = args[0].detach()

    def _see_projection(self, module, args, output):
        self._index.raw_keys = output[..., -self.layer.indexer.index_head_dim :].detach()

    def _see_normed_queries(self, module, args, output):
        self._index.normed_queries = output.detach()

    def _see_positions(self, module, args):
        self.captures.position_ids = args[1]
