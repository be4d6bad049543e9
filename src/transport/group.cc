#include "seriatim/group.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "base/format.hpp"
#include "transport/faults.hpp"

namespace seriatim {
namespace {

template <std::size_t N>
void copy_cut(std::array<char, N>& to, std::string_view from) {
  to.fill('\0');
  std::copy_n(from.data(), std::min(N - 1, from.size()), to.data());
}

template <std::size_t N>
std::string_view text_of(const std::array<char, N>& from) {
  return {from.data(), strnlen(from.data(), N)};
}

std::uint64_t digest_of(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <typename T>
T read(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// The first thing that two ranks send each other; its layout does not change with the version.
struct Greeting {
  std::uint64_t magic = 0x53455249'4154494d;  // another byte order gives another number
  std::array<char, 56> version{};
};

struct Header {
  std::uint64_t number = 0;
  std::uint64_t name = 0;
  std::uint64_t arguments = 0;
  std::uint64_t block_bytes = 0;
  std::int64_t code = 0;
  friend bool operator==(const Header&, const Header&) = default;
};
static_assert(sizeof(Header) == Group::kHeaderBytes);

}  // namespace

Call::Call(std::string_view name) { copy_cut(name_, name); }

void Call::add(std::string_view argument, std::uint64_t value, bool is_digest) {
  if (count_ < kArguments) {
    Argument& one = arguments_[count_];
    copy_cut(one.name, argument);
    one.value = value;
    one.is_digest = is_digest ? 1 : 0;
  } else {
    Argument& last = arguments_.back();
    const std::array<std::uint64_t, 4> parts{last.value, last.is_digest, digest_of(std::as_bytes(std::span(argument))),
                                             value};
    copy_cut(last.name, "further arguments");
    last.value = digest_of(std::as_bytes(std::span(parts)));
    last.is_digest = 1;
  }
  ++count_;
}

Call& Call::with(std::string_view argument, std::int64_t value) {
  add(argument, static_cast<std::uint64_t>(value), false);
  return *this;
}

Call& Call::with(std::string_view argument, std::span<const std::byte> bytes) {
  add(argument, digest_of(bytes), true);
  return *this;
}

Call& Call::with(std::string_view argument, std::string_view text) {
  return with(argument, std::as_bytes(std::span(text)));
}

struct Group::State {
  // What a rank is at, in full.
  struct Detail {
    Header header;
    std::array<char, 32> name{};
    std::uint64_t count = 0;
    std::array<Call::Argument, Call::kArguments> arguments{};
    std::array<std::int64_t, 3> place{};  // row, index, ask
    std::array<char, 72> argument{};
    std::array<char, 264> message{};
  };
  static_assert(sizeof(Detail) == kDetailBytes && std::is_trivially_copyable_v<Detail>);

  // Everything that a call without a block needs is taken here, so that memory refused later can still be reported.
  explicit State(std::shared_ptr<Transport> by)
      : transport(std::move(by)),
        frame(sizeof(Header)),
        frames(ranks() * sizeof(Header)),
        detail_bytes(ranks() * sizeof(Detail)) {}

  std::size_t ranks() const { return static_cast<std::size_t>(transport->size()); }
  Status greet();
  Status gather(const Call& call, const Status& mine, std::span<const std::byte> block, std::span<std::byte> blocks);
  Status explain(const Call& call, const Header& header, const Status& mine);
  Status first_difference(const Detail& ours, const Detail& theirs, int rank) const;
  Status other_arguments(const Detail& ours, const Detail& theirs, int rank) const;
  Status refusal(const Status& mine) const;
  Status leave(const Status& why) {
    if (end.ok()) end = why;
    return end;
  }
  Detail detail(std::size_t rank) const {
    return read<Detail>(std::span(detail_bytes).subspan(rank * sizeof(Detail), sizeof(Detail)));
  }

  std::shared_ptr<Transport> transport;
  std::uint64_t number = 0;  // of the call
  Status end;                // what ended the group on this rank
  std::vector<std::byte> frame;
  std::vector<std::byte> frames;
  std::vector<std::byte> detail_bytes;
};

namespace {

Status differs(std::string_view argument, int rank, const std::string& how) {
  return Status::error(Code::kInvalidArgument, argument, how, {.index = rank});
}

}  // namespace

Status Group::State::greet() {
  Greeting greeting;
  copy_cut(greeting.version, SERIATIM_VERSION);
  std::vector<std::byte> all(ranks() * sizeof greeting);
  if (Status s = transport->all_gather(bytes_of(greeting), all); !s.ok()) return s;
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    const auto theirs = read<Greeting>(std::span(all).subspan(rank * sizeof greeting, sizeof greeting));
    if (theirs.magic != greeting.magic)
      return Status::error(Code::kUnsupported, "version",
                           formatted("version: rank {} does not speak this protocol, or has another byte order", rank),
                           {.index = static_cast<std::int64_t>(rank)});
    // Every rank compares with rank 0, so that all say the same.
    const auto first = read<Greeting>(std::span<const std::byte>(all).first(sizeof greeting));
    if (theirs.version != first.version)
      return Status::error(
          Code::kUnsupported, "version",
          formatted("version: rank {} runs {}, rank 0 runs {}", rank, text_of(theirs.version), text_of(first.version)),
          {.index = static_cast<std::int64_t>(rank)});
  }
  return {};
}

Status Group::State::gather(const Call& call, const Status& mine, std::span<const std::byte> block,
                            std::span<std::byte> blocks) {
  if (!end.ok()) return end;
  if (blocks.size() / ranks() != block.size() || blocks.size() % ranks() != 0)
    return gather(call, transport::blocks_unfit(block.size(), transport->size(), blocks.size()), {}, {});
  try {
    frame.resize(sizeof(Header) + block.size());
    frames.resize(ranks() * frame.size());
  } catch (const std::bad_alloc&) {
    return gather(call, transport::no_memory("blocks"), {}, {});
  }
  const std::span arguments(call.arguments_);
  const Header header{number, digest_of(bytes_of(call.name_)), digest_of(std::as_bytes(arguments)), block.size(),
                      static_cast<std::int64_t>(mine.code())};
  ++number;
  std::memcpy(frame.data(), &header, sizeof header);
  std::ranges::copy(block, frame.begin() + sizeof header);
  Status sent = transport->all_gather(frame, frames);
  if (!sent.ok()) {
    // Frames of different lengths: all ranks see that.
    if (sent.code() != Code::kInvalidArgument) return leave(sent);
    return explain(call, header, mine);
  }
  const auto part = [&](std::size_t rank) { return std::span<const std::byte>(frames).subspan(rank * frame.size()); };
  bool alike = mine.ok();
  for (std::size_t rank = 0; rank < ranks(); ++rank) alike = alike && read<Header>(part(rank)) == header;
  if (!alike) return explain(call, header, mine);
  for (std::size_t rank = 0; rank < ranks(); ++rank)
    std::ranges::copy(part(rank).subspan(sizeof header, block.size()),
                      blocks.begin() + static_cast<std::ptrdiff_t>(rank * block.size()));
  return {};
}

Status Group::State::explain(const Call& call, const Header& header, const Status& mine) {
  Detail ours;
  ours.header = header;
  ours.name = call.name_;
  ours.count = call.count_;
  ours.arguments = call.arguments_;
  ours.place = {mine.place().row, mine.place().index, mine.place().ask};
  copy_cut(ours.argument, mine.argument());
  copy_cut(ours.message, mine.message());
  if (Status s = transport->all_gather(bytes_of(ours), detail_bytes); !s.ok()) return leave(s);
  const Detail first = detail(0);
  for (std::size_t rank = 1; rank < ranks(); ++rank)
    if (Status s = first_difference(first, detail(rank), static_cast<int>(rank)); !s.ok()) return s;
  if (Status s = refusal(mine); !s.ok()) return s;
  for (std::size_t rank = 1; rank < ranks(); ++rank)
    if (Status s = other_arguments(first, detail(rank), static_cast<int>(rank)); !s.ok()) return s;
  return Status::error(Code::kInvalidArgument, "call", "call: the ranks' headers differ, their details do not");
}

Status Group::State::first_difference(const Detail& ours, const Detail& theirs, int rank) const {
  if (ours.header.number != theirs.header.number)
    return differs("call", rank,
                   formatted("call: rank {} is at call {} ({}), rank 0 at call {} ({})", rank, theirs.header.number,
                             text_of(theirs.name), ours.header.number, text_of(ours.name)));
  if (ours.name != theirs.name)
    return differs("call", rank,
                   formatted("call: at call {} rank {} is in {}, rank 0 in {}", ours.header.number, rank,
                             text_of(theirs.name), text_of(ours.name)));
  return {};
}

Status Group::State::other_arguments(const Detail& ours, const Detail& theirs, int rank) const {
  const std::string_view call = text_of(ours.name);
  for (std::size_t i = 0; i < Call::kArguments; ++i) {
    const Call::Argument& a = ours.arguments[i];
    const Call::Argument& b = theirs.arguments[i];
    if (i == std::min(ours.count, theirs.count) && ours.count != theirs.count) break;
    const std::string_view name = text_of(a.name);
    if (a.name != b.name)
      return differs(name, rank,
                     formatted("{}: of {}, rank {} has {} in its place", name, call, rank, text_of(b.name)));
    if (a.value == b.value && a.is_digest == b.is_digest) continue;
    if (a.is_digest != 0 || b.is_digest != 0)
      return differs(name, rank, formatted("{}: of {}, rank {} has other bytes than rank 0", name, call, rank));
    return differs(name, rank,
                   formatted("{}: of {}, {} on rank {} and {} on rank 0", name, call,
                             static_cast<std::int64_t>(b.value), rank, static_cast<std::int64_t>(a.value)));
  }
  if (ours.count != theirs.count)
    return differs(
        "call", rank,
        formatted("call: {} has {} arguments on rank {} and {} on rank 0", call, theirs.count, rank, ours.count));
  if (ours.header.block_bytes != theirs.header.block_bytes)
    return differs("block", rank,
                   formatted("block: of {}, {} bytes on rank {} and {} on rank 0", call, theirs.header.block_bytes,
                             rank, ours.header.block_bytes));
  return {};
}

// Alike on all ranks: as one process would refuse. Else that of the lowest rank.
Status Group::State::refusal(const Status& mine) const {
  const auto refused = [](const Detail& one) { return one.header.code != 0; };
  bool alike = true;
  std::size_t lowest = ranks();
  const Detail first = detail(0);
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    const Detail one = detail(rank);
    alike = alike && one.header.code == first.header.code && one.place == first.place &&
            one.argument == first.argument && one.message == first.message;
    if (refused(one)) lowest = std::min(lowest, rank);
  }
  if (lowest == ranks()) return {};
  if (alike) return mine;
  const Detail one = detail(lowest);
  return Status::error(static_cast<Code>(one.header.code), text_of(one.argument),
                       formatted("rank {}: {}", lowest, text_of(one.message)),
                       {.row = one.place[0], .index = one.place[1], .ask = one.place[2]});
}

Group::Group(std::unique_ptr<State> state) : state_(std::move(state)) {}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;
Group::~Group() = default;

Result<Group> Group::meet(std::shared_ptr<Transport> transport, const Call& terms) try {
  if (transport == nullptr) return Status::error(Code::kInvalidArgument, "transport", "transport: null");
  auto state = std::make_unique<State>(std::move(transport));
  if (Status s = state->greet(); !s.ok()) return s;
  if (Status s = state->gather(terms, {}, {}, {}); !s.ok()) return s;
  return Group(std::move(state));
} catch (const std::bad_alloc&) {
  return transport::no_memory("transport");
}

int Group::rank() const { return state_->transport->rank(); }
int Group::size() const { return state_->transport->size(); }
Transport& Group::transport() { return *state_->transport; }

Status Group::gather(const Call& call, const Status& mine, std::span<const std::byte> block,
                     std::span<std::byte> blocks) {
  return state_->gather(call, mine, block, blocks);
}

Status Group::leave(const Status& why) { return state_->leave(why); }
bool Group::ended() const { return !state_->end.ok(); }

}  // namespace seriatim
