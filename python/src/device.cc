#include "device.hpp"

#include <mutex>
#include <utility>

#include "engine.hpp"

namespace seriatim::python {
namespace {

class OnDevice final : public CacheDevice {
 public:
  OnDevice(std::shared_ptr<Device> device, Engine engine, std::shared_ptr<PageAllocator> pages)
      : device_(std::move(device)), engine_(std::move(engine)), pages_(std::move(pages)) {}

  const DeviceInfo& info() const override { return device_->info(); }
  PageAllocator* allocator() override { return pages_.get(); }

  Status plan(const LayerView& view, const IndexQueries& queries, NanPolicy nan, Rows rows) override {
    const std::lock_guard turn(turn_);
    const WorkDone before = engine_.done();
    const Status status = engine_.plan(view, queries, nan, rows);
    count_work(before, engine_.done());
    return status;
  }

  Status attend(const LayerView& view, const AttendQueries& queries, ConstRows rows, Tensor output,
                Tensor lse) override {
    const std::lock_guard turn(turn_);
    return engine_.attend(view, queries, rows, output, lse);
  }

  void let_go() override {
    const std::lock_guard turn(turn_);
    engine_.let_go();
  }

 private:
  std::shared_ptr<Device> device_;
  Engine engine_;
  std::shared_ptr<PageAllocator> pages_;
  std::mutex turn_;
};

}  // namespace

Result<std::unique_ptr<CacheDevice>> make_cache_device(const std::string& name, const Geometry& geometry,
                                                       const CacheOptions& options) {
  auto device = Device::open(name);
  if (!device.ok()) return device.status();
  auto engine = Engine::on(*device);
  if (!engine.ok()) return engine.status();
  auto pages = engine->allocator(geometry, options);
  if (!pages.ok()) return pages.status();
  return std::unique_ptr<CacheDevice>(
      std::make_unique<OnDevice>(*std::move(device), *std::move(engine), *std::move(pages)));
}

Result<std::vector<DeviceInfo>> devices() { return list_devices(); }
std::string lacks(const DeviceInfo& info) { return info.lacks(); }

}  // namespace seriatim::python
