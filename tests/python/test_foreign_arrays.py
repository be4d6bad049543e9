"""What other software hands over as an array: tensors without memory, bits that say otherwise than the memory, wrappers
whose meaning would be dropped, odd strides. Each way in takes it as it is meant, or refuses it by argument before
anything changes."""

import array
import warnings

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import seriatim
from seriatim._core import check_finite
from support_layers import SMALL, Tokens, filled

ROWS = (np.arange(12, dtype=np.int32)[None], np.array([12], np.int32))


def attend(queries=None, keys=None, values=None, **more):
    torch.manual_seed(0)
    given = [torch.randn(1, 2, 8), torch.randn(12, 1, 8), torch.randn(12, 1, 8)]
    return seriatim.attend(*(one if other is None else other for one, other in zip(given, (queries, keys, values))),
                           ROWS, **more)


def freed(*shape):
    """As FSDP leaves a tensor: its extents without its storage."""
    tensor = torch.randn(*shape)
    tensor.untyped_storage().resize_(0)
    return tensor


def cut(*shape):
    tensor = torch.randn(*shape)
    tensor.untyped_storage().resize_(tensor.untyped_storage().nbytes() - 4)
    return tensor


def fake(*shape):
    with FakeTensorMode():
        return torch.empty(*shape)


def negated(*shape):
    return torch._neg_view(torch.randn(*shape))


def of_subclass(*shape):
    return torch.randn(*shape).as_subclass(type("Metres", (torch.Tensor,), {}))


TENSORS = {
    "freed": (freed, "no memory"),
    "cut": (cut, "no memory"),
    "fake": (fake, "FakeTensor"),
    "zero": (lambda *shape: torch._efficientzerotensor(shape), "no memory"),
    "meta": (lambda *shape: torch.empty(*shape, device="meta"), "memory of a device"),
    "negative bit": (negated, "negative bit"),
    "subclass": (of_subclass, "Metres, whose meaning"),
    "masked": (lambda *shape: torch.masked.masked_tensor(torch.ones(*shape), torch.ones(*shape) > 0),
               "MaskedTensor, whose meaning"),
    "sparse": (lambda *shape: torch.randn(*shape).to_sparse(), "sparse_coo"),
    "mkldnn": (lambda *shape: torch.randn(*shape).to_mkldnn(), "mkldnn"),
    "nested": (lambda *shape: torch.nested.nested_tensor([torch.randn(shape[1:])] * shape[0]), "nested"),
    "jagged": (lambda *shape: torch.nested.nested_tensor([torch.randn(shape[1:])] * shape[0], layout=torch.jagged),
               "NestedTensor"),
    "quantized": (lambda *shape: torch.quantize_per_tensor(torch.randn(*shape), 0.1, 0, torch.quint8), "dtype"),
    "complex": (lambda *shape: torch.randn(*shape, dtype=torch.complex64).conj(), "dtype"),
    "double": (lambda *shape: torch.randn(*shape, dtype=torch.float64), "dtype"),
    "gradient": (lambda *shape: torch.randn(*shape, requires_grad=True), "detach"),
}
kinds = pytest.mark.parametrize("kind", TENSORS)


