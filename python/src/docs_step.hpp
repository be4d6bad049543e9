// Docstrings of engines and of borrowed memory, as docs.hpp has the others.
#pragma once

namespace seriatim::python::docs {

inline constexpr const char* kEngine =
    R"(Where calls plan and attend, with the scratch that they need: on the host, or on a device.

Takes   device: a name of `devices()`, "opencl" or "cuda"; None: the host. threads: how many a call may use; 0: as many
        as the process may; 1: the caller's alone. kernels: one of `kernels()`; None: what SERIATIM_KERNELS names, else
        the fastest. All change speed alone, never bits
Errors  InvalidArgument; NotFound: kernels or a device of that name (the message lists what there is); Unsupported: a
        device that does not promise the arithmetic, or no driver; OutOfMemory
Threads any number may call at once; on a device they take turns

>>> engine = seriatim.Engine(threads=1)
>>> engine.threads, engine.device
(1, None)
)";

inline constexpr const char* kDefaultEngine =
    R"(The engine of all calls that name none: on the host, with as many threads as the process may use.

>>> seriatim.default_engine().done.queries >= 0
True
)";

inline constexpr const char* kEngineKernels =
    R"(The implementation that its calls use; None on a device.

Errors  NotFound: the environment names what is not available
)";

inline constexpr const char* kReserve =
    R"(Takes all scratch of calls of up to so many visible tokens, queries and asks over layers of this geometry.

Such a call takes no memory then; a larger one raises Capacity. Further calls of reserve add to it. One thread at a
time has as much; another that calls meanwhile takes its own.
Errors  InvalidArgument; Overflow; OutOfMemory

>>> engine = seriatim.Engine(threads=1)
>>> engine.reserve(seriatim.Geometry(budget_tokens=64), visible_tokens=4096, queries=8, asks=2)
>>> engine.bytes > 0
True
)";

inline constexpr const char* kEnginePlan = R"(Rows for the queries of many layers in one call, one after the other.

Takes   asks: (layer, queries, positions) or (layer, queries, positions, head_weights) each, as Layer.plan takes them;
        the layers' geometries are equal, and may be of snapshots, transactions or borrowed memory. nan, out: as
        Layer.plan
Gives   Rows of all queries in the order of the asks, each with the bits that it has alone
Errors  as Layer.plan; `error.ask` says which ask is at fault, `row` which of its queries

>>> geometry = seriatim.Geometry(budget_tokens=8, query_heads=1, kv_heads=1, head_dim=4,
...                              index_heads=1, index_dim=4, index_rotary_dim=0)
>>> tokens = np.random.default_rng(0).standard_normal((40, 1, 4)).astype(np.float32)
>>> cache = seriatim.Cache(geometry, capacity_tokens=1024)
>>> users = [cache.add(), cache.add()]
>>> with cache.begin() as step:
...     for user, n in zip(users, (40, 30)):
...         step.append(user, 0, tokens[:n], tokens[:n], tokens[:n, 0])
>>> engine = seriatim.Engine(threads=1)
>>> rows = engine.plan([(user.layer(0), tokens[:1], [user.tokens - 1]) for user in users])
>>> rows.counts.tolist()
[8, 10]
>>> engine.attend([(user.layer(0), tokens[:1], [user.tokens - 1]) for user in users], rows).shape
(2, 1, 4)
)";

inline constexpr const char* kEngineAttend = R"(Attends over the rows of many layers in one call, one after the other.

Takes   asks: (layer, queries, positions) or (layer, queries, positions, sinks) each, as Layer.attend takes them; rows
        of all of them; dtype, out, lse, return_lse: as Layer.attend
Gives   [all queries, query_heads, value_dim], and with return_lse or lse a pair with the log-sum-exp
Errors  as Layer.attend; `error.ask` says which ask is at fault, `row` which of its queries
)";

