"""The rule, step by step: top-k chooses the set; time chooses the order. Lines that begin with #> are what it
prints."""

import numpy as np

import seriatim

# Eighteen tokens stand at positions 0..17. Every four form a group, so there are four groups and a raw tail of two. An
# indexer has scored the groups; groups 1 and 3 tie.
scores = np.array([0.1, 0.9, 0.5, 0.9], np.float32)


def show(rows: seriatim.Rows[np.ndarray]) -> None:
    print(rows.positions[0, : rows.counts[0]].tolist())


# A budget of 8 tokens is two groups. The two best are 1 and 3. The row has them in time order, then the tail, which is
# always attended and never scored.
show(seriatim.select(scores, visible=18, budget_tokens=8))
#> [4, 5, 6, 7, 12, 13, 14, 15, 16, 17]

# A budget of one group: the tie goes to the earlier group, whatever machine, thread or batch this runs in.
show(seriatim.select(scores, visible=18, budget_tokens=4))
#> [4, 5, 6, 7, 16, 17]

# The order in which top-k finds groups never shows. Scores turned around choose other groups, again in time order.
show(seriatim.select(scores[::-1].copy(), visible=18, budget_tokens=8))
#> [0, 1, 2, 3, 8, 9, 10, 11, 16, 17]

# While all that is visible fits the budget and a tail, the row is the dense causal row, whatever the scores are.
show(seriatim.select(np.array([-np.inf, 3], np.float32), visible=11, budget_tokens=8))
#> [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]

# The first row that drops anything holds one group more than the budget. It is narrower than the last dense one.
show(seriatim.select(np.array([2, -np.inf, 3], np.float32), visible=12, budget_tokens=8))
#> [0, 1, 2, 3, 8, 9, 10, 11]

# Left padding or an evicted prefix only moves the anchor; groups count from there.
show(seriatim.select(scores, visible=18, budget_tokens=4, anchor=100))
#> [104, 105, 106, 107, 116, 117]

# A NaN score is refused by name, or its group is left out if asked.
try:
    seriatim.select(np.array([1, np.nan], np.float32))
except seriatim.NotANumber as error:
    print(f"{error.argument}, row {error.row}, index {error.index}")
#> scores, row 0, index 1
show(seriatim.select(np.array([1, np.nan], np.float32), visible=9, nan="exclude"))
#> [0, 1, 2, 3, 8]

# Now a whole layer: tokens go into a cache, a query plans its row and attends over it. The budget is 16 of 200 tokens.
geometry = seriatim.Geometry(budget_tokens=16, query_heads=2, kv_heads=1, head_dim=8, index_heads=2, index_dim=8,
                             index_rotary_dim=8)
random = np.random.default_rng(0)
keys, values, index_keys = (random.standard_normal((200, 8)).astype(np.float32) for _ in range(3))
index_queries, queries = (random.standard_normal((200, 2, 8)).astype(np.float32) for _ in range(2))

cache = seriatim.Cache(geometry, capacity_tokens=1024)
prefill = cache.add()
with cache.begin() as step:
    step.append(prefill, 0, keys[:, None], values[:, None], index_keys)
layer = prefill.layer(0)
rows = layer.plan(index_queries, np.arange(200))
whole = layer.attend(queries, np.arange(200), rows)
print(rows.counts[[5, 18, 19, 20, 199]].tolist())
#> [6, 19, 16, 17, 16]

# Decoding the same tokens one by one gives the same bits.
decode = cache.add()
same = []
for t in range(200):
    with cache.begin() as step:
        step.append(decode, 0, keys[t : t + 1, None], values[t : t + 1, None], index_keys[t : t + 1])
        staged = step.layer(decode)
        row = staged.plan(index_queries[t : t + 1], [t])
        same.append(staged.attend(queries[t : t + 1], [t], row).tobytes() == whole[t].tobytes())
print(all(same), len(same))
#> True 200
print(seriatim.default_engine().done.queries > 0)
#> True
