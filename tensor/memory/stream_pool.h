#pragma once

/// The CPU memory that one stream keeps for reuse, and how far that stream has got: below streams
/// and the allocator, for these two only.
///
/// Blocks come in size classes: multiples of 64 bytes up to 1 KiB, then eight to a doubling, so at
/// most an eighth is wasted. A kept block remembers what its stream had been told to do when it
/// came back; the stream itself may take it at once, the operating system only when that work has
/// run. Thread-safe.
///
/// A pool lives as long as its pieces are out, so who holds one needs no handle of the pool.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/tensor/memory/spin_lock.h"

namespace tessera {

inline constexpr int kSizeClasses = 312;
/// The largest block: 2^47 bytes, the address space of a process.
inline constexpr std::size_t kMaxBlockBytes = std::size_t{1} << 47;
/// The smallest class that holds `bytes` (at most kMaxBlockBytes), and the bytes of a class.
int size_class_of(std::size_t bytes);
std::size_t size_class_bytes(int size_class);

/// Memory of the process in the hands of pools and their users.
struct CpuMemory {
  std::size_t from_system = 0;
  std::size_t kept = 0;
};
CpuMemory cpu_memory();
void set_cpu_memory_bound(std::size_t bytes);
/// Returns to the operating system what no pending work uses. Large pieces are mapped one by one
/// and go at once; small ones are malloc's, whose free pages go with them.
void release_kept_cpu_memory();
/// From this size on a piece has a mapping of its own.
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

  /// A piece of `size_class` or the next one; null data when there is no room.
  Piece take(int size_class);
  void give_back(Piece piece) noexcept;
  /// The stream has ended and all its work has run: everything kept, now and later, is for all
  /// streams.
  void retire() noexcept;
  /// Returns finished pieces to the operating system, largest first, until `bytes` are back.
  /// Answers the bytes returned.
  std::size_t evict(std::size_t bytes) noexcept;
  /// Kept bytes that the totals of the process do not know of yet; may be negative.
  std::ptrdiff_t unreported() const;

  /// Work of the stream: closures it was given, and those that ran. An inline stream stays at 0.
  std::atomic<std::uint64_t> issued{0};
  std::atomic<std::uint64_t> completed{0};

 private:
  struct Kept {
    void* data;
    std::uint64_t returned_at;  // value of `issued`
  };
  // For holders of the lock:
  bool pop(int size_class, Piece* piece);
  void push(Piece piece, std::uint64_t returned_at);
  void count_kept(std::ptrdiff_t bytes);

  Piece take_elsewhere(int size_class);
  void put_down() noexcept;
  static StreamPool& shared();

  mutable detail::SpinLock lock_;
  bool retired_ = false;
  std::size_t out_ = 0;               // pieces taken and not given back
  std::shared_ptr<StreamPool> self_;  // while there are any
  std::ptrdiff_t unreported_ = 0;
  std::array<std::vector<Kept>, kSizeClasses> kept_;
};

}  // namespace tessera
