#pragma once

/// The receiver of a file's bytes, in order: a file, or what computes something of them on their
/// way.

#include <cstddef>

namespace tessera {

class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual void write(const void* data, std::size_t bytes) = 0;
};

}  // namespace tessera
