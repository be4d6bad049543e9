"""Reads and writes safetensors with NumPy alone, bf16 and f16 included.

bf16 has no NumPy type: such a tensor is a uint16 array of its bits, and `Tensor.dtype` says so.
The writer's bytes depend on nothing but its arguments: sorted keys, no holes, no time stamps.
"""

import json
import struct
from typing import NamedTuple

import numpy as np

STORAGE = {
    "F64": np.dtype("<f8"),
    "I64": np.dtype("<i8"),
    "F32": np.dtype("<f4"),
    "I32": np.dtype("<i4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}


class Tensor(NamedTuple):
    dtype: str  # a key of STORAGE
    data: np.ndarray


def widen(tensor):
    """The exact values of a floating tensor as f32."""
    if tensor.dtype == "BF16":
        return (tensor.data.astype(np.uint32) << 16).view(np.float32)
    if tensor.dtype in ("F16", "F32"):
        return tensor.data.astype(np.float32)
    raise ValueError(f"no f32 values in a tensor of {tensor.dtype}")


def load(path):
    """Gives (tensors by name, metadata). Raises ValueError on anything but a whole, gapless file."""
    with open(path, "rb") as file:
        raw = file.read()
    if len(raw) < 8:
        raise ValueError(f"{path}: too short for a header length")
    (header_bytes,) = struct.unpack_from("<Q", raw)
    if header_bytes > len(raw) - 8:
        raise ValueError(f"{path}: header of {header_bytes} bytes does not fit the file")
    header = json.loads(raw[8 : 8 + header_bytes])
    body = memoryview(raw)[8 + header_bytes :]
    metadata = header.pop("__metadata__", {})
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        storage = STORAGE[entry["dtype"]]
        first, last = entry["data_offsets"]
        size = int(np.prod(entry["shape"], dtype=np.int64)) * storage.itemsize
        if first != end or last - first != size or last > len(body):
            raise ValueError(f"{path}: {name} lies at {first}..{last}, expected {end}..{end + size}")
        data = np.frombuffer(body[first:last], dtype=storage).reshape(entry["shape"])
        tensors[name], end = Tensor(entry["dtype"], data), last
    if end != len(body):
        raise ValueError(f"{path}: {len(body) - end} bytes belong to no tensor")
    return tensors, metadata


def save(path, tensors, metadata):
    """Writes the tensors, widest dtype first, so that each one is aligned to its own element size."""
    names = sorted(tensors, key=lambda name: (-STORAGE[tensors[name].dtype].itemsize, name))
    header, offset, chunks = {"__metadata__": dict(sorted(metadata.items()))}, 0, []
    for name in names:
        tensor = tensors[name]
        chunk = np.ascontiguousarray(tensor.data, dtype=STORAGE[tensor.dtype]).tobytes()
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.data.shape),
            "data_offsets": [offset, offset + len(chunk)],
        }
        offset += len(chunk)
        chunks.append(chunk)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(chunks))
