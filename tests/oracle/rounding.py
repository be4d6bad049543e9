"""The roundings that the contract names, exact and vectorised, on NumPy arrays of f32."""

import numpy as np


def to_bf16(x):
    """f32 values rounded to the nearest bf16, ties to even, still held as f32."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    # Adding to the payload of a NaN could carry it into infinity or zero.
    return np.where(np.isnan(x), np.float32(np.nan), rounded.view(np.float32))


def to_f16(x):
    """f32 values rounded to the nearest f16, ties to even, still held as f32."""
    with np.errstate(over="ignore"):
        return np.asarray(x, np.float32).astype(np.float16).astype(np.float32)


def to_f32(x):
    return np.asarray(x).astype(np.float32)


ROUND_TO = {"F32": to_f32, "BF16": to_bf16, "F16": to_f16}


def fma32(a, b, c):
    """a * b + c of f32 values, rounded once to f32.

    The product of two f32 is exact in f64. The sum is made with round-to-odd: the f64 sum is nudged off an even last
    bit whenever it is inexact. 53 bits are at least 24 + 2, so the second rounding, to f32, is the only one that shows.
    """
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    addend = np.asarray(c, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        total = product + addend
        virtual = total - product
        error = (product - (total - virtual)) + (addend - virtual)
        bits = total.view(np.int64)
        inexact = np.isfinite(total) & (error != 0) & ((bits & 1) == 0)
        away = (error > 0) == (total > 0)
        odd = (bits + np.where(inexact, np.where(away, 1, -1), 0)).view(np.float64)
        return odd.astype(np.float32)


def dot32(x, y):
    """Canonical dot product over the last axis: a chain of fma32 from +0, index ascending."""
    total = np.zeros(np.broadcast_shapes(x.shape[:-1], y.shape[:-1]), np.float32)
    for i in range(x.shape[-1]):
        total = fma32(x[..., i], y[..., i], total)
    return total