inline constexpr const char* kBorrow = R"(A layer over keys and values that the caller keeps; nothing is copied.

Takes   keys [T, kv_heads, head_dim] and values [T, kv_heads, value_dim] in kv_dtype, of any strides but that the last
        axis is dense: of arrays [kv_heads, T, dim] pass the transposed views. Or, with block_table [n] int32 or int64,
        pools of pages [pages, page_tokens, kv_heads, dim], of which the table names those that hold slots
        i * page_tokens and on. No values where they alias the keys; no keys: a layer that plans alone.
        tokens: how many there are (default: what keys or the index say), the first at position `anchor` and in slot
        `first_slot` of the keys.
        The index: panels [P, index_dim, 16] that the caller keeps (group g in lane g mod 16 of panel g / 16, from
        first_group on), with panels_max_abs as PanelPooler.pool gives it; or `index`, a Layer of the same tokens, as of
        a Cache(index_only=True). With neither it attends rows that another layer planned
Gives   a Layer, which keeps the arrays alive. It shows what they hold at each call; borrow anew when tokens have come
Errors  InvalidArgument, by argument: shapes, dtypes, strides, overlapping vectors, too few tokens or pages, a table
        that names a page twice or none (index = entry); Overflow

>>> geometry = seriatim.Geometry(budget_tokens=8, query_heads=1, kv_heads=1, head_dim=4,
...                              index_heads=1, index_dim=4, index_rotary_dim=0)
>>> pool = np.zeros((9, 16, 1, 4), np.float32)  # pages of 16 tokens, somebody's
>>> index = seriatim.Cache(geometry, capacity_tokens=256, index_only=True)
>>> user = index.add()
>>> with index.begin() as step:
...     step.append(user, 0, index_keys=np.ones((20, 4), np.float32))
>>> layer = seriatim.borrow(geometry, pool, pool, block_table=np.array([7, 2], np.int32), index=user.layer(0))
>>> rows = layer.plan(np.ones((1, 1, 4), np.float32), [19])
>>> layer.attend(np.ones((1, 1, 4), np.float32), [19], rows).tolist()
[[[0.0, 0.0, 0.0, 0.0]]]
)";

inline constexpr const char* kBorrowBatch =
    R"(Layers over a padded batch, as models keep it: slots first[b] .. last[b] - 1 of sequence b hold tokens.

Takes   keys [B, kv_heads, T, head_dim] and values [B, kv_heads, T, value_dim] in kv_dtype, the last axis dense; panels
        [B, P, index_dim, 16]. Positions are slots
Gives   one Layer per sequence, as borrow
Errors  as borrow; row = sequence
)";

inline constexpr const char* kPanelPooler =
    R"(Pools index keys of padded batches into panels that the caller keeps.

Takes   norm_weight [index_dim] or None for zeros
)";

inline constexpr const char* kPanelPool = R"(Pools the groups of each sequence from first_groups[b] on.

Takes   raw [B, T, index_dim] in index_dtype, dense per sequence; coordinates [3, B, T] int64, needed where the geometry
        names rope_axes; panels [B, P, index_dim, 16], dense per sequence, written
Gives   the largest magnitude of what was written
Errors  InvalidArgument; NotFinite: row = sequence, index = the first of up to 16 groups among which it is
)";

inline constexpr const char* kCheckArray =
    R"(Raises InvalidArgument, by that name, unless it is an array that calls can read, or write, where it lies.
)";

inline constexpr const char* kCheckFinite = R"(What a cache asks of tokens, for those who keep them themselves.

Errors  NotFinite: row = the place on the first axis, index = the element within it; InvalidArgument
)";

inline constexpr const char* kWorkDone = R"(What calls have done, for accounting.
)";

inline constexpr const char* kKernels =
    R"(Names of the implementations that this machine can run, fastest first. All give the same bits.

>>> seriatim.kernels()[-1]
'reference'
)";

}  // namespace seriatim::python::docs
