// What stands behind the opaque handles. Each holds all that it needs, so that handles may go in any order; members go
// from the last to the first.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "asks.hpp"
#include "seriatim.h"
#include "seriatim/borrow.hpp"
#include "seriatim/cache.hpp"
#include "seriatim/executor.hpp"
#include "seriatim/geometry.hpp"
#include "seriatim/step.hpp"
#include "watched_executor.hpp"

struct seriatim_executor {
  std::shared_ptr<seriatim::Executor> executor;
  bool custom = false;
};

struct seriatim_allocator {
  std::shared_ptr<seriatim::PageAllocator> allocator;
};

struct seriatim_geometry {
  seriatim::Geometry geometry;
};

struct seriatim_cache {
  std::shared_ptr<seriatim::PageAllocator> allocator;  // null: the heap
  std::unique_ptr<seriatim::Cache> cache;
};

struct seriatim_transaction {
  std::shared_ptr<seriatim::PageAllocator> allocator;
  seriatim::Transaction transaction;
};

struct seriatim_snapshot {
  std::shared_ptr<seriatim::PageAllocator> allocator;
  seriatim::Snapshot snapshot;
};

struct seriatim_borrowed {
  explicit seriatim_borrowed(const seriatim::Geometry& of) : geometry(of), layer(geometry) {}

  seriatim::Geometry geometry;
  std::optional<seriatim_snapshot> index;  // whose index the layer reads, where it is a snapshot's
  seriatim::BorrowedLayer layer;
};

// What runs the work of a handle.
struct seriatim_runner {
  std::shared_ptr<seriatim::Executor> executor;              // null: the calling thread
  std::unique_ptr<seriatim::capi::WatchedExecutor> watched;  // what is used, where the executor is a caller's

  seriatim_runner() = default;
  explicit seriatim_runner(const seriatim_executor& given) : executor(given.executor) {
    if (given.custom) watched = std::make_unique<seriatim::capi::WatchedExecutor>(*executor);
  }

  seriatim::Executor& runs() {
    return watched != nullptr ? *watched : executor != nullptr ? *executor : seriatim::serial_executor();
  }
  // What a caller's executor did wrong outweighs what came of it.
  seriatim::Status after_work(seriatim::Status status) {
    if (watched == nullptr) return status;
    seriatim::Status fault = watched->take_fault();
    return fault.ok() ? status : fault;
  }
};

struct seriatim_engine {
  seriatim_runner runner;
  seriatim::Engine engine;
  seriatim::capi::Asks asks;
};

struct seriatim_pooler {
  seriatim_runner runner;
  seriatim::PanelPooler pooler;
};
