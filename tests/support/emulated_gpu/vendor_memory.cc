#include "tessera/tests/support/emulated_gpu/vendor_memory.h"

#include "tessera/tests/support/emulated_gpu/runtime/runtime_memory.h"

namespace tessera::emulated {

bool is_device_memory(const void* at, std::size_t bytes) {
  const auto found = find_allocation(at);
  if (!found) return false;
  const auto* last = found->memory.get() + found->bytes;
  return static_cast<const std::byte*>(at) + bytes <= last;
}

}  // namespace tessera::emulated
