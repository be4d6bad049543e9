#include "call.hpp"
#include "convert.hpp"
#include "handles.hpp"

using namespace seriatim;
using namespace seriatim::capi;

namespace {

constexpr std::uintptr_t kAlignment = 64;

class CustomAllocator final : public PageAllocator {
 public:
  explicit CustomAllocator(const seriatim_allocator_callbacks& callbacks) : callbacks_(callbacks) {}
  ~CustomAllocator() override {
    if (callbacks_.dispose != nullptr) callbacks_.dispose(callbacks_.user);
  }
  std::byte* allocate(std::int64_t bytes) override {
    void* memory = callbacks_.allocate(callbacks_.user, bytes);
    if (memory == nullptr || reinterpret_cast<std::uintptr_t>(memory) % kAlignment == 0)
      return static_cast<std::byte*>(memory);
    callbacks_.release(callbacks_.user, memory, bytes);
    return nullptr;
  }
  void release(std::byte* memory, std::int64_t bytes) noexcept override {
    callbacks_.release(callbacks_.user, memory, bytes);
  }

 private:
  const seriatim_allocator_callbacks callbacks_;
};

}  // namespace

void seriatim_allocator_callbacks_init(seriatim_allocator_callbacks* callbacks) {
  if (callbacks == nullptr) return;
  *callbacks = {};
  callbacks->struct_size = sizeof *callbacks;
}

seriatim_status seriatim_allocator_create(const seriatim_allocator_callbacks* callbacks, seriatim_allocator** allocator,
                                          seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"allocator", allocator}}); !s.ok()) return s;
    seriatim_allocator_callbacks taken;
    seriatim_allocator_callbacks_init(&taken);
    if (Status s = take_struct("callbacks", callbacks, taken); !s.ok()) return s;
    if (taken.allocate == nullptr) return invalid("allocate", "NULL");
    if (taken.release == nullptr) return invalid("release", "NULL");
    // First: once the allocator is made, its end disposes of `user`.
    auto handle = std::make_unique<seriatim_allocator>();
    handle->allocator = std::make_shared<CustomAllocator>(taken);
    *allocator = handle.release();
    return {};
  });
}

seriatim_status seriatim_allocator_create_region(void* region, std::int64_t region_bytes,
                                                 seriatim_allocator** allocator, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"allocator", allocator}, {"region", region}}); !s.ok()) return s;
    std::span<std::byte> bytes;
    if (Status s = take_array("region", static_cast<std::byte*>(region), region_bytes, bytes); !s.ok()) return s;
    auto handle = std::make_unique<seriatim_allocator>();
    handle->allocator = std::make_shared<RegionAllocator>(bytes);
    *allocator = handle.release();
    return {};
  });
}

void seriatim_allocator_destroy(seriatim_allocator* allocator) { delete allocator; }
