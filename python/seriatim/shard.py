"""One context over many processes: transports, and the group, cache and layers that stand on them.

    import torch.distributed
    torch.distributed.init_process_group("gloo")                 # torchrun --nproc-per-node 4 ...
    group = seriatim.shard.meet(seriatim.shard.GlooTransport())

A transport moves bytes and computes nothing, so the results are those of one process, bit for bit. docs/sharding.md
says how to launch, what is sent and what fails how.
"""

from __future__ import annotations

import datetime
import time
from collections import deque
from typing import Any

from . import errors
from ._core import (
    Group,
    ShardedCache,
    ShardedLayer,
    ShardedSequence,
    ShardedTransaction,
    ThreadEnd,
    meet,
    thread_ends,
)

__all__ = [
    "GlooTransport",
    "Group",
    "MpiTransport",
    "ShardedCache",
    "ShardedLayer",
    "ShardedSequence",
    "ShardedTransaction",
    "ThreadEnd",
    "meet",
    "thread_ends",
]

_HEAD = 4096  # bytes of a block that go with its length, in one gather
_PIECE = 1 << 30  # MPI counts in int: longer messages go in pieces

_kept: list[Any] = []  # what MPI may still read or write, and that nobody will ever know to be free


def _lost(message: str, rank: int = -1) -> errors.Error:
    return errors.make(errors.Code.PeerLost, message, "rank", -1, rank)


def _other_length(argument: str, rank: int, expected: int, got: int) -> errors.Error:
    return errors.make(errors.Code.InvalidArgument,
                       f"{argument}: rank {rank} sent {got} bytes where {expected} were expected", argument, -1, rank)


class GlooTransport:
    """torch.distributed's gloo, for those who launch with torchrun.

    ``ranks`` are the global ranks of the default process group that take part, in this order (None: all); every process
    of the default group must make the object, as for ``torch.distributed.new_group``. ``timeout`` is in seconds.

    gloo gathers blocks of one size alone, so a block's length goes first, with its first 4 KiB; the rest of longer ones
    follows in a second gather. What a rank has sent before a gather must be received before that gather, as the library
    does: only then are the buffers of what was sent let go.
    """

    def __init__(self, ranks: list[int] | None = None, timeout: float = 60.0) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist = torch, dist
        self._group = dist.new_group(ranks, backend="gloo", timeout=datetime.timedelta(seconds=timeout))
        self.rank: int = dist.get_rank(self._group)
        self.size: int = dist.get_world_size(self._group)
        self._members: list[int] = dist.get_process_group_ranks(self._group) if self.rank >= 0 else []
        self._outgoing: deque[tuple[Any, Any]] = deque()  # gloo reads what it sends until it has arrived
        self._lost = False

    def __del__(self) -> None:
        """Waits until what was sent has arrived, at most the timeout."""
        if self.__dict__.get("_outgoing") and not self._lost:
            try:
                self._settle()
            except errors.PeerLost:
                pass

    def all_gather(self, block: memoryview, blocks: memoryview) -> None:
        head = self._torch.zeros(8 + _HEAD, dtype=self._torch.uint8)
        head[:8] = self._torch.tensor([len(block)], dtype=self._torch.int64).view(self._torch.uint8)
        first = min(len(block), _HEAD)
        self._fill(head[8 : 8 + first], block[:first])
        heads = self._gathered(head)
        lengths = [int(one[:8].view(self._torch.int64)) for one in heads]
        for rank, length in enumerate(lengths):
            if length != len(block):
                raise _other_length("block", rank, len(block), length)
        rests = []
        if len(block) > _HEAD:
            rest = self._torch.empty(len(block) - _HEAD, dtype=self._torch.uint8)
            self._fill(rest, block[_HEAD:])
            rests = self._gathered(rest)
        for rank in range(self.size):
            at = rank * len(block)
            self._read(heads[rank][8 : 8 + first], blocks[at : at + first])
            if rests:
                self._read(rests[rank], blocks[at + first : at + len(block)])
        self._settle()

    def send(self, to: int, data: memoryview) -> None:
        length = self._torch.tensor([len(data)], dtype=self._torch.int64)
        body = self._torch.empty(len(data), dtype=self._torch.uint8)
        self._fill(body, data)
        with self._losing(to):
            for tensor in (length, body) if len(data) else (length,):
                work = self._dist.isend(tensor, self._members[to], group=self._group)
                self._outgoing.append((work, tensor))

    def receive(self, from_: int, data: memoryview) -> None:
        length = self._torch.empty(1, dtype=self._torch.int64)
        with self._losing(from_):
            self._dist.recv(length, self._members[from_], group=self._group)
            body = self._torch.empty(int(length), dtype=self._torch.uint8)
            if int(length):
                self._dist.recv(body, self._members[from_], group=self._group)
        if int(length) != len(data):
            raise _other_length("bytes", from_, len(data), int(length))
        self._read(body, data)

    def broadcast(self, root: int, data: memoryview) -> None:
        if self.rank != root:
            return self.receive(root, data)
        for to in range(self.size):
            if to != root:
                self.send(to, data)

    def _gathered(self, block: Any) -> list[Any]:
        blocks = [self._torch.empty_like(block) for _ in range(self.size)]
        with self._losing(-1):
            self._dist.all_gather(blocks, block, group=self._group)
        return blocks

    def _settle(self) -> None:
        # Only a wait tells gloo's sends to be complete. All ranks have come to this gather, so they have received.
        with self._losing(-1):
            while self._outgoing:
                self._outgoing[0][0].wait()
                self._outgoing.popleft()

    def _losing(self, rank: int) -> _Losing:
        return _Losing(self, rank)

    def _fill(self, tensor: Any, data: memoryview) -> None:
        if len(data):
            memoryview(tensor.numpy())[:] = data

    def _read(self, tensor: Any, data: memoryview) -> None:
        if len(data):
            data[:] = memoryview(tensor.numpy()).cast("B")


