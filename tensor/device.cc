#include "tessera/tensor/device.h"

#include <atomic>
#include <utility>

#include "tessera/tensor/thread_state.h"
#include "tessera/tools/cuda/device_count.h"

namespace tessera {
namespace {

std::atomic<Device> process_default{kCpu};
static_assert(std::atomic<Device>::is_always_lock_free);

}  // namespace

Device default_device() {
  const std::optional<Device>& scoped = detail::thread_state().settings.default_device;
  return scoped ? *scoped : process_default.load(std::memory_order_relaxed);
}

void set_default_device(Device device) { process_default.store(device, std::memory_order_relaxed); }

DefaultDeviceScope::DefaultDeviceScope(Device device)
    : previous_(std::exchange(detail::thread_state().settings.default_device, device)) {}

DefaultDeviceScope::~DefaultDeviceScope() {
  detail::thread_state().settings.default_device = previous_;
}

int cuda_device_count() {
  static const int count = cuda::device_count();
  return count;
}

}  // namespace tessera
