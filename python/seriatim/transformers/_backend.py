"""Layers over a model's own tensors, a padded batch at a time, on an engine that the model's layers share."""

import torch

from .. import errors
from .._core import Engine, Geometry, PanelPooler, borrow_batch, check_array, check_finite

__all__ = ["BatchLayer", "Engine", "check_finite"]

# Queries whose rows are held at once: 4 MiB of rows at a budget of 2,048. A batch that has no more goes in one call.
CALL_QUERIES = 512


class BatchLayer:
    """One layer of a model: plans and attends for the newest S slots of every sequence of a batch.

    Slots first[b] .. last[b] - 1 of sequence b hold tokens, and a token's position is its slot. Queries in slots
    without a token get an empty row and zeros.
    """

    def __init__(self, geometry, norm_weight, engine):
        self.geometry, self.engine = Geometry(**geometry), engine
        self._pooler = PanelPooler(self.geometry, norm_weight or None, engine)

    @property
    def row_capacity(self):
        return self.geometry.row_capacity

    @property
    def selections(self):
        return self.geometry.selections

    def pool(self, first, last, pooled_groups, raw, coordinates, panels):
        """Of every sequence the groups after those that are pooled. Gives the largest magnitude that was written."""
        return self._pooler.pool(first, last, pooled_groups, raw, coordinates, panels)

    def plan(self, first, last, slots, index_queries, panels, panels_max_abs, rows, head_weights=None):
        """index_queries [B, S, index_heads, index_dim] -> rows [B, S, row_capacity], -1 past each count."""
        check_batch("index_queries", index_queries, 4)
        calls = calls_of(first, last, slots, index_queries.shape[1], "index_queries")
        check_batch("rows", rows, 3, (*index_queries.shape[:2], self.row_capacity), torch.int32, True)
        layers = borrow_batch(self.geometry, first, last, panels=panels, panels_max_abs=panels_max_abs)
        counts = torch.zeros(rows.shape[:2], dtype=torch.int32, device="cpu")
        if padding_of(calls, index_queries):
            rows.fill_(-1)
        for call in calls:
            self._plan(call, layers, index_queries, head_weights, rows, counts)

    def attend(self, first, last, queries, index_queries, keys, values, panels, panels_max_abs, output,
               head_weights=None, rows=None, counts=None):
        """Both steps, with no more rows held than those of a call, or with all of them in `rows` and `counts`."""
        check_batch("queries", queries, 4)
        check_batch("index_queries", index_queries, 4, queries.shape[:2])
        check_batch("output", output, 4, queries.shape[:3], writable=True)
        check_batch("keys", keys, 4)
        calls = calls_of(first, last, keys.shape[2], queries.shape[1])
        layers = borrow_batch(self.geometry, first, last, keys, values, panels, panels_max_abs)
        padded = padding_of(calls, queries)
        if padded:
            output.zero_()
        if padded and rows is not None:
            rows.fill_(-1), counts.zero_()
        for call in calls:
            planned = self._plan(call, layers, index_queries, head_weights, rows, counts)
            self._attend(call, layers, queries, planned, output, None)

    def attend_rows(self, first, last, queries, keys, output, values=None, rows=None, sinks=()):
        """Over rows [B, S, width] of slots, -1 past each row's end, or over the row_capacity newest slots."""
        check_batch("queries", queries, 4)
        check_batch("output", output, 4, queries.shape[:3], writable=True)
        if rows is not None:
            check_batch("rows", rows, 3, queries.shape[:2], torch.int32)
        check_batch("keys", keys, 4)
        calls = calls_of(first, last, keys.shape[2], queries.shape[1])
        layers = borrow_batch(self.geometry, first, last, keys, values)
        if padding_of(calls, queries):
            output.zero_()
        for call in calls:
            planned = self._window(call, first) if rows is None else given_rows(call, rows)
            self._attend(call, layers, queries, planned, output, list(sinks) or None)

    def _plan(self, call, layers, index_queries, head_weights, rows, counts):
        """The rows of a call and their counts, written to their places too where there are such."""
        asks = [(layers[part.sequence], part.of(index_queries), part.positions,
                 None if head_weights is None else part.of(head_weights)) for part in call]
        if rows is None:
            return run(call, lambda: self.engine.plan(asks))
        into = [joined(call, rows), joined(call, counts)]
        planned = run(call, lambda: self.engine.plan(asks, out=tuple(place for place, _ in into)))
        for (place, is_copy), whole in zip(into, (rows, counts)):
            if is_copy:
                put_back(call, place, whole)
        return planned

    def _attend(self, call, layers, queries, rows, output, sinks):
        asks = [(layers[part.sequence], part.of(queries), part.positions, sinks) for part in call]
        place, is_copy = joined(call, output)
        run(call, lambda: self.engine.attend(asks, rows, out=place))
        if is_copy:
            put_back(call, place, output)

    def _window(self, call, first):
        """Rows of the newest slots that a query sees."""
        positions = torch.cat([torch.arange(part.positions.start, part.positions.stop, device="cpu") for part in call])
        anchors = torch.cat([torch.full((part.count,), first[part.sequence], device="cpu") for part in call])
        begin = torch.maximum(anchors, positions + 1 - self.row_capacity)
        rows = begin[:, None] + torch.arange(self.row_capacity, device="cpu")
        return rows.to(torch.int32), (positions + 1 - begin).to(torch.int32)


