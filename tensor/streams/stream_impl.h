#pragma once

/// The objects behind DeviceStream and DeviceEvent handles. For stream.cc and the allocator
/// only.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/memory/stream_pool.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/streams/work_queue.h"

namespace tessera {

struct DeviceStream::Impl {
  Impl(Device device, StreamKind kind, std::string name);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const std::uint64_t id;
  const Device device;
  const StreamKind kind;
  const std::string name;
  std::shared_ptr<StreamPool> pool;  // CPU only
  std::shared_ptr<WorkQueue> queue;  // queued CPU streams only
  std::shared_ptr<cuda::Queue> gpu;  // CUDA only
};

struct DeviceEvent::Impl {
  Impl(std::uint64_t event_id, std::string event_name)
      : id(event_id), name(std::move(event_name)) {}

  struct Latest {
    std::shared_ptr<Mark> mark;             // of a queued CPU stream
    std::shared_ptr<const cuda::Mark> gpu;  // of a CUDA stream; both null: reached at once
    std::uint64_t number = 0;               // number of records so far
  };
  Latest latest() const {
    const std::lock_guard lock(mutex_);
    return latest_;
  }
  std::uint64_t set_latest(std::shared_ptr<Mark> mark, std::shared_ptr<const cuda::Mark> gpu) {
    const std::lock_guard lock(mutex_);
    latest_.mark = std::move(mark);
    latest_.gpu = std::move(gpu);
    return ++latest_.number;
  }

  const std::uint64_t id;
  const std::string name;

 private:
  mutable std::mutex mutex_;
  Latest latest_;
};

}  // namespace tessera