class _Losing:
    """Whatever gloo raises is the loss of a rank."""

    def __init__(self, transport: GlooTransport, rank: int) -> None:
        self.transport, self.rank = transport, rank

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RuntimeError):
            self.transport._lost = True
            of = f"rank {self.rank}" if self.rank >= 0 else "a rank"
            first = next(iter(str(error).splitlines()), "")
            raise _lost(f"{of} is gone or late: {first}", self.rank) from error


class MpiTransport:
    """A communicator of mpi4py, which is duplicated. ``timeout`` is in seconds.

    Messages are non-blocking and polled, so that a late rank ends a call in time.
    """

    def __init__(self, communicator: Any, timeout: float = 60.0) -> None:
        from mpi4py import MPI

        self._mpi, self._timeout = MPI, timeout
        self._outgoing: deque[tuple[Any, bytes]] = deque()  # MPI reads what it sends until it has arrived
        self._communicator: Any = None  # ours to free
        self._late = False
        duplicate, request = communicator.Idup()
        try:
            self._until(time.monotonic() + timeout, -1, request.Test)
        except BaseException:
            _kept.append((duplicate, request))
            raise
        self._communicator = duplicate
        self._communicator.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank: int = self._communicator.Get_rank()
        self.size: int = self._communicator.Get_size()

    def __del__(self) -> None:
        """Waits until what was sent has arrived, at most the timeout. After a loss it stays MPI's for good."""
        if self.__dict__.get("_communicator") is None or self._mpi.Is_finalized():
            return
        communicator, self._communicator = self._communicator, None
        try:
            if self._late:
                raise TimeoutError
            self._until(time.monotonic() + self._timeout, -1, self._all_arrived)
            communicator.Free()
        except Exception:
            _kept.append((communicator, list(self._outgoing)))

    def _all_arrived(self) -> bool:
        while self._outgoing and self._outgoing[0][0].Test():
            self._outgoing.popleft()
        return not self._outgoing

    def all_gather(self, block: memoryview, blocks: memoryview) -> None:
        for step in range(1, self.size):
            self.send((self.rank + step) % self.size, block)
        taken = [bytes(block) if rank == self.rank else self._take(rank) for rank in range(self.size)]
        for rank, message in enumerate(taken):
            if len(message) != len(block):
                raise _other_length("block", rank, len(block), len(message))
        blocks[:] = b"".join(taken)

    def send(self, to: int, data: memoryview) -> None:
        self._all_arrived()
        for begin in range(0, len(data) + 1, _PIECE):  # a message ends with a piece that is not full
            held = bytes(data[begin : begin + _PIECE])
            self._outgoing.append((self._communicator.Isend([held, self._mpi.BYTE], to), held))

    def receive(self, from_: int, data: memoryview) -> None:
        message = self._take(from_)
        if len(message) != len(data):
            raise _other_length("bytes", from_, len(data), len(message))
        data[:] = message

    def broadcast(self, root: int, data: memoryview) -> None:
        if self.rank != root:
            return self.receive(root, data)
        for step in range(1, self.size):
            self.send((self.rank + step) % self.size, data)

    def _take(self, from_: int) -> bytearray:
        message = piece = self._take_piece(from_)
        while len(piece) == _PIECE:
            piece = self._take_piece(from_)
            message = message + piece
        return message

    def _take_piece(self, from_: int) -> bytearray:
        status, deadline = self._mpi.Status(), time.monotonic() + self._timeout
        message = self._until(deadline, from_, lambda: self._communicator.Improbe(from_, 0, status))
        data = bytearray(status.Get_count(self._mpi.BYTE))
        request = message.Irecv([data, self._mpi.BYTE])
        try:
            self._until(deadline, from_, request.Test)
        except BaseException:
            _kept.append((request, data))
            raise
        return data

    def _until(self, deadline: float, rank: int, poll: Any) -> Any:
        turns = 0
        while not (found := poll()):
            turns += 1
            if turns > 100:  # others may want the core
                time.sleep(5e-5)
            if time.monotonic() > deadline:
                self._late = True
                of = f"rank {rank}" if rank >= 0 else "a rank"
                raise _lost(f"{of} did not answer within {self._timeout} s", rank)
        return found
