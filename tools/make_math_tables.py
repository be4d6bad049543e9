#!/usr/bin/env python3
"""Makes what the numerics of src/base are held against, from MPFR, and the coefficients that they use.

    tools/make_math_tables.py tables          write tests/tables/*_table.hpp anew (a minute)
    tools/make_math_tables.py check           make them in memory and compare with the committed ones
    tools/make_math_tables.py coefficients    print the constants of exp.hpp, log.hpp, sincos.hpp and inv_freq.hpp

Needs `pip install gmpy2==2.2.1` (MPFR); building and testing Seriatim needs none of it. Long runs of results are kept
as one hash per chunk; the tests make the same angles and hash their own results.
"""
import argparse
import pathlib
import struct
import sys

import gmpy2
from gmpy2 import mpfr

TABLES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "tables"
F32 = gmpy2.context(precision=24, emin=-148, emax=128, subnormalize=True)
FINE = gmpy2.context(precision=300)
MASK64 = (1 << 64) - 1


def bits_of(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def float_of(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def to_f32(value):
    """Rounds an mpfr once to f32."""
    with F32:
        return float(gmpy2.mpfr(value))


def sincos_bits(angle):
    """Bits of the correctly rounded sine and cosine of an f32 angle."""
    with F32:
        exact = mpfr(angle)
        return bits_of(float(gmpy2.sin(exact))), bits_of(float(gmpy2.cos(exact)))


class Fnv:
    """FNV-1a over 32-bit words."""

    def __init__(self):
        self.state = 0xCBF29CE484222325

    def add(self, word):
        self.state = ((self.state ^ word) * 0x100000001B3) & MASK64


def hash_of(angles):
    fnv = Fnv()
    for angle in angles:
        for word in sincos_bits(angle):
            fnv.add(word)
    return fnv.state


def splitmix64(state):
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def sampled_angle(index):
    """Any sign and significand, 2^-20 <= |angle| < 2^32: what positions times inverse frequencies reach."""
    word = splitmix64((index + 1) * 0x9E3779B97F4A7C15 & MASK64)
    biased = 107 + ((word >> 32) & 0xFFFF) % 52
    return float_of((word & 0x807FFFFF) | (biased << 23))


def header(name, what, body):
    return f"""// {what}
//
// Made by tools/make_math_tables.py; not to be edited.
#pragma once

#include <array>
#include <cstdint>

namespace seriatim::{name} {{

{body}
}}  // namespace seriatim::{name}
"""


def array(kind, name, items, per_line):
    lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
    return f"inline constexpr std::array<{kind}, {len(items)}> {name}{{{{\n    " + ",\n    ".join(lines) + "}};\n"


def sincos_table():
    chunk = 1024
    integers = [hash_of(float(i) for i in range(c * chunk, (c + 1) * chunk)) for c in range(1024)]
    sampled = [hash_of(sampled_angle(i) for i in range(c * chunk, (c + 1) * chunk)) for c in range(256)]
    hard = []
    for line in (TABLES / "hard_angles.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            bits = int(line, 16)
            hard.append("{0x%08xu, 0x%08xu, 0x%08xu}" % (bits, *sincos_bits(float_of(bits))))
    body = f"inline constexpr std::uint32_t kChunk = {chunk};\n"
    body += "// One hash per 1024 angles: 0, 1, 2, ... 2^20 - 1.\n"
    body += array("std::uint64_t", "kIntegerAngles", [f"0x{h:016x}u" for h in integers], 5)
    body += "// One hash per 1024 angles of the seeded sample.\n"
    body += array("std::uint64_t", "kSampledAngles", [f"0x{h:016x}u" for h in sampled], 5)
    body += "struct Case {\n  std::uint32_t angle;\n  std::uint32_t sin;\n  std::uint32_t cos;\n};\n"
    body += "// The angles of hard_angles.txt.\n"
    body += array("Case", "kHardAngles", hard, 2)
    return header("sincos_table", "Correctly rounded sines and cosines of f32 angles, as bits.", body)


def inv_freq_bits(theta, pair, rotary_dim):
    """For a theta that f32 holds exactly; every step is one correctly rounded f32 operation."""
    with F32:
        power = mpfr(theta) ** (mpfr(2 * pair) / mpfr(rotary_dim))
        return bits_of(float(1 / power))


def inv_freq_table():
    cases = []
    for theta in (10_000, 500_000, 1_000_000, 10_000_000):
        for rotary_dim in (8, 16, 24, 32, 48, 64, 96, 128):
            for pair in range(rotary_dim // 2):
                bits = inv_freq_bits(theta, pair, rotary_dim)
                cases.append("{%d, %d, %d, 0x%08xu}" % (theta, pair, rotary_dim, bits))
    body = "struct Case {\n  int theta;\n  int pair;\n  int rotary_dim;\n  std::uint32_t inv_freq;\n};\n"
    body += array("Case", "kInvFreq", cases, 3)
    return header("inv_freq_table", "1 / f32(theta^f32(2 pair / rotary_dim)) in f32, as bits.", body)


def solve(rows, right):
    """Gauss with pivoting, over mpfr."""
    n = len(rows)
    a = [list(row) + [b] for row, b in zip(rows, right)]
    for column in range(n):
        pivot = max(range(column, n), key=lambda i: abs(a[i][column]))
        a[column], a[pivot] = a[pivot], a[column]
        for i in range(column + 1, n):
            factor = a[i][column] / a[column][column]
            a[i] = [x - factor * y for x, y in zip(a[i], a[column])]
    solution = [mpfr(0)] * n
    for i in reversed(range(n)):
        rest = sum((a[i][j] * solution[j] for j in range(i + 1, n)), mpfr(0))
        solution[i] = (a[i][n] - rest) / a[i][i]
    return solution


def horner(coefficients, x):
    value = mpfr(0)
    for c in reversed(coefficients):
        value = value * x + c
    return value


def minimax(function, weight, low, high, degree):
    """Remez: the polynomial whose largest weighted error over [low, high] is smallest, and that error."""
    count = degree + 2
    middle, radius = (low + high) / 2, (high - low) / 2
    grid = [middle - radius * gmpy2.cos(gmpy2.const_pi() * i / 4000) for i in range(4001)]
    known = [(x, function(x), weight(x)) for x in grid]
    # The offset keeps a node off 0, where the weight vanishes.
    nodes = [middle - radius * gmpy2.cos(gmpy2.const_pi() * i / (count - 1)) + mpfr("1e-3") for i in range(count)]
    for _ in range(12):
        rows = [[x**j for j in range(degree + 1)] + [(-1) ** i / weight(x)] for i, x in enumerate(nodes)]
        coefficients = solve(rows, [function(x) for x in nodes])[:-1]
        errors = [(horner(coefficients, x) - value) * w for x, value, w in known]
        peaks = [0]
        for i in range(1, len(errors)):
            if (errors[i] > 0) != (errors[peaks[-1]] > 0):
                peaks.append(i)
            elif abs(errors[i]) > abs(errors[peaks[-1]]):
                peaks[-1] = i
        while len(peaks) > count:
            peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
        if len(peaks) < count:
            raise RuntimeError("the error has too few peaks")
        nodes = [grid[i] for i in peaks]
    return coefficients, max(abs(e) for e in errors)


def f32_hex(value):
    return float(to_f32(value)).hex()


def two_double(value):
    high = float(value)
    return f"{{{high.hex()}, {float(value - mpfr(high)).hex()}}}"


def print_coefficients():
    with FINE:
        ln2 = gmpy2.log(mpfr(2))
        tiny = mpfr("1e-9")

        def exp_core(r):
            return (gmpy2.exp(r) - 1 - r) / r**2 if abs(r) > tiny else mpfr(1) / 2 + r / 6

        def log_core(f):
            return (gmpy2.log1p(f) - f + f * f / 2) / f**3 if abs(f) > tiny else mpfr(1) / 3 - f / 4

        half = ln2 / 2 * mpfr("1.0001")
        exp, error = minimax(exp_core, lambda r: r * r * gmpy2.exp(-r), -half, half, 4)
        print("exp", [f32_hex(c) for c in exp], "relative error 2^%.1f" % float(gmpy2.log2(error)))
        low, high = gmpy2.sqrt(mpfr(1) / 2) - 1 - mpfr("1e-4"), gmpy2.sqrt(mpfr(2)) - 1 + mpfr("1e-4")
        weight = lambda f: abs(f**3 / gmpy2.log1p(f)) if abs(f) > tiny else f * f  # noqa: E731
        log, error = minimax(log_core, weight, low, high, 7)
        print("log", [f32_hex(c) for c in log], "relative error 2^%.1f" % float(gmpy2.log2(error)))
        print("log2(e)", f32_hex(1 / ln2), "ln 2", f32_hex(ln2), f32_hex(ln2 - mpfr(to_f32(ln2))), two_double(ln2))
        print("pi/2", two_double(gmpy2.const_pi() / 2))
        digits = int(gmpy2.floor(2 / gmpy2.const_pi() * mpfr(2) ** 256))
        print("2/pi", ["0x%08x" % (digits >> (32 * (7 - i)) & 0xFFFFFFFF) for i in range(8)])
        for n in range(2, 20):
            print(f"1/{n}!", two_double(1 / mpfr(gmpy2.fac(n))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tables", "check", "coefficients"))
    what = parser.parse_args().what
    if what == "coefficients":
        print_coefficients()
        return 0
    differing = []
    for name, text in (("inv_freq_table.hpp", inv_freq_table()), ("sincos_table.hpp", sincos_table())):
        path = TABLES / name
        if what == "tables":
            path.write_text(text)
        elif path.read_text() != text:
            differing.append(name)
    for name in differing:
        print(f"{name} differs from what MPFR gives", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
