"""Which slots of each sequence hold tokens, and the mask that carries it through a model's own code."""

from typing import Any, NamedTuple

import torch

from .refusal import Unsupported


class Runs(NamedTuple):
    """Slots first[b] .. last[b] - 1 of sequence b hold tokens; what lies before and after is padding."""

    first: list[int]
    last: list[int]

    @classmethod
    def whole(cls, batch_size, tokens):
        return cls([0] * batch_size, [tokens] * batch_size)

    @classmethod
    def of_padding_mask(cls, mask):
        """`mask` [B, T] bool. A hole inside a run is refused, since no position may be missing from it."""
        batch_size, tokens = mask.shape
        counts = mask.sum(dim=-1)
        if bool((counts == tokens).all()):
            return cls.whole(batch_size, tokens)
        first = mask.to(torch.uint8).argmax(dim=-1)
        last = tokens - mask.flip(-1).to(torch.uint8).argmax(dim=-1)
        empty = counts == 0
        first, last = first.masked_fill(empty, tokens), last.masked_fill(empty, tokens)
        holes = ((last - first) != counts).nonzero().flatten()
        if len(holes):
            row = int(holes[0])
            hole = int((~mask[row, int(first[row]) :]).nonzero()[0, 0]) + int(first[row])
            raise Unsupported(
                f"attention_mask: row {row} has a hole at slot {hole}, between tokens; pad on the left, or on the "
                f"right in a "
                "call whose cache is not continued"
            )
        return cls(first.tolist(), last.tolist())


    @classmethod
    def of_call(cls, batch_size, tokens, attention_mask):
        """Of a call after which `tokens` slots are held, with the padding mask that it was given, or none."""
        if attention_mask is None:
            return cls.whole(batch_size, tokens)
        padding = attention_mask[:, :tokens].to(torch.bool)
        if padding.shape[1] < tokens:  # as Transformers does: what the mask does not reach is padding
            padding = torch.nn.functional.pad(padding, (0, tokens - padding.shape[1]))
        return cls.of_padding_mask(padding)

    def without(self, slots):
        """As seen in a cache that has dropped its oldest slots, as sliding layers do."""
        return Runs(*([max(0, at - slots) for at in places] for places in self))


def make_run_mask(
    batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None, device="cpu",
    **kwargs
):
    """The mask function of the attention name: one True per sequence, and the runs as an attribute.

    Nothing of size queries x keys, nor of the number of keys, is made. What a mask function beyond causality and
    padding would ask for is refused before, in `refusal`; a sliding window is the attention function's.
    """
    runs = Runs.of_call(batch_size, kv_offset + kv_length, attention_mask)
    if kv_offset:
        runs = runs.without(kv_offset)
    mask: Any = torch.ones(batch_size, 1, 1, 1, dtype=torch.bool, device=device)
    mask.seriatim_runs = runs
    return mask


def runs_of(mask):
    """The runs that came with a mask of ours."""
    runs = getattr(mask, "seriatim_runs", None)
    if runs is None:
        raise Unsupported("attention_mask: only a padding mask [batch, tokens] is supported")
    return runs
