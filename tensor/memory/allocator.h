#pragma once

/// Device memory, allocated per stream.
///
/// A block belongs to the stream that was current when it was allocated. When it is returned, it is
/// cached and reused *by that stream only*: the work of one stream is ordered, so reuse needs no
/// event. If another stream uses a block, the caller must order that stream's work before the
/// block's return (DeviceStream::wait). Blocks are cached because fresh CPU memory costs page faults.
///
/// CPU memory: the cache is bounded by the largest amount that was ever in use at one time (at
/// least 256 MiB), to within 64 KiB for each stream. When a stream is destroyed, every stream may
/// reuse its cached blocks. GPU memory: the driver's stream-ordered pool keeps everything until
/// memory runs out (see cuda/memory.h); a block may also be reused by a stream that waited for the
/// stream on which the block was returned.
///
/// Thread-safe. Blocks are counted in the MemoryCounters of the rank that allocates them, from
/// allocation to return.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/tensor/device.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera {

class StreamPool;
namespace cuda {
class Queue;
}

/// Owns one piece of device memory and returns it on destruction. Move-only. Empty blocks own
/// nothing.
class MemoryBlock {
 public:
  MemoryBlock() = default;
  /// Allocates `bytes` (may be 0) for `stream`. CPU memory is aligned to 64 bytes, from 4 KiB on to
  /// 256; GPU memory to 256. The contents are undefined; with TESSERA_POISON=1 in the environment,
  /// or in debug builds, they are NaN bytes (0xFF). Throws OutOfMemory with the bytes by category
  /// and the largest holders.
  static MemoryBlock take(std::size_t bytes, const DeviceStream& stream, MemoryCategory category);
  /// The same in page-locked CPU memory; `stream` is a CPU stream. Ordinary memory if there is no
  /// GPU.
  static MemoryBlock take_pinned(std::size_t bytes, const DeviceStream& stream,
                                 MemoryCategory category);
  MemoryBlock(MemoryBlock&& other) noexcept;
  MemoryBlock& operator=(MemoryBlock&& other) noexcept;
  ~MemoryBlock() {
    if (data_ != nullptr) give_back();
  }

  bool empty() const { return data_ == nullptr; }
  /// Null only if empty; never dereference it on the null device.
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }  ///< as requested
  std::int64_t counted_bytes() const;           ///< rounded up to the device's unit
  /// True if the block was allocated for `stream`, so only that stream can still be using it. False
  /// for empty blocks and for memory owned by a captured CUDA graph, because replays use it again.
  /// While a graph is being captured, blocks that it allocated belong to its streams.
  bool belongs_to(const DeviceStream& stream) const;

 private:
  friend class TensorStorage;
  /// For page-locked blocks: the stream they were allocated for, and the GPU copies still running.
  struct Pinned {
    DeviceStream stream;
    std::vector<DeviceEvent> transfers;
  };
  void count(MemoryCategory category);
  /// What the trace records when the block of a detached storage is returned.
  struct DetachNote {
    std::uint64_t storage = 0;
    std::string name;
  };
  void give_back() noexcept;
  void trace_free() const noexcept;

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  DeviceType device_ = DeviceType::kCpu;
  MemoryCategory category_ = MemoryCategory::kOther;
  int size_class_ = 0;
  StreamPool* pool_ = nullptr;          // CPU; lives while the block is allocated
  cuda::Queue* gpu_ = nullptr;          // GPU; lives while the block is allocated
  MemoryCounters* counters_ = nullptr;  // valid while bytes are counted; null: not counted
  std::unique_ptr<DetachNote> detach_note_;
  std::unique_ptr<Pinned> pinned_;  // null: ordinary memory
};

/// The bytes counted for a block of `bytes`: 0 stays 0, else rounded up to a multiple of 64 (CPU,
/// null) or 512 (CUDA).
std::int64_t counted_bytes(DeviceType type, std::size_t bytes);

/// Bytes allocated from the operating system and cached for reuse, over all streams.
std::size_t cached_cpu_bytes();
/// Returns cached blocks to the operating system. The process's resident memory falls by their
/// size, except for pages that small blocks share with other malloc allocations. Blocks in use
/// stay, and so do cached blocks that a queued stream may still be using: synchronize the stream
/// first to release everything.
void empty_cpu_cache();
/// The most CPU memory, in bytes, that this process may hold, cached blocks included; 0: no limit.
/// Beyond it MemoryBlock::take throws OutOfMemory.
void set_cpu_memory_limit(std::size_t bytes);

}  // namespace tessera
