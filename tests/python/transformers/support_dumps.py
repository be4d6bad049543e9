"""Recorded files as the checker takes them."""

import pathlib
import struct
import json
import sys

import seriatim

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "oracle"))

from safetensors_file import load

# What Transformers is known to do with a selection: torch.topk settles equal scores as it likes, and sorts by score.
KNOWN = {"tie", "order"}


def read_dump(path):
    """The tensors of a dump, and what `seriatim.check` wants to be told of them."""
    tensors, metadata = load(path)
    assert metadata["seriatim"] == "selection/1"
    told = {"group_tokens": int(metadata["group_tokens"]), "budget_tokens": int(metadata["budget_tokens"]),
            "anchor": int(metadata["anchor"]), "unit": metadata["unit"]}
    return {name: tensor.data for name, tensor in tensors.items()}, told


def judge_dump(path, rule="canonical", rows=None):
    tensors, told = read_dump(path)
    rows = tensors["rows"] if rows is None else rows
    return seriatim.check(rows, visible=tensors["visible"], scores=tensors["scores"], rule=rule, **told)


def broken_by(report):
    return {promise for promise, count in report.faults.items() if count}


def header_of(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length))
