"""What each family's indexer selected in one call, as rows of a dump: from what it sorted and what it was given."""

from typing import NamedTuple

import torch

from ..refusal import Unsupported


class Selection(NamedTuple):
    """The rows of one sequence (and one head, where heads select apart), for the queries of one call that are
    tokens."""

    part: str  # "" or which head
    anchor: int
    queries: torch.Tensor  # [Q] which of the call's queries
    visible: torch.Tensor  # [Q] tokens that each sees
    rows: torch.Tensor  # [Q, W] int32, -1 behind
    scores: list[torch.Tensor]  # of Q vectors, one score per group


def runs_of(mask):
    """The visible run of each query, `mask` [B, S, T] bool: first slots [B, S], counts [B, S], and which queries are
    tokens.

    A query is no token if it does not see its own slot, as on padding. Holes are refused.
    """
    queries, slots = mask.shape[1:]
    counts = mask.sum(dim=-1)
    first = mask.to(torch.uint8).argmax(dim=-1)
    last = slots - mask.flip(-1).to(torch.uint8).argmax(dim=-1)
    own = torch.arange(slots - queries, slots, device=mask.device)
    tokens = mask.gather(-1, own.expand(mask.shape[0], -1)[..., None])[..., 0]
    if bool((tokens & ((last - first != counts) | (last != own + 1))).any()):
        raise Unsupported(
            "attention_mask: a query sees tokens with a hole between, or later ones; only causal masks with padding "
            "can be recorded")
    return first, counts, tokens


def pack(values, kept, width):
    """What is kept of each row [..., W], in its order, to the front; -1 behind, and up to `width`."""
    order = (~kept).to(torch.uint8).argsort(dim=-1, stable=True)
    packed = values.gather(-1, order).masked_fill(~kept.gather(-1, order), -1).to(torch.int32)
    return torch.nn.functional.pad(packed, (0, width - packed.shape[-1]), value=-1)


def agree(seen, used, what):
    if not torch.equal(seen, used):
        raise RuntimeError(
            f"{what}: what the indexer gave is not what it sorted; this version of Transformers is not known here")


def _one_anchor(first, tokens):
    anchors = first[tokens].unique()
    if len(anchors) > 1:
        raise Unsupported(
            "attention_mask: the queries of one sequence do not all see its first token; windows cannot be recorded")
    return int(anchors[0])


