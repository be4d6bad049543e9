"""Every parameter of every function is given what nobody would: each time there is an answer, an error of ours, or what
Python says of a wrong type; never another error, and never the end of the process."""

import types

import numpy as np
import pytest
import torch

import seriatim
from support_layers import SMALL, Tokens, filled


class Hostile(Exception):
    """What the objects below raise."""


def raising(*names):
    def fail(*_, **__):
        raise Hostile

    return type("Raising", (), {name: fail for name in names})()


class Dlpack:
    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return 1, 0


class Shrinking(list):
    def __iter__(self):
        yield 1
        self.clear()
        yield 2


zeros = np.zeros
OBJECTS = [
    None, True, -1, 2**70, 2**63 - 1, -2**63, float("nan"), float("inf"), 1e300, "", "\udc80", "nul\0", b"x", ..., int,
    object(), lambda: 0, seriatim, seriatim.Geometry, [], [[]], {}, (), (None, None), (1, 2), ("a", "b"), ["a"],
    Shrinking([1]), raising("__getattr__"), raising("__len__", "__iter__", "__getitem__"), raising("__index__"),
    [raising("__index__")], raising("__str__", "__repr__"), [raising("__float__")], raising("__eq__", "__hash__"),
    raising("__dlpack__", "__dlpack_device__"), Dlpack(None), Dlpack(3), Dlpack(object()),
    zeros(()), zeros(0, np.float32), zeros((0, 0), np.float32), zeros((0, 0, 0), np.float32),
    zeros((1,) * 5, np.float32), zeros((2, 3, 4), np.float32), zeros(2, np.int32), zeros(2, np.int64),
    zeros((3, 2), np.int32), zeros((2, 3), np.float16), (zeros((1, 2), np.int32), zeros(1, np.int32)),
    np.array(["a"]), np.array([None]), np.float32(1), np.datetime64("now"), memoryview(b"1234"), bytearray(8),
    torch.zeros(0), torch.zeros(0, 2**60), torch.zeros(2, 3), torch.zeros(2, dtype=torch.int32),
]


