"""A capture file as arrays of f32, with the geometry checked against the shapes."""

import json
from dataclasses import dataclass

import numpy as np

from safetensors_file import load, widen
from scores import inverse_frequencies


@dataclass
class Capture:
    group_tokens: int
    budget_tokens: int
    norm_eps: float
    softmax_scale: float
    anchor: int
    source: str
    index_storage: str  # dtype of index keys and queries: it decides what is rounded when scoring
    attention_storage: str  # dtype of queries, keys and values
    index_keys: np.ndarray  # [T, d_i]
    index_norm_weight: np.ndarray | None  # [d_i]; none with finished keys
    inv_freq: np.ndarray  # [rotary / 2]
    index_queries: np.ndarray  # [Q, H_i, d_i]
    index_head_weights: np.ndarray | None  # [Q, H_i]
    pooling: str  # "none": index keys are finished, one per token
    relu: bool
    scale_at: str
    sinks: np.ndarray | None  # [H_q]
    queries: np.ndarray  # [Q, H_q, d]
    keys: np.ndarray  # [T, H_kv, d]
    values: np.ndarray  # [T, H_kv, d_v]
    query_positions: np.ndarray  # [Q]
    expected_rows: np.ndarray | None  # [Q, B + r - 1]
    expected_output: np.ndarray | None  # [Q, H_q, d_v]

    @property
    def visible(self):
        """How many tokens each query sees."""
        return self.query_positions - self.anchor + 1

    @property
    def row_storage(self):
        return self.budget_tokens + self.group_tokens - 1


def read_capture(path):
    tensors, metadata = load(path)
    if metadata.get("seriatim") != "capture/1":
        raise ValueError(f"{path}: not a capture/1 file")
    geometry = json.loads(metadata["geometry"])
    tokens, head_dim = len(tensors["keys"].data), geometry["head_dim"]
    value_dim = geometry.get("value_dim", head_dim)
    capture = Capture(
        group_tokens=geometry["group_tokens"],
        budget_tokens=geometry["budget_tokens"],
        norm_eps=geometry["norm_eps"],
        softmax_scale=geometry.get("softmax_scale", float(np.float32(head_dim**-0.5))),
        anchor=int(metadata.get("anchor", "0")),
        source=metadata.get("source", ""),
        index_storage=tensors["index_keys"].dtype,
        attention_storage=tensors["queries"].dtype,
        index_keys=widen(tensors["index_keys"]),
        index_norm_weight=widen(tensors["index_norm_weight"]) if geometry.get("pooling", "mean") == "mean" else None,
        inv_freq=(
            widen(tensors["inv_freq"])
            if "inv_freq" in tensors
            else inverse_frequencies(geometry["rope_theta"], geometry["index_rotary_dim"])
        ),
        index_queries=widen(tensors["index_queries"]),
        index_head_weights=widen(tensors["index_head_weights"]) if "index_head_weights" in tensors else None,
        pooling=geometry.get("pooling", "mean"),
        relu=geometry.get("relu", True),
        scale_at=geometry.get("scale_at", "after_sum"),
        sinks=widen(tensors["sinks"]) if "sinks" in tensors else None,
        queries=widen(tensors["queries"]),
        keys=widen(tensors["keys"]),
        values=widen(tensors["values"]) if "values" in tensors else widen(tensors["keys"])[..., :value_dim],
        query_positions=tensors["query_positions"].data,
        expected_rows=tensors["expected_rows"].data if "expected_rows" in tensors else None,
        expected_output=widen(tensors["expected_output"]) if "expected_output" in tensors else None,
    )
    count, index_dim = len(capture.query_positions), geometry["index_dim"]
    check_shapes(path, [
        ("index_keys", capture.index_keys, (tokens, index_dim)),
        ("index_norm_weight", capture.index_norm_weight, (index_dim,)),
        ("inv_freq", capture.inv_freq, (geometry["index_rotary_dim"] // 2,)),
        ("index_queries", capture.index_queries, (count, geometry["index_heads"], index_dim)),
        ("index_head_weights", capture.index_head_weights, (count, geometry["index_heads"])),
        ("sinks", capture.sinks, (geometry["query_heads"],)),
        ("queries", capture.queries, (count, geometry["query_heads"], head_dim)),
        ("keys", capture.keys, (tokens, geometry["kv_heads"], head_dim)),
        ("values", capture.values, (tokens, geometry["kv_heads"], value_dim)),
        ("expected_rows", capture.expected_rows, (count, capture.row_storage)),
        ("expected_output", capture.expected_output, (count, geometry["query_heads"], value_dim)),
    ])
    if capture.visible.min() < 1 or capture.visible.max() > tokens or (np.diff(capture.query_positions) < 0).any():
        raise ValueError(f"{path}: query_positions outside the file's tokens, or not ascending")
    return capture


def check_shapes(path, expectations):
    for name, array, shape in expectations:
        if array is not None and array.shape != shape:
            raise ValueError(f"{path}: {name} is {array.shape}, the geometry says {shape}")
