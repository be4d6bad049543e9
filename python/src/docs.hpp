// The docstrings that need more than a line: shapes, dtypes, errors, and an example that the tests run. `np` and
// `seriatim` are imported there.
#pragma once

namespace seriatim::python::docs {

inline constexpr const char* kSelect = R"(The rule: scores choose the set of groups, time chooses the order.

Takes   scores [G] or [Q, G] float32, the last axis dense; visible, the number of tokens each query may attend to (one
        for all or one each; default: G groups and no tail); anchor, the position of the first of them; tail, whether
        the newest, partial group is the "raw" tail of the row or a "group" like any other, with a score; forced_first
        and forced_newest, so many groups that are in the row whatever their scores, of the budget or beside it
        (forced_outside)
Gives   Rows(positions, counts): positions [Q, budget + group - 1] int32 ascending (Geometry.row_capacity), -1 past each
        count; counts [Q] int32
Errors  InvalidArgument; NotANumber: row and index of the first NaN, unless nan="exclude"

>>> rows = seriatim.select(np.array([0.1, 0.9, 0.5, 0.9], np.float32), visible=18, group_tokens=4, budget_tokens=8)
>>> rows.positions[0, : rows.counts[0]].tolist()  # groups 1 and 3, then the tail of 2
[4, 5, 6, 7, 12, 13, 14, 15, 16, 17]
>>> rows = seriatim.select(np.array([0.1, 0.9, 0.5], np.float32), visible=10, group_tokens=4, budget_tokens=8,
...                        tail="group", forced_newest=1)
>>> rows.positions[0, : rows.counts[0]].tolist()  # group 1, and group 2 as far as it goes
[4, 5, 6, 7, 8, 9]
)";

inline constexpr const char* kScore =
    R"(Scores of every group for each query, with pooling "unit_max" of every unit; of one selection.

Takes   queries [Q, index_heads / selections, index_dim] in index_dtype, finished; pooled_keys [G, index_dim] in
        index_dtype; head_weights [Q, index_heads] float32, signed, or None
Gives   [Q, G] float32: the sum over heads of relu(dot), scaled as the geometry says
Errors  InvalidArgument; OutOfMemory. Memory: a copy of pooled_keys in the library's layout

>>> geometry = seriatim.Geometry(index_heads=1, index_dim=4, index_rotary_dim=0)
>>> queries = np.ones((1, 1, 4), np.float32)
>>> seriatim.score(geometry, queries, np.array([[1, 1, 1, 1], [-1, 0, 0, 0]], np.float32)).tolist()
[[2.0, 0.0]]
)";

inline constexpr const char* kPoolKeys =
    R"(Pools every complete group of consecutive raw index keys: mean, RMS norm, rotation.

Takes   raw [T, index_dim] in index_dtype, of which the first opens a group; norm_weight [index_dim], the w of (1 + w),
        default zeros; first_position, where the first token stands; coordinates [T, 3] of M-RoPE where the geometry
        names rope_axes
Gives   [T // group_tokens, index_dim] in index_dtype
Errors  InvalidArgument; NotFinite: row = token, index = dim

>>> geometry = seriatim.Geometry(index_dim=2, index_rotary_dim=0)
>>> seriatim.pool_keys(geometry, np.ones((9, 2), np.float32)).shape
(2, 2)
)";

inline constexpr const char* kPrepare = R"(Norm and rotation for index queries that arrive raw.

Takes   raw [Q, index_heads, index_dim] in index_dtype; positions [Q]; norm_weight and coordinates as in pool_keys
Gives   the same shape and dtype
Errors  InvalidArgument; NotFinite

>>> geometry = seriatim.Geometry(index_heads=1, index_dim=2, index_rotary_dim=0)
>>> seriatim.prepare_index_queries(geometry, np.full((1, 1, 2), 3, np.float32), [7]).round(3).tolist()
[[[1.0, 1.0]]]
)";

inline constexpr const char* kAttend =
    R"(Attention of each query over its row of bare keys and values, reduced in row order.

