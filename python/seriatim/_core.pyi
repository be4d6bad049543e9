from collections.abc import Iterable, Sequence as _Sequence
from typing import Any

import seriatim._types


class WorkDone:
    """What calls have done, for accounting."""

    @property
    def queries(self) -> int:
        """Rows that were planned."""

    @property
    def dense_rows(self) -> int:
        """Rows that hold every visible token."""

    @property
    def groups_scored(self) -> int:
        """Candidate groups that were scored."""

    @property
    def groups_selected(self) -> int:
        """Groups that were chosen."""

    @property
    def row_tokens(self) -> int:
        """Entries of the rows."""

    @property
    def groups_screened(self) -> int:
        """Of groups_scored, those of queries that were screened."""

    @property
    def groups_rescored(self) -> int:
        """Of those, the ones that were scored canonically."""

    @property
    def screen_fallbacks(self) -> int:
        """Queries to be screened that were scored in full."""

    @property
    def index_bytes_read(self) -> int:
        """Pooled keys read to score, on the host."""

    def __repr__(self) -> str: ...

class Engine:
    """
    Where calls plan and attend, with the scratch that they need: on the host, or on a device.

    Takes   device: a name of `devices()`, "opencl" or "cuda"; None: the host. threads: how many a call may use; 0: as many
            as the process may; 1: the caller's alone. kernels: one of `kernels()`; None: what SERIATIM_KERNELS names, else
            the fastest. All change speed alone, never bits
    Errors  InvalidArgument; NotFound: kernels or a device of that name (the message lists what there is); Unsupported: a
            device that does not promise the arithmetic, or no driver; OutOfMemory
    Threads any number may call at once; on a device they take turns

    >>> engine = seriatim.Engine(threads=1)
    >>> engine.threads, engine.device
    (1, None)
    """

    def __init__(self, *, device: str | None = None, threads: int = 0, kernels: str | None = None) -> None: ...

    @property
    def device(self) -> str | None:
        """Its device; None: the host."""

    @property
    def threads(self) -> int:
        """The most threads that a call uses; 0 on a device."""

    @property
    def kernels(self) -> str | None:
        """
        The implementation that its calls use; None on a device.

        Errors  NotFound: the environment names what is not available
        """

    def reserve(self, geometry: Geometry, visible_tokens: int, queries: int, asks: int = 1) -> None:
        """
        Takes all scratch of calls of up to so many visible tokens, queries and asks over layers of this geometry.

        Such a call takes no memory then; a larger one raises Capacity. Further calls of reserve add to it. One thread at a
        time has as much; another that calls meanwhile takes its own.
        Errors  InvalidArgument; Overflow; OutOfMemory

        >>> engine = seriatim.Engine(threads=1)
        >>> engine.reserve(seriatim.Geometry(budget_tokens=64), visible_tokens=4096, queries=8, asks=2)
        >>> engine.bytes > 0
        True
        """

    @property
    def bytes(self) -> int:
        """Bytes of scratch that it holds between calls."""

    @property
    def done(self) -> WorkDone:
        """What its calls have done since the start or clear_done(): a WorkDone."""

    def clear_done(self) -> None:
        """Starts counting again."""

    def trim(self) -> None:
        """Frees scratch that it keeps for the next call, unless it was reserved."""

    def __reduce__(self) -> tuple:
        """Made anew where it arrives."""

    def plan(self, asks: Iterable[tuple[Any, ...]], *, nan: str = 'refuse', out: tuple[seriatim._types.Array, seriatim._types.Array] | None = None) -> seriatim._types.Rows[Any]:
        """
        Rows for the queries of many layers in one call, one after the other.

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
        """

    def attend(self, asks: Iterable[tuple[Any, ...]], rows: tuple[seriatim._types.Array, seriatim._types.Array], *, dtype: object = None, out: seriatim._types.Array | None = None, lse: seriatim._types.Array | None = None, return_lse: bool = False) -> Any:
        """
        Attends over the rows of many layers in one call, one after the other.

        Takes   asks: (layer, queries, positions) or (layer, queries, positions, sinks) each, as Layer.attend takes them; rows
                of all of them; dtype, out, lse, return_lse: as Layer.attend
        Gives   [all queries, query_heads, value_dim], and with return_lse or lse a pair with the log-sum-exp
        Errors  as Layer.attend; `error.ask` says which ask is at fault, `row` which of its queries
        """

