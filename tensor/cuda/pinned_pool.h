#pragma once

/// Pinned host memory for asynchronous copies. Private to this folder.

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

#include "tessera/tensor/cuda/pinned_sizes.h"
#include "tessera/tensor/cuda/queue.h"

namespace tessera::cuda {

/// Caches its pieces; a piece is reused when its last copy has ended. Thread-safe.
class PinnedPool {
 public:
  /// Owns a piece until its end.
  class Piece {
   public:
    Piece(PinnedPool& pool, void* data, int size_class)
        : pool_(pool), data_(data), size_class_(size_class) {}
    ~Piece() { pool_.give_back(data_, size_class_, std::move(busy_until_)); }
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;

    void* data() const { return data_; }
    /// The piece is in use until the mark is reached, also after its destruction.
    void busy_until(std::shared_ptr<const Mark> mark) { busy_until_ = std::move(mark); }

   private:
    PinnedPool& pool_;
    void* data_;
    int size_class_;
    std::shared_ptr<const Mark> busy_until_;
  };

  static PinnedPool& instance();
  /// At most kLargestPinned bytes. If many copies are running, waits for the oldest one of this
  /// size. Throws OutOfMemory.
  Piece take(std::size_t bytes);

 private:
  struct Kept {
    void* data;
    std::shared_ptr<const Mark> busy_until;  // null: free
  };
  using Line = std::deque<Kept>;  // oldest first

  void give_back(void* data, int size_class, std::shared_ptr<const Mark> busy_until) noexcept;

  std::mutex mutex_;
  std::size_t allocated_ = 0;
  std::array<Line, kPinnedClasses> kept_;
};

}  // namespace tessera::cuda