def calls(folder):
    geometry, tokens = seriatim.Geometry(**SMALL), Tokens(20)
    cache, user = filled(geometry, tokens)
    layer, at = user.layer(0), np.arange(3)
    rows = layer.plan(tokens.index_queries[:3], at)
    queries, index_queries = tokens.queries[:3], tokens.index_queries[:3]
    engine = seriatim.Engine(threads=1)
    path = str(folder / "cache")
    cache.save(path)

    def append(keys, values, index_keys, **more):
        new, sequence = filled(geometry, tokens)
        try:
            with new.begin() as step:
                step.append(sequence, 0, keys, values, index_keys, **more)
        except BaseException:
            assert len(sequence) == 20
            raise

    config = types.SimpleNamespace(
        indexer_n_heads=2, indexer_head_dim=8, indexer_budget=16, indexer_compress_ratio=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, rms_norm_eps=1e-6, rope_parameters={"rope_theta": 1e7})
    no_outputs = dict(out=None, lse=None, return_lse=False)
    return {
        "select": (seriatim.select, [zeros((2, 9), np.float32)],
                   dict(visible=[36, 36], group_tokens=4, budget_tokens=8, anchor=0, nan="refuse", out=None)),
        "attend": (seriatim.attend, [queries, tokens.keys, tokens.values, rows, at],
                   dict(anchor=0, scale=None, sinks=None, dtype=None, **no_outputs)),
        "pool_keys": (seriatim.pool_keys, [geometry, tokens.index_keys, None],
                      dict(first_position=0, coordinates=None, out=None)),
        "prepare_index_queries": (seriatim.prepare_index_queries, [geometry, index_queries, [0, 1, 2], None],
                                  dict(coordinates=None, out=None)),
        "score": (seriatim.score, [geometry, index_queries, tokens.index_keys[:4], None], {}),
        "Geometry": (seriatim.Geometry, [], dict(
            SMALL, value_dim=0, values_alias_keys=False, softmax_scale=None, rope_theta=1e7, inv_freq=None,
            rope_axes=None, norm_eps=1e-6, pooling="mean", relu=True, scale_at="after_sum", kv_dtype="f32",
            index_dtype="f32")),
        "from_config": (seriatim.Geometry.from_config, [config], {}),
        "row_width": (geometry.row_width, [20], {}),
        "__eq__": (geometry.__eq__, [geometry], {}),
        "__setstate__": (lambda state: seriatim.Geometry.__new__(seriatim.Geometry).__setstate__(state),
                         [geometry.__getstate__()], {}),
        "Cache": (seriatim.Cache, [geometry], dict(
            layers=1, capacity_tokens=64, capacity_bytes=0, reserve=False, page_tokens=0,
            index_only=False, engine=None)),
        "add": (lambda anchor: cache.add(anchor), [0], {}),
        "append": (append, [tokens.keys[:1], tokens.values[:1], tokens.index_keys[:1]],
                   dict(first_position=None, coordinates=None)),
        "truncate": (lambda count: filled(geometry, tokens)[1].truncate(count), [3], {}),
        "plan": (layer.plan, [index_queries, at], dict(head_weights=None, nan="refuse", engine=None, out=None)),
        "layer.attend": (layer.attend, [queries, at, rows], dict(sinks=None, dtype=None, engine=None, **no_outputs)),
        "layer.score": (layer.score, [index_queries[0], 3, None], {}),
        "read": (layer.read, [0, 2, None], {}),
        "save": (cache.save, [path, None], {}),
        "restore": (lambda *given: seriatim.Cache(geometry, capacity_tokens=4096).restore(*given), [path, "copy"], {}),
        "cache_file_info": (seriatim.cache_file_info, [path], {}),
        "verify_cache_file": (seriatim.verify_cache_file, [path], {}),
        "check": (seriatim.check, [zeros((2, 3), np.int32)], dict(
            visible=[3, 3], scores=None, group_tokens=1, budget_tokens=3, anchor=0, unit="token", rule="canonical",
            margin=0.0, findings=10)),
        "Engine": (seriatim.Engine, [], dict(device=None, threads=0, kernels=None)),
        "reserve": (lambda *given: seriatim.Engine().reserve(*given), [geometry, 64, 1, 1], {}),
        "engine.plan": (lambda *ask, **more: engine.plan([ask], **more), [layer, index_queries, at, None],
                        dict(nan="refuse", out=None)),
        "engine.attend": (lambda *ask, **more: engine.attend([ask[:4]], ask[4], **more),
                          [layer, queries, at, None, rows], dict(dtype=None, **no_outputs)),
        "borrow": (seriatim.borrow, [geometry, tokens.keys, tokens.values], dict(
            tokens=20, anchor=0, first_slot=0, block_table=None, panels=None, first_group=0, panels_max_abs=1.0,
            index=None)),
    }


@pytest.mark.parametrize("name", [
    "select", "attend", "pool_keys", "prepare_index_queries", "score", "Geometry", "from_config", "row_width", "__eq__",
    "__setstate__", "Cache", "add", "append", "truncate", "plan", "layer.attend", "layer.score", "read", "save",
    "restore", "cache_file_info", "verify_cache_file", "check", "Engine", "reserve",
    "engine.plan", "engine.attend", "borrow"])
def test_nothing_that_is_given_for_a_parameter_is_more_than_an_error(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a name that is taken makes a file here
    function, args, options = calls(tmp_path)[name]
    function(*args, **options)
    refused = 0
    for place in [*range(len(args)), *options]:
        for given in OBJECTS:
            changed, more = list(args), dict(options)
            (changed if isinstance(place, int) else more)[place] = given
            try:
                function(*changed, **more)
            except (seriatim.Error, TypeError) as error:
                refused += 1
                str(error).encode()
            except Hostile:
                refused += 1
            except ValueError as error:  # of a path
                assert "null byte" in str(error) and given == "nul\0", (place, error)
    assert refused > 20 * (len(args) + len(options)) or name == "__eq__"
