#include "tessera/tensor/memory/pinned_blocks.h"

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "tessera/tensor/cuda/memory.h"
#include "tessera/tensor/cuda/pinned_sizes.h"

namespace tessera::detail {
namespace {

struct Piece {
  void* data;
  std::vector<DeviceEvent> until;

  bool is_free() const {
    return std::all_of(until.begin(), until.end(),
                       [](const DeviceEvent& each) { return each.is_ready(); });
  }
};

struct Pieces {
  std::mutex mutex;
  std::map<std::size_t, std::list<Piece>> kept;  // by size
};

// Never destroyed: blocks in static variables are returned after main() has ended.
Pieces& pieces() {
  static auto* all = new Pieces;
  return *all;
}

}  // namespace

void* take_pinned_block(std::size_t bytes) {
  const std::size_t size = cuda::pinned_block_bytes(bytes);
  {
    const std::lock_guard lock(pieces().mutex);
    std::list<Piece>& line = pieces().kept[size];
    const auto found =
        std::find_if(line.begin(), line.end(), [](const Piece& each) { return each.is_free(); });
    if (found != line.end()) {
      void* data = found->data;
      line.erase(found);
      return data;
    }
  }
  return cuda::take_pinned(size);
}

void give_back_pinned_block(void* data, std::size_t bytes, PinnedUse use) noexcept {
  try {
    if (use.stream.kind() == StreamKind::kQueued) use.transfers.push_back(use.stream.record());
    const std::lock_guard lock(pieces().mutex);
    pieces().kept[cuda::pinned_block_bytes(bytes)].push_back({data, std::move(use.transfers)});
  } catch (...) {
    // No host memory for the record: the piece is leaked rather than reused too early.
  }
}

}  // namespace tessera::detail
