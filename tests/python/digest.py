"""Prints the kernels that ran and a digest of rows and outputs; scripts/wheel compares it between CPUs."""

import hashlib

import numpy as np

import seriatim

random = np.random.default_rng(7)
seen = hashlib.sha256()
for groups in (1, 40, 700):
    scores = random.integers(0, 50, (5, groups)).astype(np.float32)
    for array in seriatim.select(scores, visible=groups * 4, budget_tokens=64):
        seen.update(array.tobytes())
geometry = seriatim.Geometry(budget_tokens=64, query_heads=4, kv_heads=2, head_dim=16, index_heads=2, index_dim=16,
                             index_rotary_dim=8)
# Integers of few bits, so that NumPy's own conversions cannot differ between CPUs.
draw = lambda *shape: (random.integers(-8, 9, shape) / 8).astype(np.float32)
cache = seriatim.Cache(geometry, capacity_tokens=1024)
user = cache.add()
with cache.begin() as step:
    step.append(user, 0, draw(333, 2, 16), draw(333, 2, 16), draw(333, 16))
rows = user.layer(0).plan(draw(333, 2, 16), np.arange(333))
output, lse = user.layer(0).attend(draw(333, 4, 16), np.arange(333), rows, return_lse=True)
for array in (*rows, output, lse):
    seen.update(array.tobytes())
print(seriatim.default_engine().kernels, seen.hexdigest())