def default_engine() -> Engine:
    """
    The engine of all calls that name none: on the host, with as many threads as the process may use.

    >>> seriatim.default_engine().done.queries >= 0
    True
    """

def kernels() -> list[str]:
    """
    Names of the implementations that this machine can run, fastest first. All give the same bits.

    >>> seriatim.kernels()[-1]
    'reference'
    """

class DeviceInfo:
    """
    A device that an engine can be on, and what it promises of its arithmetic.
    """

    @property
    def name(self) -> str:
        """As Engine(device=...) takes it."""

    @property
    def product(self) -> str:
        """What its driver calls it."""

    @property
    def driver(self) -> str: ...

    @property
    def memory_bytes(self) -> int: ...

    @property
    def lacks(self) -> str:
        """Empty if it keeps the library's bits; else what it does not promise."""

    def __repr__(self) -> str: ...

def devices() -> list[DeviceInfo]:
    """
    The devices that this machine has.

    Errors  Unsupported: this build has no device backend, or the machine no driver for one; Io
    """

class Geometry:
    """
    The integers of a layer: admitted here and nowhere else, immutable. The defaults are QSA's.

    Errors  InvalidArgument: the option at fault; Overflow

    >>> geometry = seriatim.Geometry(budget_tokens=64, head_dim=32)
    >>> geometry
    Geometry(budget_tokens=64, head_dim=32)
    >>> geometry.budget_groups, geometry.row_capacity
    (16, 67)
    >>> blocks = seriatim.Geometry(pooling="unit_max", group_tokens=128, tail="group", forced_newest=1, selections=2)
    >>> blocks.row_capacity, blocks.row_width(2049)  # minimax_m3_vl: 15 whole blocks and the first token of the newest
    (2048, 1921)
    """

    def __init__(self, *, group_tokens: int = 4, budget_tokens: int = 2048, query_heads: int = 24, kv_heads: int = 2, head_dim: int = 256, value_dim: int = 0, values_alias_keys: bool = False, softmax_scale: float | None = None, index_heads: int = 4, index_dim: int = 128, index_rotary_dim: int = 64, rope_theta: float = 1e7, inv_freq: seriatim._types.Floats | None = None, rope_axes: seriatim._types.Integers | None = None, norm_eps: float = 1e-6, pooling: str = 'mean', relu: bool = True, scale_at: str = 'after_sum', kv_dtype: object = 'f32', index_dtype: object = 'f32', tail: str = 'raw', forced_first: int = 0, forced_newest: int = 0, forced_outside: bool = False, selections: int = 1) -> None: ...

    @staticmethod
    def from_config(config: object, **options: object) -> Geometry:
        """
        The geometry of a Transformers configuration of a known family; `options` override.

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
        """

    @property
    def group_tokens(self) -> int:
        """r, the tokens of a group."""

    @property
    def budget_tokens(self) -> int:
        """B, the tokens that chosen groups may hold together."""

    @property
    def query_heads(self) -> int: ...

    @property
    def kv_heads(self) -> int: ...

    @property
    def head_dim(self) -> int: ...

    @property
    def value_dim(self) -> int: ...

    @property
    def values_alias_keys(self) -> bool: ...

    @property
    def softmax_scale(self) -> float: ...

    @property
    def index_heads(self) -> int: ...

    @property
    def index_dim(self) -> int: ...

    @property
    def index_rotary_dim(self) -> int: ...

    @property
    def inv_freq(self) -> list[float]: ...

    @property
    def rope_axes(self) -> list[int]: ...

    @property
    def norm_eps(self) -> float: ...

    @property
    def pooling(self) -> str: ...

    @property
    def relu(self) -> bool: ...

    @property
    def scale_at(self) -> str: ...

    @property
    def kv_dtype(self) -> str: ...

    @property
    def index_dtype(self) -> str: ...

    @property
    def tail(self) -> str: ...

    @property
    def forced_first(self) -> int: ...

    @property
    def forced_newest(self) -> int: ...

    @property
    def forced_outside(self) -> bool: ...

    @property
    def selections(self) -> int:
        """S, rows per query."""

    @property
    def budget_groups(self) -> int:
        """K = B / r."""

    @property
    def row_capacity(self) -> int:
        """The width of a row's storage: B + r - 1 with a raw tail."""

    def row_width(self, visible_tokens: int) -> int:
        """
        The row's width for so many visible tokens, no group excluded.

        >>> [seriatim.Geometry().row_width(n) for n in (2050, 2051, 2052, 2053)]
        [2050, 2051, 2048, 2049]
        """

    def __eq__(self, other: object, /) -> bool: ...

    def __getstate__(self) -> dict:
        """What pickle and copy keep."""

    def __setstate__(self, options: dict) -> None: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

