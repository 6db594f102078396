#pragma once

/// The rows of a step's share on the model's device. Tasks load into it.

#include "tessera/tensor/tensor.h"

namespace tessera::models {

/// Only one thread may use it.
class DeviceRows {
 public:
  /// Copies rows [n, ...] from the host to the device. On a GPU the address stays the same as long
  /// as no share is larger; copies are in stream order.
  void load(const Tensor& rows, Device device);
  /// The rows that were loaded last.
  const Tensor& all() const { return rows_; }
  Tensor part(std::int64_t begin, std::int64_t end) const {
    return rows_.narrow(0, begin, end - begin);
  }

 private:
  bool has_room_for(const Tensor& rows) const;

  Tensor buffer_;  // only on a GPU
  Tensor rows_;
};

}  // namespace tessera::models