Takes   queries [Q, query_heads, head_dim], keys [T, kv_heads, head_dim], values [T, kv_heads, value_dim], all of one
        dtype: float32, bfloat16 or float16; token t stands at position anchor + t. rows: a pair of positions and
        counts, strictly ascending. positions [Q]: where each query stands (default: the last token); it sees nothing
        later. scale: default 1 / sqrt(head_dim). sinks [query_heads]: one more logit per head.
        Keys and values whose tokens are dense per head (a transposed [kv_heads, T, dim]) are read in place; of others
        one copy is made.
Gives   [Q, query_heads, value_dim] in the queries' dtype, or `dtype`, or written to `out`; with return_lse, or `lse` to
        write to, a pair with the log-sum-exp [Q, query_heads] float32
Errors  InvalidArgument; NotChronological; NotFinite: a query or a sink; Overflow: a logit passed float32 or an output
        its dtype (with `out` given, only the affected heads are NaN there)

>>> keys = np.zeros((6, 1, 4), np.float32)
>>> values = np.arange(6, dtype=np.float32).reshape(6, 1, 1)
>>> rows = (np.array([[1, 3, 5]], np.int32), np.array([3], np.int32))
>>> seriatim.attend(np.ones((1, 1, 4), np.float32), keys, values, rows).item()  # the mean of values 1, 3 and 5
3.0
)";

inline constexpr const char* kGeometry =
    R"(The integers of a layer: admitted here and nowhere else, immutable. The defaults are QSA's.

Errors  InvalidArgument: the option at fault; Overflow

>>> geometry = seriatim.Geometry(budget_tokens=64, head_dim=32)
>>> geometry
Geometry(budget_tokens=64, head_dim=32)
>>> geometry.budget_groups, geometry.row_capacity
(16, 67)
>>> blocks = seriatim.Geometry(pooling="unit_max", group_tokens=128, tail="group", forced_newest=1, selections=2)
>>> blocks.row_capacity, blocks.row_width(2049)  # minimax_m3_vl: 15 whole blocks and the first token of the newest
(2048, 1921)
)";

inline constexpr const char* kFromConfig =
    R"(The geometry of a Transformers configuration of a known family; `options` override.

Known are `qwen4_exp` and the families of single tokens over latents: `deepseek_v32`, `glm_moe_dsa`, `hy_v4`,
`hy_v4_vl`, `dots3_note` (its indexed layers), `axk2` and `mistral_large4` (its layers with rotation and without are
alike here).

Takes   a text configuration, or one that holds it as `text_config`. kv_dtype and index_dtype follow its dtype.
Errors  Unsupported: a configuration without an index; InvalidArgument

>>> class Config:
...     model_type, num_attention_heads, num_key_value_heads, head_dim = "qwen4_exp_text", 24, 2, 256
...     indexer_n_heads, indexer_head_dim, indexer_budget, indexer_compress_ratio = 4, 128, 2048, 4
...     rms_norm_eps, rope_parameters, dtype = 1e-6, {"rope_theta": 1e7, "partial_rotary_factor": 0.25}, None
>>> seriatim.Geometry.from_config(Config()) == seriatim.Geometry()
True
)";

inline constexpr const char* kRowWidth = R"(The row's width for so many visible tokens, no group excluded.

>>> [seriatim.Geometry().row_width(n) for n in (2050, 2051, 2052, 2053)]
[2050, 2051, 2048, 2049]
)";

inline constexpr const char* kDeviceInfo =
    R"(A device that an engine can be on, and what it promises of its arithmetic.)";

inline constexpr const char* kDevices = R"(The devices that this machine has.

Errors  Unsupported: this build has no device backend, or the machine no driver for one; Io
)";

inline constexpr const char* kCache = R"(Keys, values, raw and pooled index keys of many sequences in one paged store.

Takes   layers: how many, or an iterable with one entry per layer: the norm weight [index_dim] of its index, None or
        True for weights of zero, False for a layer without an index (it attends rows that another one planned);
        capacity_tokens over all sequences, or capacity_bytes; reserve: take all memory at once;
        index_only: an index store, for keys and values that somebody else keeps (see borrow); engine: where its layers
        plan and attend unless a call names another. On a device all memory is taken at once, here and there, so it
        needs a capacity
Errors  InvalidArgument; NotFinite; Overflow; OutOfMemory; Io: what a device refused
Threads any number of readers beside one writer; a transaction is one step, and at most one is open