def pool_keys(geometry: Geometry, raw: seriatim._types.ArrayT, norm_weight: seriatim._types.Floats | None = None, *, first_position: int = 0, coordinates: seriatim._types.Array | None = None, out: seriatim._types.ArrayT | None = None) -> seriatim._types.ArrayT:
    """
    Pools every complete group of consecutive raw index keys: mean, RMS norm, rotation.

    Takes   raw [T, index_dim] in index_dtype, of which the first opens a group; norm_weight [index_dim], the w of (1 + w),
            default zeros; first_position, where the first token stands; coordinates [T, 3] of M-RoPE where the geometry
            names rope_axes
    Gives   [T // group_tokens, index_dim] in index_dtype
    Errors  InvalidArgument; NotFinite: row = token, index = dim

    >>> geometry = seriatim.Geometry(index_dim=2, index_rotary_dim=0)
    >>> seriatim.pool_keys(geometry, np.ones((9, 2), np.float32)).shape
    (2, 2)
    """

def prepare_index_queries(geometry: Geometry, raw: seriatim._types.ArrayT, positions: seriatim._types.Integers, norm_weight: seriatim._types.Floats | None = None, *, coordinates: seriatim._types.Array | None = None, out: seriatim._types.ArrayT | None = None) -> seriatim._types.ArrayT:
    """
    Norm and rotation for index queries that arrive raw.

    Takes   raw [Q, index_heads, index_dim] in index_dtype; positions [Q]; norm_weight and coordinates as in pool_keys
    Gives   the same shape and dtype
    Errors  InvalidArgument; NotFinite

    >>> geometry = seriatim.Geometry(index_heads=1, index_dim=2, index_rotary_dim=0)
    >>> seriatim.prepare_index_queries(geometry, np.full((1, 1, 2), 3, np.float32), [7]).round(3).tolist()
    [[[1.0, 1.0]]]
    """

def score(geometry: Geometry, queries: seriatim._types.ArrayT, pooled_keys: seriatim._types.Array, head_weights: seriatim._types.Array | None = None, *, engine: Engine | None = None) -> seriatim._types.ArrayT:
    """
    Scores of every group for each query, with pooling "unit_max" of every unit; of one selection.

    Takes   queries [Q, index_heads / selections, index_dim] in index_dtype, finished; pooled_keys [G, index_dim] in
            index_dtype; head_weights [Q, index_heads] float32, signed, or None
    Gives   [Q, G] float32: the sum over heads of relu(dot), scaled as the geometry says
    Errors  InvalidArgument; OutOfMemory. Memory: a copy of pooled_keys in the library's layout

    >>> geometry = seriatim.Geometry(index_heads=1, index_dim=4, index_rotary_dim=0)
    >>> queries = np.ones((1, 1, 4), np.float32)
    >>> seriatim.score(geometry, queries, np.array([[1, 1, 1, 1], [-1, 0, 0, 0]], np.float32)).tolist()
    [[2.0, 0.0]]
    """

def select(scores: seriatim._types.ArrayT, *, visible: seriatim._types.Integers | None = None, group_tokens: int = 4, budget_tokens: int = 2048, anchor: seriatim._types.Integers = 0, nan: str = 'refuse', out: tuple[seriatim._types.ArrayT, seriatim._types.ArrayT] | None = None, engine: Engine | None = None, tail: str = 'raw', forced_first: int = 0, forced_newest: int = 0, forced_outside: bool = False) -> seriatim._types.Rows[seriatim._types.ArrayT]:
    """
    The rule: scores choose the set of groups, time chooses the order.

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
    """

def check_rows(rows: object, visible: object, scores: object | None, group_tokens: int, budget_tokens: int, anchor: int, unit: str, rule: str, margin: float, findings: int) -> dict: ...

def explain(promise: str) -> str:
    """What a promise of the rule demands and why, in a paragraph."""

