"""Safetensors files whose tensors grow row by row and are never in memory as a whole."""

import array
import json
import os
import shutil
import struct

import torch

_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int32: "I32", torch.int64: "I64"}
_ZEROS = bytes(1 << 16)


class GrowingTensor:
    """[rows, *shape] of one dtype, appended to a file of its own. With shape None rows are vectors of any length, which
    are filled up with zeros when the longest is known."""

    def __init__(self, path, dtype, shape):
        self.path, self.dtype, self.shape = path, dtype, shape
        self.rows = 0
        self._lengths = array.array("q")
        open(path, "wb").close()

    def append(self, rows):
        """`rows` is a tensor [n, *shape], or a list of vectors where lengths differ."""
        with open(self.path, "ab") as file:
            if self.shape is None:
                for row in rows:
                    self._lengths.append(len(row))
                    file.write(_bytes_of(row))
            else:
                assert rows.dtype == self.dtype and tuple(rows.shape[1:]) == tuple(self.shape), (rows.dtype, rows.shape,
                                                                                                 self.shape)
                file.write(_bytes_of(rows))
        self.rows += len(rows)

    def full_shape(self):
        return [self.rows, *(self.shape if self.shape is not None else [max(self._lengths, default=1) or 1])]

    def size_bytes(self):
        size = self.dtype.itemsize
        for extent in self.full_shape():
            size *= extent
        return size

    def copy_to(self, out):
        with open(self.path, "rb") as file:
            if self.shape is not None:
                shutil.copyfileobj(file, out, 1 << 20)
                return
            width = self.full_shape()[1] * self.dtype.itemsize
            for length in self._lengths:
                out.write(file.read(length * self.dtype.itemsize))
                _write_zeros(out, width - length * self.dtype.itemsize)


def _bytes_of(tensor):
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b""


def _write_zeros(out, count):
    while count > 0:
        count -= out.write(_ZEROS[: min(count, len(_ZEROS))])


def save(path, tensors, metadata):
    """Puts growing tensors into one file; a reader sees the whole of it or nothing."""
    header, at = {"__metadata__": metadata}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": tensor.full_shape(),
                        "data_offsets": [at, at + tensor.size_bytes()]}
        at += tensor.size_bytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            tensor.copy_to(out)
    os.replace(part, path)
