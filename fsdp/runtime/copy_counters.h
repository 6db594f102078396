#pragma once

/// Bytes that FSDP copied, by cause, besides the writes of the collectives. Header only.

#include <cstdint>

namespace tessera::fsdp {

struct CopyCounters {
  std::int64_t cast = 0;         ///< shards to the compute dtype, before a gather
  std::int64_t transfer = 0;     ///< between host and device, for offloaded parameters
  std::int64_t transposed = 0;   ///< Shard(d > 0): the sharded dim is moved to the front to be sent
  std::int64_t kept_part = 0;    ///< the 1/n that ReshardAfterForward(n) keeps
  std::int64_t extension = 0;    ///< packed and unpacked by a GatherExtension
  std::int64_t accumulated = 0;  ///< gradients that a kernel could not write into their slot
  std::int64_t reduced = 0;      ///< reduced gradients added to grad() or cast to its dtype

  std::int64_t total() const {
    return cast + transfer + transposed + kept_part + extension + accumulated + reduced;
  }
  bool operator==(const CopyCounters&) const = default;
};

}  // namespace tessera::fsdp