class Layer:
    """
    One layer of a sequence, for reading: of a snapshot, staged in a transaction, or borrowed.

    It keeps alive what it reads. A query at position p sees the tokens from the anchor to p, whatever else is in its call.
    """

    @property
    def geometry(self) -> Geometry: ...

    @property
    def anchor(self) -> int:
        """Position of the first token."""

    @property
    def tokens(self) -> int:
        """Tokens that it holds."""

    @property
    def frontier(self) -> int:
        """Position of the next token."""

    def plan(self, queries: seriatim._types.ArrayT, positions: seriatim._types.Integers, *, head_weights: seriatim._types.Array | None = None, nan: str = 'refuse', engine: Engine | None = None, out: tuple[seriatim._types.ArrayT, seriatim._types.ArrayT] | None = None) -> seriatim._types.Rows[seriatim._types.ArrayT]:
        """
        Scores, selects and expands: a row for each query.

        Takes   queries [Q, index_heads, index_dim] in index_dtype, finished; positions [Q], each held by the layer, in any
                order; head_weights [Q, index_heads] float32 or None; nan "refuse" or "exclude"; engine: default the
                cache's; out: a pair of positions [Q, row_capacity] and counts [Q], int32, to write to
        Gives   Rows(positions, counts)
        Errors  InvalidArgument: also a layer without an index; Capacity: more than was reserved; NotANumber
        """

    def attend(self, queries: seriatim._types.ArrayT, positions: seriatim._types.Integers, rows: tuple[seriatim._types.Array, seriatim._types.Array], *, sinks: seriatim._types.Floats | None = None, dtype: object = None, engine: Engine | None = None, out: seriatim._types.ArrayT | None = None, lse: seriatim._types.ArrayT | None = None, return_lse: bool = False) -> Any:
        """
        Attends over rows that `plan` or anyone else made.

        Takes   queries [Q, query_heads, head_dim] in kv_dtype; positions [Q]; rows, a pair of positions and counts; sinks
                [query_heads] or None; out [Q, query_heads, value_dim], lse [Q, query_heads] float32 to write to
        Gives   the output in kv_dtype or `dtype`; with return_lse or lse a pair with the log-sum-exp
        Errors  InvalidArgument; NotChronological; NotFinite; Overflow, as seriatim.attend
        """

    def score(self, query: seriatim._types.ArrayT, position: int, head_weights: seriatim._types.Array | None = None) -> seriatim._types.ArrayT:
        """
        Scores of the groups that a query [index_heads, index_dim] at `position` may see: [G] float32.
        """

    def read(self, first_position: int, tokens: int, like: seriatim._types.Array | None = None) -> tuple[Any, Any]:
        """
        Copies keys [tokens, kv_heads, head_dim] and values from `first_position` on, in the kind of `like` (or NumPy).
        """

class Snapshot:
    """
    An immutable state of one sequence. It stays valid while the sequence goes on, even after the cache is gone.
    """

    @property
    def anchor(self) -> int: ...

    @property
    def tokens(self) -> int: ...

    @property
    def frontier(self) -> int: ...

    @property
    def layers(self) -> int: ...

    def layer(self, layer: int = 0) -> Layer:
        """One layer of it, which keeps this state alive by itself."""

    def check(self) -> None:
        """Raises Io if a mapped file that it reads was cut short."""

class Sequence:
    """
    One sequence of a cache: a run of consecutive positions from its anchor to its frontier.

    Errors of its methods: NotFound, once it is removed; InvalidArgument: it is in the open transaction; OutOfMemory.
    """

    @property
    def id(self) -> int:
        """Its number, never used again in this cache."""

    @property
    def anchor(self) -> int:
        """Position of the first token."""

    @property
    def tokens(self) -> int:
        """Tokens that it holds."""

    @property
    def frontier(self) -> int:
        """Position of the next token."""

    def __len__(self) -> int: ...

    def snapshot(self) -> Snapshot:
        """Its present state, which stays as it is while the sequence goes on."""

    def layer(self, layer: int = 0) -> Layer:
        """One layer of its present state."""

    def truncate(self, tokens: int) -> None:
        """
        Keeps the first `tokens` tokens. InvalidArgument: negative or more than there are.
        """

    def fork(self) -> Sequence:
        """
        A new sequence that holds what this one does; pages are shared until one of the two writes to them.
        """

    def evict_prefix(self, tokens: int) -> None:
        """
        Forgets the first `tokens` tokens: the anchor moves, and groups count from there.

        By a multiple of group_tokens pooled keys stay; otherwise all of them are computed again.
        """

    def copy_from(self, source: Sequence, first_position: int, tokens: int) -> None:
        """
        Appends what `source` holds at first_position and the `tokens` - 1 after it.

        Errors  InvalidArgument: a range that the source does not hold; NotContiguous: not this sequence's frontier; Capacity
        """

    def reset(self, anchor: int = 0) -> None:
        """Forgets every token and starts over at `anchor`."""

    def remove(self) -> None:
        """Forgets the sequence. Snapshots of it stay valid."""

    def __enter__(self) -> Sequence: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object, /) -> None: ...

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