class Part:
    """Queries begin .. end - 1 of one sequence, of those in slots that hold tokens."""

    def __init__(self, sequence, begin, end, base):
        self.sequence, self.begin, self.end = sequence, begin, end
        self.count = end - begin
        self.positions = range(base + begin, base + end)

    def of(self, batch):
        return batch[self.sequence, self.begin : self.end]


def calls_of(first, last, slots, queries, name="queries"):
    """The parts of each call: all in one, or a sequence at a time and no more queries than a call takes."""
    if queries > slots:
        raise refusal(name, f"{name}: {queries} of them for {slots} slots")
    base, parts = slots - queries, []
    for sequence, (begin, end) in enumerate(zip(first, last)):
        if begin < 0 or end < begin or end > slots:
            raise refusal("runs", f"runs: slots {begin} to {end} of {slots} (sequence {sequence})", sequence)
        begin, end = max(0, begin - base), max(0, end - base)
        if end > begin:
            parts.append(Part(sequence, begin, end, base))
    if not parts or sum(part.count for part in parts) <= CALL_QUERIES:
        return [parts] if parts else []
    return [[Part(part.sequence, at, min(at + CALL_QUERIES, part.end), base)]
            for part in parts for at in range(part.begin, part.end, CALL_QUERIES)]


def padding_of(calls, queries):
    """How many of the queries are in no call."""
    return queries.shape[0] * queries.shape[1] - sum(part.count for call in calls for part in call)


def joined(call, batch):
    """Where a call's results go, one after the other: a view of [B, S, ...] if they lie so, else memory to copy
    from."""
    begin = call[0].sequence * batch.shape[1] + call[0].begin
    end = call[-1].sequence * batch.shape[1] + call[-1].end
    count = sum(part.count for part in call)
    if end - begin == count and batch.is_contiguous():
        return batch.view(-1, *batch.shape[2:])[begin:end], False
    return batch.new_empty(count, *batch.shape[2:]), True


def put_back(call, place, batch):
    at = 0
    for part in call:
        part.of(batch).copy_(place[at : at + part.count])
        at += part.count


def given_rows(call, rows):
    """A row that goes on after a -1 has one in it, and is refused."""
    taken = rows[call[0].sequence, call[0].begin : call[0].end] if len(call) == 1 else \
        torch.cat([part.of(rows) for part in call])
    return taken, (taken >= 0).sum(dim=-1, dtype=torch.int32)


def run(call, step):
    """Runs a step of an engine. An error names the sequence."""
    try:
        return step()
    except errors.Error as error:
        part = call[max(error.ask, 0)]
        if error.row >= 0:
            error.index = error.row + part.begin
        error.row = part.sequence
        error.args = (f"{error} (sequence {part.sequence})",)
        raise


def check_batch(name, tensor, axes, shape=(), dtype=None, writable=False):
    """`shape`: of the leading axes."""
    check_array("out" if writable and name == "output" else name, tensor, writable)
    if tensor.ndim != axes or tuple(tensor.shape[: len(shape)]) != tuple(shape):
        raise refusal(name, f"{name}: shape {tuple(tensor.shape)} where {tuple(shape)} and {axes} axes are needed")
    if dtype is not None and tensor.dtype != dtype:
        raise refusal(name, f"{name}: {tensor.dtype} where {dtype} is needed")


def refusal(argument, message, row=-1):
    return errors.make(errors.Code.InvalidArgument, message, argument, row, -1)
