#pragma once

// The parts of bench_gpu_bandwidth.

#include <cstdint>
#include <functional>

#include "tessera/tools/bench/bench_gpu_support.h"

namespace tessera {

// An operation and the bytes that it moves.
struct Moved {
  const char* op;
  const char* pass;
  std::int64_t bytes;  // minimum read and written
};

// Measures operations on tensors of one dtype against copies.
class Bandwidth {
 public:
  Bandwidth(const BenchRun& run, DType dtype);

  void measure(const Moved& moved, const std::function<void()>& body) const;

  bool smoke() const { return run_.smoke; }
  DType dtype() const { return dtype_; }
  Device device() const { return run_.device; }
  std::int64_t rows() const { return rows_; }
  std::int64_t width() const { return width_; }
  Tensor random(const Shape& shape, const char* name) const;
  Tensor matrix(const char* name) const { return random({rows_, width_}, name); }
  static std::int64_t bytes(const Tensor& x) {
    return x.numel() * static_cast<std::int64_t>(dtype_size(x.dtype()));
  }

 private:
  BenchRun run_;
  DType dtype_;
  std::int64_t rows_, width_;
};

// Norms, softmax and losses of rows; rotary positions.
void measure_rows(const Bandwidth& b);
void measure_embedding(const Bandwidth& b);
// Batch norm and pooling of images.
void measure_channels(const Bandwidth& b);
void measure_optimizers(const Bandwidth& b);

}  // namespace tessera