class Transaction:
    """
    Staged appends to one or more sequences, published together or not at all.

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
    """

    def append(self, sequence: Sequence, layer: int, keys: seriatim._types.Array | None = None, values: seriatim._types.Array | None = None, index_keys: seriatim._types.Array | None = None, *, first_position: int | None = None, coordinates: seriatim._types.Array | None = None) -> None:
        """
        Stages tokens of one layer.

        Takes   keys [T, kv_heads, head_dim] and values [T, kv_heads, value_dim] in kv_dtype (no values where they alias the
                keys); index_keys [T, index_dim] in index_dtype, raw (or finished: pooling "none"), None for a layer without an
                index; first_position, by default the staged frontier; coordinates [T, 3] where the geometry names rope_axes
        Errors  NotFound; InvalidArgument; NotContiguous; Capacity; OutOfMemory; NotFinite: row = token, index = element.
                Nothing of this call is staged then, and it can be repeated.
        """

    def layer(self, sequence: Sequence, layer: int = 0) -> Layer:
        """
        One layer of a sequence as staged so far, to be planned and attended before the commit.

        It follows later appends. Once the transaction has ended its calls raise InvalidArgument.
        """

    def keep(self, sequence: Sequence, tokens: int) -> None:
        """
        Forgets all but the first `tokens` staged tokens of one sequence, in every layer that has more.
        """

    def commit(self) -> None:
        """
        Publishes everything and ends the transaction.

        Errors  InvalidArgument: layers at different frontiers (row = sequence, index = the first layer that lacks tokens);
                OutOfMemory. Nothing is published then and the transaction stays open.
        """

    def commit_prefix(self, tokens: int) -> None:
        """
        Publishes the first `tokens` staged tokens of each sequence alone, as speculative decoding needs.
        """

    def rollback(self) -> None:
        """Forgets everything that was staged and ends the transaction."""

    @property
    def ended(self) -> bool:
        """Whether it was committed or rolled back."""

    def __enter__(self) -> Transaction: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object, /) -> None: ...

class CacheBytes:
    """
    Bytes that a cache holds, by owner; a page that several sequences share counts once.

    `pages` is exactly what the allocator handed out, `total` has the bookkeeping (`tables`) too; `mapped` is in neither.
    """

    @property
    def keys_values(self) -> int: ...

    @property
    def raw_index_keys(self) -> int: ...

    @property
    def pooled_keys(self) -> int: ...

    @property
    def coordinates(self) -> int: ...

    @property
    def free_pages(self) -> int: ...

    @property
    def mapped(self) -> int: ...

    @property
    def tables(self) -> int: ...

    @property
    def pages(self) -> int: ...

    @property
    def total(self) -> int: ...

    def __repr__(self) -> str: ...

class Cache:
    """
    Keys, values, raw and pooled index keys of many sequences in one paged store.

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
    """

    def __init__(self, geometry: Geometry, *, layers: int | Iterable[seriatim._types.Floats | bool | None] = 1, capacity_tokens: int = 0, capacity_bytes: int = 0, reserve: bool = False, page_tokens: int = 0, index_only: bool = False, engine: Engine | None = None) -> None: ...

    @property
    def geometry(self) -> Geometry: ...

    @property
    def engine(self) -> Engine:
        """Where its layers plan and attend unless a call names another."""

    def add(self, anchor: int = 0) -> Sequence:
        """
        A new, empty sequence whose first token will stand at `anchor`. As a context manager it is removed at the end.

        Errors  InvalidArgument; OutOfMemory
        """

    def begin(self) -> Transaction:
        """
        Begins a transaction. As a context manager it commits at the end, or rolls back if the block raises.

        Errors  InvalidArgument: one is open; OutOfMemory
        """

    def save(self, path: seriatim._types.Path, sequences: Iterable[Sequence] | None = None) -> None:
        """
        Writes sequences, or all there are, to one file, whole or not at all.

        Errors  NotFound; InvalidArgument: one twice; Io; OutOfMemory
        """

    def restore(self, path: seriatim._types.Path, mode: str = 'copy') -> dict[int, Sequence]:
        """
        Adds every sequence of a file to this cache, or none.

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
        """

    @property
    def bytes(self) -> CacheBytes:
        """Bytes held, by owner: a CacheBytes."""

    def trim(self) -> None:
        """Gives free pages back to the allocator."""