def refused(argument, kind, call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls nested and masked tensors prototypes
        with pytest.raises(seriatim.InvalidArgument, match=TENSORS[kind][1]) as caught:
            call(TENSORS[kind][0])
    assert caught.value.argument == argument and ": " in str(caught.value)


@kinds
def test_a_tensor_that_is_not_what_its_memory_says_is_refused_by_every_function(kind):
    geometry = seriatim.Geometry(**SMALL)
    refused("scores", kind, lambda make: seriatim.select(make(3, 40), group_tokens=2, budget_tokens=8))
    refused("queries", kind, lambda make: attend(make(1, 2, 8)))
    refused("keys", kind, lambda make: attend(keys=make(12, 1, 8)))
    refused("values", kind, lambda make: attend(values=make(12, 1, 8)))
    refused("out", kind, lambda make: attend(out=make(1, 2, 8)))
    refused("lse", kind, lambda make: attend(lse=make(1, 2)))
    refused("raw", kind, lambda make: seriatim.pool_keys(geometry, make(8, 8)))
    refused("queries", kind, lambda make: seriatim.score(geometry, make(2, 2, 8), torch.randn(3, 8)))
    refused("pooled_keys", kind, lambda make: seriatim.score(geometry, torch.randn(2, 2, 8), make(3, 8)))
    # sinks are copied, without their gradient; one axis cannot be nested
    if kind not in ("gradient", "nested", "jagged"):
        refused("sinks", kind, lambda make: attend(sinks=make(2)))


@kinds
def test_such_a_tensor_is_refused_by_caches_and_leaves_them_as_they_were(kind, geometry, tokens):
    cache, user = filled(geometry, tokens)
    new = Tokens(5, seed=3)
    parts = {"keys": torch.from_numpy(new.keys), "values": torch.from_numpy(new.values),
             "index_keys": torch.from_numpy(new.index_keys)}
    for name, part in parts.items():
        def append(make):
            with cache.begin() as step:
                step.append(user, 0, **{**parts, name: make(*part.shape)})

        refused(name, kind, append)
    assert len(user) == 75
    layer = user.layer(0)
    refused("queries", kind, lambda make: layer.plan(make(5, 2, 8), np.arange(70, 75)))
    rows = layer.plan(tokens.index_queries[:5], np.arange(5))
    refused("queries", kind, lambda make: layer.attend(make(5, 4, 8), np.arange(5), rows))
    refused("out", kind, lambda make: layer.attend(tokens.queries[:5], np.arange(5), rows, out=make(5, 4, 8)))


@pytest.mark.parametrize("kind",
                         [kind for kind in TENSORS if kind != "gradient"])
def test_such_a_tensor_is_refused_by_the_layers_of_transformers(kind):
    options = dict(SMALL, group_tokens=1, index_rotary_dim=0, pooling="none", kv_dtype="f32", index_dtype="f32")
    from seriatim.transformers._backend import BatchLayer

    native = BatchLayer(options, [], seriatim.Engine(threads=1))
    torch.manual_seed(0)
    good = dict(queries=torch.randn(1, 2, 4, 8), keys=torch.randn(1, 2, 9, 8), output=torch.empty(1, 2, 4, 8),
                values=torch.randn(1, 2, 9, 8),
                rows=torch.arange(2, dtype=torch.int32).reshape(1, 2, 1).contiguous())
    native.attend_rows([0], [9], **good)
    for name in ("queries", "keys", "output", "values"):
        refused("out" if name == "output" else name, kind,
                lambda make: native.attend_rows([0], [9], **{**good, name: make(*good[name].shape)}))
    refused("keys", kind, lambda make: check_finite("keys", make(2, 3)))


def test_wrapped_tensors_of_function_transforms_are_refused():
    inside = lambda scores: seriatim.select(scores, group_tokens=2, budget_tokens=8).counts.sum().float()
    with pytest.raises(seriatim.InvalidArgument, match="scores: has no memory of its own, as within vmap or grad"):
        torch.vmap(inside)(torch.randn(2, 3, 40))
    with pytest.raises(seriatim.InvalidArgument, match="scores: "):
        torch.func.grad(inside)(torch.randn(3, 40))
    with pytest.raises(seriatim.InvalidArgument, match="scores: "):
        torch.func.functionalize(inside)(torch.randn(3, 40))


def test_tracers_that_would_keep_a_result_as_a_constant_are_refused():
    scores = torch.randn(3, 40)
    inside = lambda given: seriatim.select(given, budget_tokens=8).positions * 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(seriatim.InvalidArgument, match="scores: torch.jit.trace and make_fx"):
            torch.jit.trace(inside, scores)
    with pytest.raises(seriatim.InvalidArgument, match="scores: torch.jit.trace and make_fx"):
        make_fx(inside)(scores)
    with FlopCounterMode(display=False):  # one that only looks on
        watched = inside(scores)
    assert torch.equal(watched, inside(scores))


def test_a_tensor_that_carries_a_tangent_is_refused():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.randn(12, 1, 8), torch.ones(12, 1, 8))
        with pytest.raises(seriatim.InvalidArgument, match="keys: a tensor that carries a tangent"):
            attend(keys=dual)
        assert torch.equal(attend(keys=dual.detach()), attend(keys=forward_ad.unpack_dual(dual).primal))


