#!/usr/bin/env python3
"""Writes the seed corpus of the file readers, tests/corpus/{safetensors,npy,capture,selection}/.

Well-formed files are made by the formats' own packages (safetensors, numpy), so that the readers are held against
writers that are not ours; the names of hostile ones begin with "bad_" and are made by hand. Needs
`pip install numpy safetensors`; the committed files came from numpy 2.4.6 and safetensors 0.8.0.

    tools/make_corpus.py [DIRECTORY]      (default: tests/corpus beside this script's folder)
"""
import io
import json
import pathlib
import struct
import sys

import numpy as np
import safetensors


def serialize(tensors, metadata=None):
    """tensors: name -> array, or (dtype's name, array of the same size) for a dtype that NumPy does not have."""
    pairs = {name: value if isinstance(value, tuple) else (value.dtype.name, value) for name, value in tensors.items()}
    specs = {
        name: safetensors.TensorSpec(dtype=dtype, shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes)
        for name, (dtype, array) in pairs.items()
    }
    return bytes(safetensors.serialize(specs, metadata))


def good_safetensors():
    mixed = {
        "a/f32": np.array([[0.0, -0.0, 1.5], [np.inf, -np.inf, np.nan]], "<f4"),
        "bf16": ("bfloat16", np.array([0x3F80, 0xBF80, 0x7F80], "<u2")),
        "f16": np.array([1, -2, 65504, 2**-24], "<f2").reshape(2, 2, 1),
        "i32": np.array([-1, 0, 2**31 - 1], "<i4").reshape(1, 1, 1, 3),
        "i64": np.array([-(2**63), 2**63 - 1], "<i8"),
        "scalar": np.array(0.25, "<f4"),
        "none": np.zeros((0, 4), "<f4"),
        "\u00fc \"quoted\"": np.array([7], "<i4"),
    }
    foreign = {
        "u8": np.array([1, 2, 3], "u1"),
        "f64": np.array([0.5], "<f8"),
        "rank5": np.array([1, 2], "<f4").reshape(1, 1, 1, 1, 2),
    }
    return {
        "mixed": serialize(mixed, {"note": "two\nlines"}),
        "foreign": serialize(foreign),
        "metadata_only": serialize({}, {"seriatim": "capture/1"}),
        "nothing": serialize({}),
    }


def framed(header, data):
    text = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(begin, end, shape, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def bad_safetensors():
    def of(entries, data):
        return framed(json.dumps(entries), data)

    return {
        "bad_overlap": of({"a": entry(0, 8, [2]), "b": entry(4, 12, [2])}, bytes(12)),
        "bad_hole": of({"a": entry(0, 4, [1]), "b": entry(8, 12, [1])}, bytes(12)),
        "bad_huge_shape": of({"a": entry(0, 0, [2**62, 2**62])}, b""),
        "bad_deep": framed("[" * 1000, b""),
        "bad_twice": framed('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
                            '"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
        "bad_zero_byte": framed(b'{}\0{"', b""),
    }


def npy(array, version=(1, 0)):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    return out.getvalue()


def good_npy():
    grid = np.arange(6, dtype="<f4").reshape(2, 3) - 2.5
    return {
        "f4_1d": npy(np.array([1.5, -np.inf, np.nan], "<f4")),
        "f4_2d": npy(grid),
        "f4_2d_v2": npy(grid, (2, 0)),
        "f4_2d_v3": npy(grid, (3, 0)),
        "f4_none": npy(np.zeros((0, 3), "<f4")),
        "f2_3d": npy(np.arange(4, dtype="<f2").reshape(1, 2, 2)),
        "i4_4d": npy(np.arange(4, dtype="<i4").reshape(1, 2, 1, 2)),
        "i8_1d": npy(np.array([-(2**63), 2**63 - 1], "<i8")),
    }


def bad_npy():
    def of(header, data):
        return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data

    return {
        "bad_fortran": npy(np.asfortranarray(np.arange(6, dtype="<f4").reshape(2, 3))),
        "bad_f8": npy(np.array([1.0])),
        "bad_big_endian": npy(np.array([1.0], ">f4")),
        "bad_fields": npy(np.zeros(1, [("x", "<f4"), ("y", "<i4")])),
        "bad_scalar": npy(np.array(1.0, "<f4")),
        "bad_huge_shape": of(b"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }\n", b""),
        "bad_twice": of(b"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", bytes(4)),
        "bad_call": of(b"__import__('os').abort()\n", b""),
    }


CAPTURE_GEOMETRY = {"group_tokens": 2, "budget_tokens": 4, "query_heads": 2, "kv_heads": 1, "head_dim": 3,
                    "index_heads": 2,
                    "index_dim": 4, "index_rotary_dim": 2, "rope_theta": 100.0, "norm_eps": 1e-6}


def captures():
    """Small captures that replay, for the replayer's fuzz target."""
    random = np.random.default_rng(5)

    def normal(*shape):
        return random.standard_normal(shape).astype("<f4")

    tensors = {
        "index_keys": normal(9, 4),
        "index_norm_weight": normal(4),
        "index_queries": normal(3, 2, 4),
        "queries": normal(3, 2, 3),
        "keys": normal(9, 1, 3),
        "query_positions": np.array([7, 9, 15], "<i8"),
    }
    answered = {
        "values": normal(9, 1, 3),
        "index_head_weights": normal(3, 2),
        "inv_freq": np.array([0.5], "<f4"),
        "expected_rows": np.array([[7, -1, -1, -1, -1], [7, 8, 9, -1, -1], [7, 8, 11, 12, 15]], "<i4"),
        "expected_output": normal(3, 2, 3),
    }
    metadata = {"seriatim": "capture/1", "geometry": json.dumps(CAPTURE_GEOMETRY), "anchor": "7"}
    finished = {**CAPTURE_GEOMETRY, "group_tokens": 1, "pooling": "none", "relu": False, "scale_at": "before_relu"}
    return {
        "asked": serialize(tensors, metadata),
        "answered": serialize({**tensors, **answered}, metadata),
        "finished": serialize(tensors, {**metadata, "geometry": json.dumps(finished)}),
    }


def selections():
    """Dumps of a few rows: right ones, wrong ones, groups, scores and outputs."""
    rows = np.array([[0, 1, 2, 3, 4], [0, 1, 4, 5, -1], [2, 3, 4, 5, 6], [5, 4, 0, 0, 9]], np.int32)
    visible = np.array([5, 6, 7, 7], np.int64)
    scores = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 0, 1]], np.float32)
    rule = {"seriatim": "selection/1", "group_tokens": "2", "budget_tokens": "4"}
    groups = np.array([[0, 1], [2, 0], [1, 3], [-1, -1]], np.int64)
    return {
        "bare": serialize({"rows": rows, "visible": visible}, rule),
        "scored": serialize({"rows": rows, "visible": visible, "scores": scores,
                             "output": np.zeros((4, 1, 2), np.float32)}, {**rule, "engine": "seed"}),
        "groups": serialize({"rows": groups, "visible": visible.astype(np.int32), "scores": scores},
                            {**rule, "unit": "group", "anchor": "3"}),
    }


def main():
    here = pathlib.Path(__file__).resolve().parent.parent / "tests" / "corpus"
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here
    for folder, files in (("safetensors", {**good_safetensors(), **bad_safetensors()}),
                          ("npy", {**good_npy(), **bad_npy()}), ("capture", captures()), ("selection", selections())):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (root / folder / f"{name}.{folder}").write_bytes(data)


if __name__ == "__main__":
    main()