class CacheFileInfo:
    """
    What is in a file that Cache.save wrote: what `seriatim cache info` prints.
    """

    @property
    def geometry(self) -> Geometry:
        """
        What the file says of it; the rest (query heads, budget) has its default or fits.
        """

    @property
    def layers(self) -> int: ...

    @property
    def page_tokens(self) -> int:
        """Tokens of a page."""

    @property
    def sequences(self) -> dict[int, tuple[int, int]]:
        """
        Anchor and tokens of each sequence by the id that it had, in the file's order.
        """

    @property
    def token_pages(self) -> int:
        """Pages of keys, values and raw index keys."""

    @property
    def pooled_pages(self) -> int:
        """Pages of pooled keys."""

    @property
    def token_page_bytes(self) -> int: ...

    @property
    def pooled_page_bytes(self) -> int: ...

    @property
    def file_bytes(self) -> int: ...

    @property
    def mappable(self) -> bool:
        """Whether restore can map it."""

    def __repr__(self) -> str: ...

def cache_file_info(path: seriatim._types.Path) -> CacheFileInfo:
    """
    Reads all of a saved cache but its pages, checks it, and says what is there: a CacheFileInfo.

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
    """

def verify_cache_file(path: seriatim._types.Path) -> None:
    """
    Checks a saved cache's structure, checksums and elements, without making a cache.

    Errors  Io; Corrupt; Unsupported; NotFinite
    """

def attend(queries: seriatim._types.ArrayT, keys: seriatim._types.Array, values: seriatim._types.Array, rows: tuple[seriatim._types.Array, seriatim._types.Array], positions: seriatim._types.Integers | None = None, *, anchor: int = 0, scale: float | None = None, sinks: seriatim._types.Floats | None = None, dtype: object = None, out: seriatim._types.ArrayT | None = None, lse: seriatim._types.ArrayT | None = None, return_lse: bool = False, engine: Engine | None = None) -> Any:
    """
    Attention of each query over its row of bare keys and values, reduced in row order.

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
    """

def borrow(geometry: Geometry, keys: seriatim._types.Array | None = None, values: seriatim._types.Array | None = None, *, tokens: int | None = None, anchor: int = 0, first_slot: int = 0, block_table: seriatim._types.Array | None = None, panels: seriatim._types.Array | None = None, first_group: int = 0, panels_max_abs: float = float('inf'), index: Layer | None = None) -> Layer:
    """
    A layer over keys and values that the caller keeps; nothing is copied.

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
    """

def borrow_batch(geometry: Geometry, first: _Sequence[int], last: _Sequence[int], keys: seriatim._types.Array | None = None, values: seriatim._types.Array | None = None, panels: seriatim._types.Array | None = None, panels_max_abs: float = float('inf')) -> list[Layer]:
    """
    Layers over a padded batch, as models keep it: slots first[b] .. last[b] - 1 of sequence b hold tokens.

    Takes   keys [B, kv_heads, T, head_dim] and values [B, kv_heads, T, value_dim] in kv_dtype, the last axis dense; panels
            [B, P, index_dim, 16]. Positions are slots
    Gives   one Layer per sequence, as borrow
    Errors  as borrow; row = sequence
    """

class PanelPooler:
    """
    Pools index keys of padded batches into panels that the caller keeps.

    Takes   norm_weight [index_dim] or None for zeros
    """

    def __init__(self, geometry: Geometry, norm_weight: seriatim._types.Floats | None = None, engine: Engine | None = None) -> None: ...

    def pool(self, first: _Sequence[int], last: _Sequence[int], first_groups: _Sequence[int], raw: seriatim._types.Array, coordinates: seriatim._types.Array | None, panels: seriatim._types.Array) -> float:
        """
        Pools the groups of each sequence from first_groups[b] on.

        Takes   raw [B, T, index_dim] in index_dtype, dense per sequence; coordinates [3, B, T] int64, needed where the geometry
                names rope_axes; panels [B, P, index_dim, 16], dense per sequence, written
        Gives   the largest magnitude of what was written
        Errors  InvalidArgument; NotFinite: row = sequence, index = the first of up to 16 groups among which it is
        """