def test_a_parameter_without_a_gradient_and_a_resolved_sign_are_taken():
    scores = torch.randn(3, 40)
    row = lambda given: seriatim.select(given, group_tokens=1, budget_tokens=4).positions.tolist()
    assert row(torch.nn.Parameter(scores, requires_grad=False)) == row(scores)
    assert row(torch._neg_view(-scores).resolve_neg()) == row(scores)
    sinks = torch.nn.Parameter(torch.randn(2))
    assert torch.equal(attend(sinks=sinks), attend(sinks=sinks.tolist()))


def test_results_of_tensors_are_on_the_cpu_whatever_the_defaults_are():
    scores = torch.randn(3, 40)
    wanted = seriatim.select(scores, budget_tokens=8)
    with torch.device("meta"):
        rows = seriatim.select(scores, budget_tokens=8)
    assert rows.positions.device.type == "cpu" and torch.equal(rows.positions, wanted.positions)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    try:
        rows, output = seriatim.select(scores, budget_tokens=8), attend(*(torch.ones(s, dtype=torch.float32)
                                                                          for s in ((1, 2, 8), (12, 1, 8), (12, 1, 8))))
    finally:
        torch.set_default_dtype(before)
        torch.use_deterministic_algorithms(False)
    assert torch.equal(rows.positions, wanted.positions) and output.dtype == torch.float32 and bool((output == 1).all())
    with FakeTensorMode(), pytest.raises(seriatim.InvalidArgument, match="out: a FakeTensor"):
        seriatim.select(scores, budget_tokens=8)
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        assert torch.equal(attend(), attend()) and attend().dtype == torch.float32


def test_a_function_under_torch_compile_gives_what_it_gives_without():
    scores = torch.randn(3, 40)
    rows = torch.compile(lambda given: seriatim.select(given * 1.0, budget_tokens=8).positions, backend="eager")(scores)
    assert torch.equal(rows, seriatim.select(scores, budget_tokens=8).positions)