>>> geometry = seriatim.Geometry(budget_tokens=16, query_heads=2, kv_heads=1, head_dim=4, index_heads=1, index_dim=4,
...                              index_rotary_dim=4)
>>> cache = seriatim.Cache(geometry, capacity_tokens=1024)
>>> tokens = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
>>> user = cache.add()
>>> with cache.begin() as step:  # commits at the end, rolls back if the block raises
...     step.append(user, 0, keys=tokens[:, None], values=tokens[:, None], index_keys=tokens)
>>> layer = user.layer(0)
>>> rows = layer.plan(tokens[-1:, None], positions=[99])
>>> int(rows.counts[0])
16
>>> layer.attend(np.ones((1, 2, 4), np.float32), [99], rows).shape
(1, 2, 4)
)";

inline constexpr const char* kAdd =
    R"(A new, empty sequence whose first token will stand at `anchor`. As a context manager it is removed at the end.

Errors  InvalidArgument; OutOfMemory
)";

inline constexpr const char* kBegin =
    R"(Begins a transaction. As a context manager it commits at the end, or rolls back if the block raises.

Errors  InvalidArgument: one is open; OutOfMemory
)";

inline constexpr const char* kSave = R"(Writes sequences, or all there are, to one file, whole or not at all.

Errors  NotFound; InvalidArgument: one twice; Io; OutOfMemory
)";

inline constexpr const char* kRestore = R"(Adds every sequence of a file to this cache, or none.

Takes   mode "copy": read and checked; "map": mapped read-only, usable at once, not checked; "map_verified"
Gives   the sequences by the ids that they had when they were saved, in the file's order
Errors  Io; Corrupt: argument is the section; Unsupported; InvalidArgument: another geometry, by name; NotFinite;
        Capacity

>>> import os, tempfile
>>> geometry = seriatim.Geometry(index_dim=4, index_rotary_dim=0, head_dim=4, query_heads=1, kv_heads=1)
>>> cache = seriatim.Cache(geometry, capacity_tokens=256)
>>> user = cache.add(anchor=5)
>>> with tempfile.TemporaryDirectory() as folder:
...     cache.save(os.path.join(folder, "cache.safetensors"))
...     restored = seriatim.Cache(geometry, capacity_tokens=256).restore(os.path.join(folder, "cache.safetensors"))
>>> restored[user.id].anchor
5
)";

inline constexpr const char* kCacheFileInfo =
    R"(What is in a file that Cache.save wrote: what `seriatim cache info` prints.
)";

inline constexpr const char* kCacheFileInfoOf =
    R"(Reads all of a saved cache but its pages, checks it, and says what is there: a CacheFileInfo.

Errors  Io; Corrupt: argument is the section; Unsupported; OutOfMemory

>>> import os, tempfile
>>> geometry = seriatim.Geometry(index_dim=4, index_rotary_dim=0, head_dim=4, query_heads=1, kv_heads=1)
>>> cache = seriatim.Cache(geometry, layers=2, capacity_tokens=256)
>>> user = cache.add(anchor=5)
>>> with tempfile.TemporaryDirectory() as folder:
...     cache.save(os.path.join(folder, "cache.safetensors"))
...     info = seriatim.cache_file_info(os.path.join(folder, "cache.safetensors"))
>>> info.layers, info.sequences == {user.id: (5, 0)}
(2, True)
)";

inline constexpr const char* kVerify =
    R"(Checks a saved cache's structure, checksums and elements, without making a cache.

Errors  Io; Corrupt; Unsupported; NotFinite
)";

inline constexpr const char* kCacheBytes =
    R"(Bytes that a cache holds, by owner; a page that several sequences share counts once.

`pages` is exactly what the allocator handed out, `total` has the bookkeeping (`tables`) too; `mapped` is in neither.
)";

inline constexpr const char* kSequence =
    R"(One sequence of a cache: a run of consecutive positions from its anchor to its frontier.

Errors of its methods: NotFound, once it is removed; InvalidArgument: it is in the open transaction; OutOfMemory.
)";

inline constexpr const char* kTruncate =
    R"(Keeps the first `tokens` tokens. InvalidArgument: negative or more than there are.
)";

inline constexpr const char* kFork =
    R"(A new sequence that holds what this one does; pages are shared until one of the two writes to them.
)";

inline constexpr const char* kEvict =
    R"(Forgets the first `tokens` tokens: the anchor moves, and groups count from there.

