// Docstrings of the bindings of several processes.
#pragma once

namespace seriatim::python::docs {

inline constexpr char kThreadEnd[] = "One rank among threads of this process; made by thread_ends.";

inline constexpr char kThreadEnds[] =
    R"(Transports for ranks that are threads of this process: for tests and simulation.

    ranks, and timeout, the seconds that a call waits for another rank

    Gives   one transport for each rank

    Errors  InvalidArgument
)";

inline constexpr char kGroup[] = R"(Ranks that do the same work, and find out when they do not.

    Made by meet(). Calls of one group take turns. rank and size say which of how many this process is; messages_sent
    and bytes_sent count what it has sent, without a transport's own framing.
)";

inline constexpr char kAgree[] = R"(Returns where every rank makes the same call with equal terms.

    Errors  InvalidArgument, the same on every rank: the first difference, index = the rank; PeerLost
)";

inline constexpr char kMeet[] =
    R"(The handshake of a group: every rank is there, of the same version, and its terms are equal.

    transport one of thread_ends(), a seriatim.shard.GlooTransport or MpiTransport, or any object with rank, size,
            all_gather(block, blocks), send(to, bytes), receive(from_, bytes) and broadcast(root, bytes); they take
            memoryviews and raise where a rank is lost
    engine  whose threads and kernels do the work of this rank; None: the default one

    Errors  PeerLost; Unsupported: another version; InvalidArgument: the first term that differs, index = the rank
)";

inline constexpr char kShardedCache[] = R"(Sequences whose tokens lie spread over the ranks of a group.

    Every rank makes the same calls with equal arguments, in the same order; the results are those of a Cache in one
    process, bit for bit. A refusal of one rank is the same error on all, and nothing has changed anywhere.

    group, geometry and layers as a Cache has them; capacity_tokens of this rank; imbalance: how much fuller than its
    share a rank may be before rebalance() moves anything

    Errors  as Cache; PeerLost: a rank ended or did not answer, and the group is of no more use
)";

inline constexpr char kShardedAdd[] = R"(A new, empty sequence.

    cuts    [ranks - 1] positions, whole groups from the anchor: rank k takes those from cuts[k - 1] to cuts[k] - 1;
            None: the last rank takes every token
)";

inline constexpr char kShardedSave[] =
    R"(Writes sequences, or all there are, to a folder that is there and that all ranks share: a file each, a manifest.

    The manifest's rename is the commit: until then what was saved there before is what restore finds. Saves to one
    folder must take turns.

    Errors  as Cache.save, the same on every rank
)";

inline constexpr char kShardedRestore[] = R"(Adds every sequence of a folder, or of one file of Cache.save, or none.

    mode    how a file comes in where as many ranks restore as saved, as of Cache.restore; any other number of ranks
            copies what it takes, and spreads it evenly

    Gives   the sequences by the ids that they had when they were saved, in the order in which they were saved

    Errors  as Cache.restore, the same on every rank; NotFound: neither a manifest nor a file
)";

inline constexpr char kShardedSequence[] = "A sequence of a ShardedCache; made by add() and fork().";

inline constexpr char kBorders[] = "[ranks + 1] positions: rank k holds borders[k] .. borders[k + 1] - 1.";

inline constexpr char kRebalance[] = R"(Moves tokens between ranks until the ranges are those of `cuts`.

    cuts    None: even ones, if a rank holds more than (1 + imbalance) times its share
)";

inline constexpr char kShardedTransaction[] = R"(Staged appends, published on all ranks together or not at all.

    As a context it commits at the end of the block, or rolls back if the block raised.
)";

inline constexpr char kShardedAppend[] = R"(Stages tokens of one layer; every rank gives all of them and keeps its own.

    keys [T, kv_heads, head_dim], values [T, kv_heads, value_dim] or None, index_keys [T, index_dim]; coordinates [T, 3]

    Errors  as Transaction.append, the same on every rank
)";

inline constexpr char kShardedLayer[] = "One layer of a sequence of a ShardedCache: plan and attend over all ranks.";

inline constexpr char kShardedPlan[] = R"(Rows of queries [Q, index_heads, index_dim], which are equal on every rank.

    Gives   on every rank the rows of Layer.plan of the whole sequence
)";

inline constexpr char kShardedAttend[] = R"(Attends over rows, which are equal on every rank.

    Gives   on every rank what Layer.attend gives of the whole sequence
)";

inline constexpr char kGroupPlan[] = R"(As Engine.plan, of asks whose layers are ShardedLayers of this group.)";

inline constexpr char kGroupAttend[] = R"(As Engine.attend, of asks whose layers are ShardedLayers of this group.)";

}  // namespace seriatim::python::docs
