#pragma once

/// The CPU memory that one stream caches for reuse, and the stream's progress. Lies below streams
/// and the allocator, and is used by these two only.
///
/// Blocks come in size classes: multiples of 64 bytes up to 1 KiB, then eight classes per power of
/// two, so at most an eighth is wasted. A cached block remembers the work that its stream had been
/// given when the block was returned. The stream itself may reuse the block at once; it goes back
/// to the operating system only when that work has run. Thread-safe.
///
/// Large blocks lie in mappings, each just below the one before where the system allows it. If none of
/// the right class is cached, all cached large blocks become ranges of free addresses, adjacent ones are
/// joined, and the smallest that is large enough is split. So blocks of one size are made of those of
/// another, and a pool that needs many sizes in turn holds less than the most of each.
///
/// A pool lives as long as any of its pieces is in use, so the holder of a piece needs no pool
/// handle.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/tensor/memory/free_ranges.h"
#include "tessera/tensor/memory/spin_lock.h"

namespace tessera {

inline constexpr int kSizeClasses = 312;
/// The largest block: 2^47 bytes, the address space of a process.
inline constexpr std::size_t kMaxBlockBytes = std::size_t{1} << 47;
/// The smallest class that holds `bytes` (at most kMaxBlockBytes), and the bytes of a class.
int size_class_of(std::size_t bytes);
std::size_t size_class_bytes(int size_class);

/// Memory of the process that is cached in pools or in use.
struct CpuMemory {
  std::size_t from_system = 0;
  std::size_t kept = 0;
};
CpuMemory cpu_memory();
void set_cpu_memory_bound(std::size_t bytes);
/// Returns the memory that no pending work uses to the operating system. Large pieces are unmapped at
/// once; small ones belong to malloc, whose free pages are trimmed too.
void release_kept_cpu_memory();
/// Pieces of this size and larger are large: parts of mappings, not of malloc's memory.
inline constexpr std::size_t kMappedBytes = std::size_t{1} << 20;

/// Owned by a shared_ptr.
class StreamPool : public std::enable_shared_from_this<StreamPool> {
 public:
  struct Piece {
    void* data = nullptr;
    int size_class = 0;
  };

  StreamPool();
  ~StreamPool();
  StreamPool(const StreamPool&) = delete;
  StreamPool& operator=(const StreamPool&) = delete;

  /// A piece of `size_class` or the next one; null data if there is no memory.
  Piece take(int size_class);
  void give_back(Piece piece) noexcept;
  /// The stream has ended and all its work has run: all pieces cached now and later may be used by
  /// all streams.
  void retire() noexcept;
  /// Returns finished memory to the operating system, until `bytes` are returned: first free ranges, then
  /// pieces, both largest first.
  /// Returns the number of bytes.
  std::size_t evict(std::size_t bytes) noexcept;
  /// Cached bytes not yet added to the process's totals; may be negative.
  std::ptrdiff_t unreported() const;

  /// Progress of the stream: closures issued, and closures run. Both stay 0 for an inline stream.
  std::atomic<std::uint64_t> issued{0};
  std::atomic<std::uint64_t> completed{0};

 private:
  struct Kept {
    void* data;
    std::uint64_t returned_at;  // value of `issued`
  };
  // The caller holds the lock:
  bool pop(int size_class, Piece* piece);
  bool pop_of_class(int size_class, Piece* piece);
  void push(Piece piece, std::uint64_t returned_at);
  void add_free(FreeRanges::Range range);
  void join_large();
  void count_kept(std::ptrdiff_t bytes);

  Piece take_elsewhere(int size_class);
  void* map_more(std::size_t bytes);
  void put_down() noexcept;
  static StreamPool& shared();

  mutable detail::SpinLock lock_;
  bool retired_ = false;
  std::size_t out_ = 0;               // pieces taken and not returned
  std::shared_ptr<StreamPool> self_;  // set while out_ > 0
  std::ptrdiff_t unreported_ = 0;
  std::array<std::vector<Kept>, kSizeClasses> kept_;
  FreeRanges ranges_;       // of large pieces
  char* lowest_ = nullptr;  // where the last mapping begins
};

}  // namespace tessera