def check_array(argument: str, array: seriatim._types.Array, writable: bool = False) -> None:
    """
    Raises InvalidArgument, by that name, unless it is an array that calls can read, or write, where it lies.
    """

def check_finite(argument: str, array: seriatim._types.Array) -> None:
    """
    What a cache asks of tokens, for those who keep them themselves.

    Errors  NotFinite: row = the place on the first axis, index = the element within it; InvalidArgument
    """

class ThreadEnd:
    """One rank among threads of this process; made by thread_ends."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

def thread_ends(ranks: int, timeout: float = 60.0) -> list[ThreadEnd]:
    """
    Transports for ranks that are threads of this process: for tests and simulation.

        ranks, and timeout, the seconds that a call waits for another rank

        Gives   one transport for each rank

        Errors  InvalidArgument
    """

class Group:
    """
    Ranks that do the same work, and find out when they do not.

        Made by meet(). Calls of one group take turns. rank and size say which of how many this process is; messages_sent
        and bytes_sent count what it has sent, without a transport's own framing.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def messages_sent(self) -> int: ...

    @property
    def bytes_sent(self) -> int: ...

    def agree(self, name: str, **terms: int | str) -> None:
        """
        Returns where every rank makes the same call with equal terms.

            Errors  InvalidArgument, the same on every rank: the first difference, index = the rank; PeerLost
        """

    def plan(self, asks: Iterable[tuple[Any, ...]], *, nan: str = 'refuse', out: tuple[seriatim._types.Array, seriatim._types.Array] | None = None) -> seriatim._types.Rows[Any]:
        """As Engine.plan, of asks whose layers are ShardedLayers of this group."""

    def attend(self, asks: Iterable[tuple[Any, ...]], rows: tuple[seriatim._types.Array, seriatim._types.Array], *, dtype: object = None, out: seriatim._types.Array | None = None, lse: seriatim._types.Array | None = None, return_lse: bool = False) -> Any:
        """
        As Engine.attend, of asks whose layers are ShardedLayers of this group.
        """

class ShardedLayer:
    """
    One layer of a sequence of a ShardedCache: plan and attend over all ranks.
    """

    @property
    def tokens(self) -> int: ...

    @property
    def borders(self) -> list: ...

    def plan(self, queries: seriatim._types.Array, positions: seriatim._types.Integers, head_weights: seriatim._types.Array | None = None, *, nan: str = 'refuse') -> seriatim._types.Rows[Any]:
        """
        Rows of queries [Q, index_heads, index_dim], which are equal on every rank.

            Gives   on every rank the rows of Layer.plan of the whole sequence
        """

    def attend(self, queries: seriatim._types.Array, positions: seriatim._types.Integers, rows: tuple[seriatim._types.Array, seriatim._types.Array], sinks: seriatim._types.Floats | None = None, *, dtype: object = None, return_lse: bool = False) -> Any:
        """
        Attends over rows, which are equal on every rank.

            Gives   on every rank what Layer.attend gives of the whole sequence
        """

class ShardedSequence:
    """A sequence of a ShardedCache; made by add() and fork()."""

    @property
    def anchor(self) -> int: ...

    @property
    def tokens(self) -> int: ...

    @property
    def borders(self) -> list[int]:
        """[ranks + 1] positions: rank k holds borders[k] .. borders[k + 1] - 1."""

    def layer(self, layer: int = 0) -> ShardedLayer:
        """One layer of its present state."""

    def rebalance(self, cuts: seriatim._types.Integers | None = None) -> None:
        """
        Moves tokens between ranks until the ranges are those of `cuts`.

            cuts    None: even ones, if a rank holds more than (1 + imbalance) times its share
        """

    def truncate(self, tokens: int) -> None:
        """Forgets the newest tokens, so that `tokens` stay."""

    def evict_prefix(self, tokens: int) -> None:
        """Forgets the oldest tokens; the anchor moves."""

    def fork(self) -> ShardedSequence:
        """A new sequence that shares its tokens."""

    def reset(self, anchor: int = 0) -> None:
        """Forgets every token and starts over at `anchor`."""

    def remove(self) -> None:
        """Forgets the sequence."""

