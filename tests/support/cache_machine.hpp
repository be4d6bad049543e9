// What runs a random program: a cache, and beside it the vectors of tokens that its sequences stand for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/cache.hpp"
#include "support/cache_program.hpp"

namespace seriatim::cache_testing {

struct ModelSequence {
  SequenceId id = -1;
  std::int64_t anchor = 0;
  std::vector<TokenId> tokens;
  std::vector<std::byte> image;  // of the two above

  std::int64_t count() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t frontier() const { return anchor + count(); }
};

struct ModelSnapshot {
  Snapshot snapshot;
  std::vector<std::byte> image;
};

class Machine {
 public:
  Machine(const Program& program, std::string folder);
  std::optional<Failure> run(const Program& program);

 private:
  void fail(std::string what);
  void compare_all();
  // What plan() trusts instead of reading every key.
  void compare_bounds(const ModelSequence& sequence);
  void finish();
  void redefine(ModelSequence& sequence);
  ModelSequence* pick(std::uint8_t operand);
  std::vector<TokenId> fresh_tokens(std::int64_t count);
  // True when `status` is success. A refusal for lack of pages is believed only when pages could be lacking.
  bool succeeded(const Status& status, const char* call, std::int64_t token_pages, std::int64_t pooled_pages = 0);
  std::int64_t pages_of(std::int64_t tokens) const;

  void step(const Operation& o);
  void add(const Operation& o);
  void remove(const Operation& o);
  void reset(const Operation& o);
  void truncate(const Operation& o);
  void fork(const Operation& o);
  void evict(const Operation& o);
  void copy(const Operation& o);
  void append(const Operation& o);
  void engine_step(const Operation& o);
  void hole(const Operation& o);
  void take_snapshot(const Operation& o);
  void drop_snapshot(const Operation& o);
  void save_and_restore(const Operation& o);
  bool stage(Transaction& transaction, const ModelSequence& sequence, const std::vector<TokenId>& tokens, bool spoiled,
             Status& status);

  const Geometry geometry_;
  const CacheOptions options_;
  const std::int64_t page_tokens_;
  const std::string folder_;
  std::unique_ptr<Cache> cache_;
  const CacheBytes full_page_ = [this] {  // bytes of one page of each kind
    auto cache = make_cache(geometry_, options_);
    cache_testing::append(*cache, *cache->add(), ids(0, page_tokens_));
    return cache->bytes();
  }();
  std::vector<ModelSequence> sequences_;
  std::vector<ModelSnapshot> snapshots_;
  TokenId next_token_ = 1;
  bool mapped_unseen_ = false;  // some pages were mapped without a look at them
  std::vector<std::string> code_;
  std::string what_;
};

}  // namespace seriatim::cache_testing
