// Compares tensors: bit for bit, or within the tolerances for their dtype.
#pragma once

#include <string>

#include "tessera/tensor/tensor.h"

namespace tessera::testing {

// |a - b| <= atol + rtol * |b|, element by element.
struct Tolerance {
  double rtol;
  double atol;
};

// rtol and atol: f32 1.3e-6 and 1e-5; f64 1e-7 and 1e-7; bf16 1.6e-2 and 1e-5; f16 1e-3 and 1e-5;
// whole numbers and bool 0 and 0.
Tolerance default_tolerance(DType dtype);

// Converts to bool; `message` describes the difference and names the worst element.
struct CloseResult {
  bool ok = true;
  std::string message{};
  explicit operator bool() const { return ok; }
};

// Shapes and dtypes must be equal. A NaN or infinity is close only to the same value. Views may be
// strided.
CloseResult all_close(const Tensor& actual, const Tensor& expected, Tolerance tolerance);
CloseResult all_close(const Tensor& actual, const Tensor& expected);

// The same bits: 0.0 differs from -0.0, a NaN equals a NaN of the same bits.
CloseResult all_equal(const Tensor& actual, const Tensor& expected);

}  // namespace tessera::testing
