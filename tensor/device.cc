#include "tessera/tensor/device.h"

#include <atomic>

#include "tessera/tools/cuda/device_count.h"

namespace tessera {
namespace {

std::atomic<Device> process_default{kCpu};
static_assert(std::atomic<Device>::is_always_lock_free);

constinit thread_local const Device* thread_default = nullptr;  // in the innermost scope

}  // namespace

Device default_device() {
  return thread_default != nullptr ? *thread_default
                                   : process_default.load(std::memory_order_relaxed);
}

void set_default_device(Device device) { process_default.store(device, std::memory_order_relaxed); }

DefaultDeviceScope::DefaultDeviceScope(Device device) : device_(device), previous_(thread_default) {
  thread_default = &device_;
}

DefaultDeviceScope::~DefaultDeviceScope() { thread_default = previous_; }

int cuda_device_count() {
  static const int count = cuda::device_count();
  return count;
}

}  // namespace tessera
