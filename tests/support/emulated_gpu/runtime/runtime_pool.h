#pragma once

/// The count of one memory pool's bytes, as the driver counts them. Private to the emulated
/// runtime.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/tests/support/emulated_gpu/runtime/runtime_memory.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_order.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_streams.h"

namespace tessera::emulated {

inline std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// Not thread-safe. Memory that went back on one stream serves work of another one only where that
/// runs behind it, by events or by a host that waited, or where the pool's attributes allow more.
class Pool {
 public:
  explicit Pool(int device) : device(device) {}

  /// Takes bytes for work of `stream`; false where the GPU has no room.
  bool take(std::size_t bytes, const Stream* stream, const Order& host) {
    const Order behind = stream == nullptr ? Order() : stream->order();
    std::size_t available = 0;
    for (const Piece& piece : free_)
      if (fits(piece, stream, behind, host)) available += piece.bytes;
    if (available < bytes && !reserve(rounded_up(bytes - available, kReservation))) return false;
    std::size_t missing = bytes;
    for (Piece& piece : free_) {
      if (missing == 0) break;
      if (!fits(piece, stream, behind, host)) continue;
      const std::size_t taken = std::min(missing, piece.bytes);
      piece.bytes -= taken;
      missing -= taken;
    }
    std::erase_if(free_, [](const Piece& piece) { return piece.bytes == 0; });
    used_ += bytes;
    used_high_ = std::max(used_high_, used_);
    return true;
  }

  void give_back(std::size_t bytes, const Stream* stream) {
    used_ -= bytes;
    if (stream == nullptr) {
      free_.push_back({.stream = 0, .ticket = 0, .bytes = bytes});
    } else {
      free_.push_back({.stream = stream->id, .ticket = stream->last_ticket(), .bytes = bytes});
    }
  }

  /// Gives the GPU what no stream may still use, down to `least` reserved bytes.
  void trim(std::size_t least, const Order& host) {
    std::size_t idle = 0;
    for (const Piece& piece : free_)
      if (piece.stream == 0 || host.has(piece.stream, piece.ticket)) idle += piece.bytes;
    const std::size_t above = reserved_ > least ? reserved_ - least : 0;
    std::size_t bytes = std::min(idle, above) / kReservation * kReservation;
    reserved_ -= bytes;
    release_device_memory(device, bytes);
    for (Piece& piece : free_) {
      if (piece.stream != 0 && !host.has(piece.stream, piece.ticket)) continue;
      const std::size_t gone = std::min(bytes, piece.bytes);
      piece.bytes -= gone;
      bytes -= gone;
    }
    std::erase_if(free_, [](const Piece& piece) { return piece.bytes == 0; });
  }
  void trim_to_threshold(const Order& host) { trim(threshold_, host); }

  cudaError_t set(cudaMemPoolAttr which, const void* value) {
    if (which >= cudaMemPoolReuseFollowEventDependencies &&
        which <= cudaMemPoolReuseAllowInternalDependencies) {
      reuse_[which] = *static_cast<const int*>(value) != 0;
      return cudaSuccess;
    }
    const std::uint64_t number = *static_cast<const std::uint64_t*>(value);
    if (which == cudaMemPoolAttrReleaseThreshold) {
      threshold_ = number;
      return cudaSuccess;
    }
    if (number != 0) return cudaErrorInvalidValue;  // peaks can only be taken back
    if (which == cudaMemPoolAttrReservedMemHigh) {
      reserved_high_ = reserved_;
    } else if (which == cudaMemPoolAttrUsedMemHigh) {
      used_high_ = used_;
    } else {
      return cudaErrorInvalidValue;
    }
    return cudaSuccess;
  }

  cudaError_t get(cudaMemPoolAttr which, void* value) const {
    auto* number = static_cast<std::uint64_t*>(value);
    switch (which) {
      case cudaMemPoolAttrReservedMemCurrent:
        *number = reserved_;
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemHigh:
        *number = reserved_high_;
        return cudaSuccess;
      case cudaMemPoolAttrUsedMemCurrent:
        *number = used_;
        return cudaSuccess;
      case cudaMemPoolAttrUsedMemHigh:
        *number = used_high_;
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  }

  const int device;

 private:
  static constexpr std::size_t kReservation = std::size_t{2} << 20;  // what it takes from the GPU

  // Bytes that were returned behind a ticket of a stream; 0: they are not in use.
  struct Piece {
    std::uint64_t stream = 0, ticket = 0;
    std::size_t bytes = 0;
  };
  bool reserve(std::size_t bytes) {
    if (!hold_device_memory(device, bytes)) return false;
    reserved_ += bytes;
    reserved_high_ = std::max(reserved_high_, reserved_);
    free_.push_back({.bytes = bytes});
    return true;
  }
  bool fits(const Piece& piece, const Stream* stream, const Order& behind,
            const Order& host) const {
    if (piece.stream == 0 || host.has(piece.stream, piece.ticket)) return true;
    if (reuse_[cudaMemPoolReuseAllowInternalDependencies]) return true;
    if (stream == nullptr) return false;
    return piece.stream == stream->id || (reuse_[cudaMemPoolReuseFollowEventDependencies] &&
                                          behind.has(piece.stream, piece.ticket));
  }

  std::vector<Piece> free_;
  std::size_t used_ = 0, used_high_ = 0, reserved_ = 0, reserved_high_ = 0;
  std::uint64_t threshold_ = 0;
  std::array<bool, 4> reuse_{true, true, true, true};
};

}  // namespace tessera::emulated