class ShardedTransaction:
    """
    Staged appends, published on all ranks together or not at all.

        As a context it commits at the end of the block, or rolls back if the block raised.
    """

    def append(self, sequence: ShardedSequence, layer: int, keys: seriatim._types.Array, values: seriatim._types.Array | None = None, index_keys: seriatim._types.Array | None = None, *, first_position: int | None = None, coordinates: seriatim._types.Array | None = None) -> None:
        """
        Stages tokens of one layer; every rank gives all of them and keeps its own.

            keys [T, kv_heads, head_dim], values [T, kv_heads, value_dim] or None, index_keys [T, index_dim]; coordinates [T, 3]

            Errors  as Transaction.append, the same on every rank
        """

    def layer(self, sequence: ShardedSequence, layer: int = 0) -> ShardedLayer:
        """The staged state; its tokens are visible to their own queries."""

    def commit(self) -> None:
        """Publishes everything on all ranks, or nothing on any."""

    def commit_prefix(self, tokens: int) -> None:
        """Publishes the first `tokens` staged tokens of each sequence."""

    def rollback(self) -> None:
        """Forgets everything that was staged and ends the transaction."""

    @property
    def ended(self) -> bool:
        """Whether it was committed or rolled back."""

    def __enter__(self) -> ShardedTransaction: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object, /) -> None: ...

class ShardedCache:
    """
    Sequences whose tokens lie spread over the ranks of a group.

        Every rank makes the same calls with equal arguments, in the same order; the results are those of a Cache in one
        process, bit for bit. A refusal of one rank is the same error on all, and nothing has changed anywhere.

        group, geometry and layers as a Cache has them; capacity_tokens of this rank; imbalance: how much fuller than its
        share a rank may be before rebalance() moves anything

        Errors  as Cache; PeerLost: a rank ended or did not answer, and the group is of no more use
    """

    def __init__(self, group: Group, geometry: Geometry, *, layers: int | Iterable[seriatim._types.Floats] = 1, capacity_tokens: int = 0, page_tokens: int = 0, imbalance: float = 0.25) -> None: ...

    @property
    def geometry(self) -> Geometry: ...

    @property
    def group(self) -> Group: ...

    def add(self, anchor: int = 0, cuts: seriatim._types.Integers | None = None) -> ShardedSequence:
        """
        A new, empty sequence.

            cuts    [ranks - 1] positions, whole groups from the anchor: rank k takes those from cuts[k - 1] to cuts[k] - 1;
                    None: the last rank takes every token
        """

    def even_cuts(self, tokens: int, anchor: int = 0) -> list[int]:
        """Cuts that give every rank about as many whole pages of so many tokens."""

    def begin(self) -> ShardedTransaction:
        """A transaction: appends that all ranks publish together or not at all."""

    def save(self, folder: seriatim._types.Path, sequences: Iterable[ShardedSequence] | None = None) -> None:
        """
        Writes sequences, or all there are, to a folder that is there and that all ranks share: a file each, a manifest.

            The manifest's rename is the commit: until then what was saved there before is what restore finds. Saves to one
            folder must take turns.

            Errors  as Cache.save, the same on every rank
        """

    def restore(self, path: seriatim._types.Path, mode: str = 'copy') -> dict[int, ShardedSequence]:
        """
        Adds every sequence of a folder, or of one file of Cache.save, or none.

            mode    how a file comes in where as many ranks restore as saved, as of Cache.restore; any other number of ranks
                    copies what it takes, and spreads it evenly

            Gives   the sequences by the ids that they had when they were saved, in the order in which they were saved

            Errors  as Cache.restore, the same on every rank; NotFound: neither a manifest nor a file
        """

    @property
    def bytes(self) -> CacheBytes:
        """Bytes held by this rank, by owner: a CacheBytes."""

def meet(transport: object, engine: Engine | None = None, **terms: int | str) -> Group:
    """
    The handshake of a group: every rank is there, of the same version, and its terms are equal.

        transport one of thread_ends(), a seriatim.shard.GlooTransport or MpiTransport, or any object with rank, size,
                all_gather(block, blocks), send(to, bytes), receive(from_, bytes) and broadcast(root, bytes); they take
                memoryviews and raise where a rank is lost
        engine  whose threads and kernels do the work of this rank; None: the default one

        Errors  PeerLost; Unsupported: another version; InvalidArgument: the first term that differs, index = the rank
    """
