// Group: ranks that do the same work, and find out when they do not.
//
// Each collective step of the library starts with one gather of the group. In front of every rank's block it sends 40
// bytes: the number of the call, digests of its name and arguments, and whether this rank refuses. Where all agree,
// that was all. Where they do not, a second gather says in full what each rank is at, and every rank answers the same
// error: the first difference, or the first refusal, with the rank's number. Nothing hangs and nothing is computed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "seriatim/status.hpp"
#include "seriatim/transport.hpp"

namespace seriatim {

// What all ranks of a call have in common. Names are cut at 31 bytes; of arguments past the 16th one digest is kept.
class Call {
 public:
  explicit Call(std::string_view name);
  Call& with(std::string_view argument, std::int64_t value);                // shown as a number when it differs
  Call& with(std::string_view argument, std::span<const std::byte> bytes);  // compared by a digest
  Call& with(std::string_view argument, std::string_view text);             // likewise

 private:
  friend class Group;
  static constexpr std::size_t kArguments = 16;
  struct Argument {
    std::array<char, 32> name{};
    std::uint64_t value = 0;
    std::uint64_t is_digest = 0;
  };
  void add(std::string_view argument, std::uint64_t value, bool is_digest);

  std::array<char, 32> name_{};
  std::uint64_t count_ = 0;
  std::array<Argument, kArguments> arguments_{};
};

// Threads  one call at a time. All ranks make the same calls in the same order.
class Group {
 public:
  // The handshake: all ranks are there, run the same version of the library and agree in `terms` (a geometry, options).
  // Errors  InvalidArgument: a null transport. Unsupported: a rank of another version; its message names both. Then as
  //         gather().
  static Result<Group> meet(std::shared_ptr<Transport> transport, const Call& terms);
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  ~Group();

  int rank() const;
  int size() const;
  // For the messages of a step whose gather has succeeded.
  Transport& transport();

  // Every rank's block on every rank, if all make the same call with equal arguments and none refuses.
  // Takes   `mine`: why this rank cannot take part, or success
  // Gives   blocks: size() blocks in rank order
  // Sends   size() - 1 messages of kHeaderBytes and the block; where there is a disagreement or a refusal as many again
  //         of kDetailBytes
  // Errors  the same on every rank, but for a lost one: InvalidArgument: the first difference (argument = what differs,
  //         index = rank). The refusal of the lowest rank, "rank N: " before its message, unless all ranks refuse
  //         alike. PeerLost, and OutOfMemory of the transport, which end the group: every later gather gives the same.
  //         Nothing is written.
  Status gather(const Call& call, const Status& mine, std::span<const std::byte> block, std::span<std::byte> blocks);
  // The same without blocks.
  Status agree(const Call& call, const Status& mine = {}) { return gather(call, mine, {}, {}); }

  // For a rank that ends a call between its gather and its last message: the others wait for what will not come, and
  // its next header would be taken for it. From now on every gather of this rank gives `why` at once.
  // Gives   why, or what the group ended with before
  Status leave(const Status& why);
  // Whether this rank has left, or a gather has failed other than by a difference or a refusal: what the other ranks
  // know of the call is not known.
  bool ended() const;

  static constexpr std::int64_t kHeaderBytes = 40;
  static constexpr std::int64_t kDetailBytes = 1208;

 private:
  struct State;
  explicit Group(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace seriatim