By a multiple of group_tokens pooled keys stay; otherwise all of them are computed again.
)";

inline constexpr const char* kCopyFrom = R"(Appends what `source` holds at first_position and the `tokens` - 1 after it.

Errors  InvalidArgument: a range that the source does not hold; NotContiguous: not this sequence's frontier; Capacity
)";

inline constexpr const char* kTransaction =
    R"(Staged appends to one or more sequences, published together or not at all.

>>> geometry = seriatim.Geometry(index_dim=4, index_rotary_dim=0, head_dim=4, query_heads=1, kv_heads=1)
>>> cache = seriatim.Cache(geometry, capacity_tokens=256)
>>> user, token = cache.add(), np.ones((1, 1, 4), np.float32)
>>> try:
...     with cache.begin() as step:
...         step.append(user, 0, token, token, token[0])
...         raise RuntimeError("the engine's own trouble")
... except RuntimeError:
...     pass
>>> user.tokens
0
)";

inline constexpr const char* kAppend = R"(Stages tokens of one layer.

Takes   keys [T, kv_heads, head_dim] and values [T, kv_heads, value_dim] in kv_dtype (no values where they alias the
        keys); index_keys [T, index_dim] in index_dtype, raw (or finished: pooling "none"), None for a layer without an
        index; first_position, by default the staged frontier; coordinates [T, 3] where the geometry names rope_axes
Errors  NotFound; InvalidArgument; NotContiguous; Capacity; OutOfMemory; NotFinite: row = token, index = element.
        Nothing of this call is staged then, and it can be repeated.
)";

inline constexpr const char* kStagedLayer =
    R"(One layer of a sequence as staged so far, to be planned and attended before the commit.

It follows later appends. Once the transaction has ended its calls raise InvalidArgument.
)";

inline constexpr const char* kKeep =
    R"(Forgets all but the first `tokens` staged tokens of one sequence, in every layer that has more.
)";

inline constexpr const char* kCommit = R"(Publishes everything and ends the transaction.

Errors  InvalidArgument: layers at different frontiers (row = sequence, index = the first layer that lacks tokens);
        OutOfMemory. Nothing is published then and the transaction stays open.
)";

inline constexpr const char* kCommitPrefix =
    R"(Publishes the first `tokens` staged tokens of each sequence alone, as speculative decoding needs.
)";

inline constexpr const char* kSnapshot =
    R"(An immutable state of one sequence. It stays valid while the sequence goes on, even after the cache is gone.
)";

inline constexpr const char* kSnapshotCheck = R"(Raises Io if a mapped file that it reads was cut short.
)";

inline constexpr const char* kLayer =
    R"(One layer of a sequence, for reading: of a snapshot, staged in a transaction, or borrowed.

It keeps alive what it reads. A query at position p sees the tokens from the anchor to p, whatever else is in its call.
)";

inline constexpr const char* kPlan = R"(Scores, selects and expands: a row for each query.

Takes   queries [Q, index_heads, index_dim] in index_dtype, finished; positions [Q], each held by the layer, in any
        order; head_weights [Q, index_heads] float32 or None; nan "refuse" or "exclude"; engine: default the
        cache's; out: a pair of positions [Q, row_capacity] and counts [Q], int32, to write to
Gives   Rows(positions, counts)
Errors  InvalidArgument: also a layer without an index; Capacity: more than was reserved; NotANumber
)";

inline constexpr const char* kLayerAttend = R"(Attends over rows that `plan` or anyone else made.

Takes   queries [Q, query_heads, head_dim] in kv_dtype; positions [Q]; rows, a pair of positions and counts; sinks
        [query_heads] or None; out [Q, query_heads, value_dim], lse [Q, query_heads] float32 to write to
Gives   the output in kv_dtype or `dtype`; with return_lse or lse a pair with the log-sum-exp
Errors  InvalidArgument; NotChronological; NotFinite; Overflow, as seriatim.attend
)";

inline constexpr const char* kLayerScore =
    R"(Scores of the groups that a query [index_heads, index_dim] at `position` may see: [G] float32.
)";

inline constexpr const char* kRead =
    R"(Copies keys [tokens, kv_heads, head_dim] and values from `first_position` on, in the kind of `like` (or NumPy).
)";

}  // namespace seriatim::python::docs
