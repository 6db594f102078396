#include <cstdint>

#include "tessera/distributed/nccl/copy_segments.h"

namespace tessera::distributed {

int copy_unit(const CopySegment& segment) {
  std::uint64_t all = reinterpret_cast<std::uintptr_t>(segment.from) |
                      reinterpret_cast<std::uintptr_t>(segment.to) |
                      static_cast<std::uint64_t>(segment.row_bytes);
  if (segment.rows > 1) {
    all |= static_cast<std::uint64_t>(segment.from_pitch) |
           static_cast<std::uint64_t>(segment.to_pitch);
  }
  int unit = 16;
  while (all % static_cast<std::uint64_t>(unit) != 0) unit /= 2;
  return unit;
}

}  // namespace tessera::distributed
