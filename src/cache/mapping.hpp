// A file mapped read-only, and what becomes of a file that is cut short under the mapping.
//
// Touching a page of the mapping that the file no longer has raises SIGBUS. While any mapping lives, a handler of ours
// answers that for addresses inside a mapping: it puts a page of zeros there, sets the mapping's `damaged` flag and
// lets the access go on. The reader asks the flag afterwards (Snapshot::check). All other SIGBUS go to the handler
// that was there before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cache/ledger.hpp"
#include "cache/ref.hpp"
#include "seriatim/status.hpp"

namespace seriatim {

class Mapping : public Counted {
 public:
  // Maps [offset, offset + bytes) of an open file; bytes is at least 1. While it lives, `mapped_bytes` counts it and
  // `bookkeeping_bytes` this object.
  // Errors  Io. OutOfMemory. Capacity: there are kMostMappings already.
  static Result<Ref<Mapping>> map(int fd, std::int64_t offset, std::int64_t bytes, Ledger& mapped_bytes,
                                  Ledger& bookkeeping_bytes);
  static constexpr int kMostMappings = 256;

  const std::byte* data() const { return data_; }
  const std::atomic<bool>& damaged() const;

  friend void dispose(Mapping* mapping) noexcept;

 private:
  Mapping(Ledger& mapped_bytes, Ledger& bookkeeping_bytes)
      : mapped_bytes_(mapped_bytes), bookkeeping_bytes_(bookkeeping_bytes) {}

  Ledger& mapped_bytes_;
  Ledger& bookkeeping_bytes_;
  const std::byte* data_ = nullptr;
  std::byte* begin_ = nullptr;  // of the whole mapping, at a page of the system
  std::size_t bytes_ = 0;
  int slot_ = -1;
};

Status damaged_error();

}  // namespace seriatim
