#pragma once

/// Memory of a device, by stream.
///
/// A block belongs to the stream that was current when it was taken. Given back, it is kept and
/// handed out again *to that stream only*: work of one stream is ordered, so no event is needed for
/// reuse. Whoever lets another stream touch a block must order that stream's work before the
/// block's return (Stream::wait). Fresh CPU memory costs page faults, which is why blocks are kept.
///
/// CPU memory: what is kept is bounded by the largest amount that was ever in use at one time (at
/// least 256 MiB), to within 64 KiB a stream. When a stream is destroyed its kept blocks become
/// usable by every stream. GPU memory: the driver's stream-ordered pool keeps everything until
/// there is no room (see cuda/memory.h); a block may also go to a stream that waited for the one it
/// came back on.
///
/// Thread-safe. Counting: MemoryCounters of the rank that took the block, at the moment of taking
/// and giving back.

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

/// Owns one piece of device memory; destruction gives it back. Move-only. Empty blocks own nothing.
class Block {
 public:
  Block() = default;
  /// Takes `bytes` (0 is legal) for `stream`. CPU memory starts on 64-byte boundaries, or 256-byte
  /// ones from 4 KiB on; GPU memory on 256-byte ones. The contents are arbitrary; with
  /// TESSERA_POISON=1 in the environment, or in debug builds, NaN bytes (0xFF). Throws OutOfMemory
  /// with the bytes by category and the largest holders.
  static Block take(std::size_t bytes, const Stream& stream, MemoryCategory category);
  /// The same in page-locked memory of the CPU; `stream` is one of the CPU's. Ordinary memory where
  /// there is no GPU.
  static Block take_pinned(std::size_t bytes, const Stream& stream, MemoryCategory category);
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;
  ~Block() {
    if (data_ != nullptr) give_back();
  }

  bool empty() const { return data_ == nullptr; }
  void* data() const {
    return data_;
  }  ///< null only when empty; on the null device never to be touched
  std::size_t bytes() const { return bytes_; }  ///< as asked for
  std::int64_t counted_bytes() const;           ///< as counted: rounded up to the device's unit
  /// It was taken for this stream, so that work of it alone is what orders the memory's next use.
  /// Not when empty, and not what a CUDA graph uses, but for a graph that is captured right now its
  /// own: replays come back to it.
  bool belongs_to(const Stream& stream) const;

 private:
  friend class Storage;
  /// Of page-locked blocks: the stream they were taken for, and copies by GPUs under way.
  struct Pinned {
    Stream stream;
    std::vector<Event> transfers;
  };
  void count(MemoryCategory category);
  /// What the trace is told when the block of a detached storage goes back.
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
  StreamPool* pool_ = nullptr;          // on the CPU; lives while the block is out
  cuda::Queue* gpu_ = nullptr;          // on a GPU; the same
  MemoryCounters* counters_ = nullptr;  // live while bytes are counted; null for none
  std::unique_ptr<DetachNote> detach_note_;
  std::unique_ptr<Pinned> pinned_;  // null: ordinary memory
};

/// Bytes that a block of `bytes` counts: 0 stays 0, else rounded up to 64 (CPU, null) or 512
/// (CUDA).
std::int64_t counted_bytes(DeviceType type, std::size_t bytes);

/// Bytes taken from the operating system and kept for reuse, over all streams.
std::size_t cached_cpu_bytes();
/// Returns kept blocks to the operating system: the process's resident memory falls by them, but
/// for pages that small ones share with what else malloc gave out. Blocks in use stay, and so do
/// kept blocks that a queued stream may still be working on: synchronize it first to empty
/// everything.
void empty_cpu_cache();
/// The most bytes this process may hold of CPU memory, kept blocks included; 0: no limit but the
/// machine's. Beyond it Block::take throws OutOfMemory.
void set_cpu_memory_limit(std::size_t bytes);

}  // namespace tessera
