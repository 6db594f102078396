#pragma once

/// Pinned host memory for copies that run while the host goes on. Private to this folder.

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

#include "tessera/tensor/cuda/pinned_sizes.h"
#include "tessera/tensor/cuda/queue.h"

namespace tessera::cuda {

/// Keeps its pieces; one is used again when the copy that used it last is done. Thread-safe.
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
    /// The piece is in use until the mark is reached, also after its end.
    void busy_until(std::shared_ptr<const Mark> mark) { busy_until_ = std::move(mark); }

   private:
    PinnedPool& pool_;
    void* data_;
    int size_class_;
    std::shared_ptr<const Mark> busy_until_;
  };

  static PinnedPool& instance();
  /// At most kLargestPinned bytes. Waits for the oldest copy of its size when a lot is under way.
  /// Throws OutOfMemory.
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