def test_autograd_is_told_of_an_output_that_it_saved():
    weight, out = torch.ones(1, 2, 8, requires_grad=True), torch.zeros(1, 2, 8)
    graph = (weight * out).sum()
    attend(out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        graph.backward()
    with torch.inference_mode():
        inside = torch.zeros(1, 2, 8)
    assert torch.equal(attend(out=inside), out)


class Quantity(np.ndarray):
    """An array with a unit, as astropy and unyt make them."""


class Wrapped:
    """An array within another object, as pint makes it: what it has not, its magnitude answers."""

    def __init__(self, magnitude):
        self.magnitude = magnitude

    def __getattr__(self, name):
        return getattr(self.__dict__["magnitude"], name)


SCORES = np.array([[9, 8, 7, 1, 2, 3, 4, 5]], np.float32)


@pytest.mark.parametrize("given, name", [
    (np.ma.masked_array(SCORES, SCORES > 6), "MaskedArray"), (np.ma.masked_array(SCORES), "MaskedArray"),
    (SCORES.view(Quantity), "Quantity"), (Wrapped(SCORES), "Wrapped"), (pd.DataFrame(SCORES), "DataFrame"),
    (pd.Series(SCORES[0]), "Series"), (pd.array([1.0, None], dtype="Float32"), "FloatingArray"),
    (SCORES.astype(object), "object"),
    (SCORES.astype(np.longdouble), "longdouble|float128"), (SCORES > 1, "dtype"), (SCORES.astype(">f4"), "byte order"),
    (SCORES.astype(np.float64), "dtype"), (np.zeros(2, [("score", np.float32)]).view(np.recarray), "shared"),
    (np.float32(3), "axes|shared|needed"), ("scores", "str"), ({0: 1.0}, "dict"), (object(), "object"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_an_array_that_means_more_or_else_than_its_elements_is_refused_by_name(given, name):
    with pytest.raises(seriatim.InvalidArgument, match=name) as caught:
        seriatim.select(given, group_tokens=1, budget_tokens=2)
    assert caught.value.argument == "scores"


def test_a_masked_output_is_refused_and_left_alone():
    out = np.ma.masked_array(np.full((1, 2, 8), 7, np.float32), mask=True)
    with pytest.raises(seriatim.InvalidArgument, match="MaskedArray"):
        attend(np.ones((1, 2, 8), np.float32), np.ones((12, 1, 8), np.float32), np.ones((12, 1, 8), np.float32),
               out=out)
    assert (out.data == 7).all() and out.mask.all()


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_subclasses_of_numpy_that_add_no_meaning_are_taken(tmp_path):
    wanted = seriatim.select(SCORES, group_tokens=1, budget_tokens=2).positions.tolist()
    (tmp_path / "scores").write_bytes(SCORES.tobytes())
    for given in (np.memmap(tmp_path / "scores", np.float32, "r", shape=SCORES.shape), SCORES.view(np.recarray),
                  np.asmatrix(SCORES)):
        assert seriatim.select(given, group_tokens=1, budget_tokens=2).positions.tolist() == wanted
    with pytest.raises(seriatim.InvalidArgument, match="read-only"):
        attend(*(np.ones(s, np.float32) for s in ((1, 2, 8), (12, 1, 8), (12, 1, 8))),
               out=np.memmap(tmp_path / "scores", np.float32, "r", shape=(1, 1, 8)))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_an_axis_of_one_element_may_have_any_stride(dtype):
    keys, ones = np.ones((12, 1, 8), dtype), np.ones((1, 2, 8), dtype)
    wanted = seriatim.attend(ones, keys, keys, ROWS).tobytes()
    for queries in (ones[::-1], np.ascontiguousarray(ones[::-1]),
                    np.lib.stride_tricks.as_strided(ones, strides=(2**62, *ones.strides[1:])),
                    np.lib.stride_tricks.as_strided(ones, strides=(3, *ones.strides[1:]))):
        assert seriatim.attend(queries, keys, keys, ROWS).tobytes() == wanted
    assert seriatim.attend(ones, keys[:, ::-1], keys[:, ::-1], ROWS).tobytes() == wanted
    with pytest.raises(seriatim.InvalidArgument, match="negative stride|multiple of an element"):
        seriatim.attend(ones[:, ::-1], keys, keys, ROWS)


def test_a_torch_axis_of_one_element_may_have_any_stride():
    queries = torch.ones(1, 2, 8)
    wanted = attend(queries)
    assert torch.equal(attend(queries.as_strided((1, 2, 8), (2**61, 8, 1))), wanted)
    assert torch.equal(attend(torch.ones(5, 2, 8)[2:3]), wanted)


@pytest.mark.parametrize("given", [
    np.array([2.0], np.float32), np.float32(8.5), 8.5, [8, 7.5], ["8"], pd.DataFrame({0: [40], 1: [40]}),
    pd.Series([8]), torch.tensor(8.0),
    np.ma.masked_array([8], [True]), [np.ma.masked], {8: 1}, np.array([True]), 2**63, [2**63], [None],
    pd.array([1, None], dtype="Int64"), np.array([2**63], np.uint64),
], ids=repr)
def test_positions_that_are_no_64_bit_integers_are_refused(given):
    with pytest.raises(seriatim.InvalidArgument) as caught:
        seriatim.select(SCORES, visible=given, group_tokens=1, budget_tokens=2)
    assert caught.value.argument == "visible"


def test_positions_in_any_common_form_are_taken():
    row = lambda visible: seriatim.select(SCORES, visible=visible, group_tokens=1, budget_tokens=2).positions.tolist()
    for given in (8, np.int32(8), [8], (np.int64(8),), range(8, 9), np.array([8]), np.array([8], np.int32), np.array(8),
                  torch.tensor([8]),
                  torch.tensor(8), [torch.tensor(8)], array.array("l", [8])):
        assert row(given) == [[0, 1]]


@pytest.mark.parametrize("given", [["1.5", "2"], [1 + 2j, 0], [None, None], np.ones(2),
                                   torch.ones(2, dtype=torch.float64), [float("nan"), 0.0],
                                   [1e300, 0.0]], ids=repr)
@pytest.mark.parametrize("mode", ["ignore", "raise"])
def test_sinks_that_are_no_finite_numbers_are_refused_whatever_numpys_error_mode_is(given, mode):
    with np.errstate(all=mode), pytest.raises(seriatim.Error) as caught:
        attend(sinks=given)
    assert caught.value.argument == "sinks"


def overlapping():
    memory, keys, values = np.zeros(4096, np.float32), np.ones((12, 1, 8), np.float32), np.ones((12, 1, 8), np.float32)
    counts = memory[60:64].view(np.int32)
    counts[:] = 1
    rows, whole = np.zeros((4, 1), np.int32), np.zeros(60, np.int32)

    def attend_in(at, counts=np.ones(4, np.int32), **outputs):
        return lambda: seriatim.attend(memory[at : at + 64].reshape(4, 2, 8), keys, values, (rows, counts),
                                       np.arange(4), **outputs)

    return [
        ("out", "queries", attend_in(0, out=memory[32:96].reshape(4, 2, 8))),
        ("out", "lse", attend_in(1000, out=memory[128:192].reshape(4, 2, 8), lse=memory[190:198].reshape(4, 2))),
        ("lse", "values", attend_in(1000, lse=values[:1].reshape(4, 2))),
        ("out", "rows", attend_in(1000, counts, out=memory[:64].reshape(4, 2, 8))),
        ("out", "out's counts", lambda: seriatim.select(np.ones((4, 9), np.float32), group_tokens=1, budget_tokens=9,
                                                        out=(whole[:36].reshape(4, 9), whole[35:39]))),
        ("out", "raw", lambda: seriatim.pool_keys(seriatim.Geometry(**SMALL), memory[:128].reshape(16, 8),
                                                  out=memory[100:132].reshape(4, 8))),
    ]


@pytest.mark.parametrize("argument, other, call", overlapping(),
                         ids=lambda value: value if isinstance(value, str) else "")
def test_outputs_that_share_memory_with_what_is_used_are_refused(argument, other, call):
    with pytest.raises(seriatim.InvalidArgument, match=f"shares memory with {other}") as caught:
        call()
    assert caught.value.argument == argument


def test_views_that_interleave_share_no_memory():
    """As queries and output do in one buffer of a fused projection."""
    buffer = np.random.default_rng(0).standard_normal((4, 2, 16)).astype(np.float32)
    keys = np.random.default_rng(1).standard_normal((12, 1, 8)).astype(np.float32)
    rows = np.arange(12, dtype=np.int32)[None].repeat(4, 0), np.full(4, 12, np.int32)
    queries, out = buffer[..., :8], buffer[..., 8:]
    wanted = seriatim.attend(queries.copy(), keys, keys, rows, [11] * 4)
    seriatim.attend(queries, keys, keys, rows, [11] * 4, out=out)
    assert out.tobytes() == wanted.tobytes()
    with pytest.raises(seriatim.InvalidArgument, match="shares memory"):
        seriatim.attend(queries, keys, keys, rows, [11] * 4, out=buffer[..., 7:15])