def _scored_runs(first, counts, tokens, rows, scores, group_tokens, base):
    """Selections of sequences whose scores' column `base(anchor)` is group 0."""
    for b in range(len(tokens)):
        if not bool(tokens[b].any()):
            yield None
            continue
        anchor = _one_anchor(first[b], tokens[b])
        queries = tokens[b].nonzero()[:, 0]
        visible = counts[b, queries]
        start = base(anchor)
        kept = scores[b, queries].float().cpu()
        vectors = [kept[i, start : start + n // group_tokens] for i, n in enumerate(visible.tolist())]
        yield Selection("", anchor, queries, visible, rows[b, queries], vectors)


def token_rows(indexer, watch, given, output):
    """Seven families over latents: `topk` over all tokens at once. Below the budget it also picks tokens that are
    masked, which attention then leaves out, and so does the row."""
    ((scores, picks),) = watch.sorted
    agree(picks.to(output.dtype), output, "rows")
    mask = given["attention_mask"]
    mask = (mask if mask.dtype == torch.bool else mask == 0).expand(scores.shape)
    first, counts, tokens = runs_of(mask)
    rows = pack(picks, mask.gather(-1, picks), indexer.index_topk)
    return [list_of(x) for x in _scored_runs(first, counts, tokens, rows, scores, 1, lambda anchor: anchor)]


def list_of(selection):
    return [] if selection is None else [selection]


def group_rows(indexer, watch, given, output):
    """qwen4_exp: one `topk` per query that has a group, sequence by sequence; the tail is appended unscored."""
    mask = given["attention_mask"]
    mask = (mask if mask.dtype == torch.bool else mask == 0)[:, 0].expand(output.shape[0], -1, -1)
    first, counts, tokens = runs_of(mask)
    r, width, slots = indexer.compress_ratio, indexer.token_budget + indexer.compress_ratio - 1, mask.shape[-1]
    rows = torch.full((*counts.shape, width + 1), -1, dtype=torch.int64, device="cpu")
    scores, sorted_ = [[torch.empty(0, dtype=torch.float32, device="cpu")] * counts.shape[1]
                       for _ in counts], iter(watch.sorted)
    for b in range(len(counts)):
        for s, n in enumerate(counts[b].tolist()):
            chosen = torch.empty(0, dtype=torch.int64, device="cpu")
            if n // r > 0:
                values, picks = next(sorted_)
                scores[b][s], chosen = values.float().cpu(), picks.cpu()
            expanded = (r * chosen[:, None] + torch.arange(r, device="cpu")).flatten()
            row = torch.cat([expanded, torch.arange(n - n % r, n, device="cpu")]) + int(first[b, s])
            rows[b, s, : len(row)] = row
    used = torch.zeros(*counts.shape, slots + 1, dtype=torch.bool,
                       device="cpu").scatter_(-1, torch.where(rows < 0, slots, rows), True)
    agree((used[..., :slots] & mask.cpu())[tokens.cpu()], (output[:, 0] & mask).cpu()[tokens.cpu()], "rows")
    selections: list[list[Selection]] = []
    for b in range(len(counts)):
        queries = tokens[b].nonzero()[:, 0]
        if len(queries) == 0:
            selections.append([])
            continue
        vectors = [scores[b][s] for s in queries.tolist()]
        row = rows[b, queries.cpu(), :width].to(torch.int32)
        selections.append([Selection("", _one_anchor(first[b], tokens[b]), queries, counts[b, queries], row, vectors)])
    return selections


def pool_rows(indexer, watch, given, output):
    """glm5_next: pools counted from the first token, the tail unscored. Between them the indexer leaves -1 for pools
    that are not closed; the row is without those."""
    ((scores, _),) = watch.sorted
    first, counts, tokens = runs_of(indexer.seriatim_visible)
    rows = pack(output, output >= 0, output.shape[-1])
    return [list_of(x) for x in _scored_runs(first, counts, tokens, rows, scores, indexer.index_kpool,
                                             lambda anchor: 0)]


def entry_rows(indexer, watch, given, output):
    """deepseek_v4: numbers of pooled entries, each of which stands for a group of tokens."""
    ((scores, _),) = watch.sorted
    visible = given["position_ids"].expand(scores.shape[:2]) + 1
    rows = pack(output, output >= 0, indexer.index_topk)
    return [[_numbered("", visible[b], rows[b], scores[b], indexer.compress_rate)] for b in range(len(visible))]


def block_rows(indexer, watch, given, output):
    """minimax_m3_vl: numbers of blocks, one selection per head. The block of the query itself counts as a whole one
    however many of its tokens are there, and scores +inf, so that it is always chosen: that is how the layer has it."""
    ((scores, picks),) = watch.sorted
    agree(picks.masked_fill(scores.gather(-1, picks) == float("-inf"), -1), output, "rows")
    size = indexer.block_size
    visible = (given["position_ids"] // size + 1) * size
    rows = pack(output, output >= 0, indexer.topk_blocks)
    heads = range(output.shape[1])
    return [[_numbered(f"kv_head_{h}", visible[b], rows[b, h], scores[b, h], size) for h in heads]
            for b in range(len(visible))]


def _numbered(part, visible, rows, scores, group_tokens):
    scores = scores.float().cpu()
    vectors = [scores[i, : n // group_tokens] for i, n in enumerate(visible.tolist())]
    return Selection(part, 0, torch.arange(len(visible), device=rows.device), visible, rows, vectors)
