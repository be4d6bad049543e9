#include "cache/mapping.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>

#include "base/format.hpp"

namespace seriatim {
namespace {

// What the handler may look at: fixed storage and atomics only. `version` is odd while a slot changes hands, so that a
// handler on another thread never pairs the begin of one mapping with the end of the next.
struct Slot {
  std::atomic<std::uint32_t> version{0};
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};  // 0: free
  std::atomic<bool> damaged{false};
};

std::array<Slot, Mapping::kMostMappings> slots;
std::mutex slots_mutex;  // of calls that take and free slots
bool handler_installed = false;
struct sigaction previous_action;
std::atomic<std::uintptr_t> system_page_bytes{0};

// Null if no mapping has this address.
Slot* slot_of(std::uintptr_t address) {
  for (Slot& slot : slots) {
    const std::uint32_t version = slot.version.load(std::memory_order_acquire);
    const std::uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    const std::uintptr_t end = slot.end.load(std::memory_order_acquire);
    if (version % 2 != 0 || slot.version.load(std::memory_order_acquire) != version) continue;
    if (begin <= address && address < end) return &slot;
  }
  return nullptr;
}

// The rest of the mapping reads as zeros from here on: a file that lost this page has lost all later ones.
bool cover_with_zeros(const Slot& slot, std::uintptr_t address) {
  const std::uintptr_t page = address & ~(system_page_bytes.load() - 1);
  void* covered = ::mmap(reinterpret_cast<void*>(page), slot.end.load() - page, PROT_READ,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  return covered != MAP_FAILED;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  Slot* slot = slot_of(reinterpret_cast<std::uintptr_t>(info->si_addr));
  if (slot != nullptr && cover_with_zeros(*slot, reinterpret_cast<std::uintptr_t>(info->si_addr))) {
    slot->damaged.store(true);
  } else if ((previous_action.sa_flags & SA_SIGINFO) != 0 && previous_action.sa_sigaction != nullptr) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(signal);
  } else {
    ::signal(signal, SIG_DFL);  // the access is made again and ends the process as it would have without us
  }
  errno = error;
}

Status io(std::string_view what) {
  return Status::error(Code::kIo, "file", formatted("file: {}: {}", what, std::strerror(errno)));
}

// Under slots_mutex.
Status install_handler() {
  if (handler_installed) return {};
  system_page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigemptyset(&action.sa_mask);
  if (::sigaction(SIGBUS, nullptr, &previous_action) != 0 || ::sigaction(SIGBUS, &action, nullptr) != 0) {
    return io("no handler for a cut file can be installed");
  }
  handler_installed = true;
  return {};
}

Result<int> take_slot(std::uintptr_t begin, std::uintptr_t end) {
  const std::lock_guard lock(slots_mutex);
  if (Status s = install_handler(); !s.ok()) return s;
  for (int i = 0; i < Mapping::kMostMappings; ++i) {
    Slot& slot = slots[static_cast<std::size_t>(i)];
    if (slot.end.load() != 0) continue;
    ++slot.version;
    slot.damaged = false;
    slot.begin = begin;
    slot.end = end;
    ++slot.version;
    return i;
  }
  return Status::error(Code::kCapacity, "file", formatted("file: {} files are mapped already", Mapping::kMostMappings));
}

void free_slot(int i) noexcept {
  const std::lock_guard lock(slots_mutex);
  Slot& slot = slots[static_cast<std::size_t>(i)];
  ++slot.version;
  slot.begin = 0;
  slot.end = 0;
  ++slot.version;
}

}  // namespace

Result<Ref<Mapping>> Mapping::map(int fd, std::int64_t offset, std::int64_t bytes, Ledger& mapped_bytes,
                                  Ledger& bookkeeping_bytes) {
  auto* mapping = new Mapping(mapped_bytes, bookkeeping_bytes);
  bookkeeping_bytes += static_cast<std::int64_t>(sizeof(Mapping));
  Ref<Mapping> held(mapping);
  const std::int64_t before = offset % ::sysconf(_SC_PAGESIZE);
  const auto whole = static_cast<std::size_t>(before + bytes);
  void* begin = ::mmap(nullptr, whole, PROT_READ, MAP_SHARED, fd, offset - before);
  if (begin == MAP_FAILED) return io("it cannot be mapped");
  mapping->begin_ = static_cast<std::byte*>(begin);
  mapping->bytes_ = whole;
  mapping->data_ = mapping->begin_ + before;
  mapped_bytes += static_cast<std::int64_t>(whole);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  auto slot = take_slot(address, address + whole);
  if (!slot.ok()) return slot.status();
  mapping->slot_ = *slot;
  return held;
}

const std::atomic<bool>& Mapping::damaged() const { return slots[static_cast<std::size_t>(slot_)].damaged; }

void dispose(Mapping* mapping) noexcept {
  if (mapping->slot_ >= 0) free_slot(mapping->slot_);  // first: the addresses may soon be somebody else's
  if (mapping->begin_ != nullptr) {
    ::munmap(mapping->begin_, mapping->bytes_);
    mapping->mapped_bytes_ -= static_cast<std::int64_t>(mapping->bytes_);
  }
  mapping->bookkeeping_bytes_ -= static_cast<std::int64_t>(sizeof(Mapping));
  delete mapping;
}

Status damaged_error() {
  return Status::error(Code::kIo, "file",
                       "file: it was cut short while it was mapped; what was read past its end is zeros");
}

}  // namespace seriatim
