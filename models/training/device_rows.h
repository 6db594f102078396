#pragma once

/// The rows of a batch where a model computes: what tasks load a step's share into.

#include "tessera/tensor/tensor.h"

namespace tessera::models {

/// Used by one thread.
class DeviceRows {
 public:
  /// Rows [n, ...] of the host, on the device. On a GPU they are copied to one place for as long as
  /// no share is larger, in stream order.
  void load(const Tensor& rows, Device device);
  /// Those that were loaded last.
  const Tensor& all() const { return rows_; }
  Tensor part(std::int64_t begin, std::int64_t end) const {
    return rows_.narrow(0, begin, end - begin);
  }

 private:
  bool has_room_for(const Tensor& rows) const;

  Tensor buffer_;  // on a GPU
  Tensor rows_;
};

}  // namespace tessera::models
