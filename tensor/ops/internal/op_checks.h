#pragma once

/// Checks that operations share. Private to this folder. `where` is the operation under the name
/// that the user calls.

#include "tessera/tensor/check.h"
#include "tessera/tensor/tensor.h"

namespace tessera::ops {

inline void check_defined(const char* where, const char* name, const Tensor& x) {
  TESSERA_CHECK(x.defined(), where, "{} is undefined; pass a tensor", name);
}

inline void check_floating(const char* where, const Tensor& x) {
  TESSERA_CHECK(is_floating(x.dtype()), where, "needs a floating dtype, got {}; cast it first",
                dtype_name(x.dtype()));
}

inline void check_same_device(const char* where, const Tensor& a, const Tensor& b) {
  TESSERA_CHECK(a.device() == b.device(), where,
                "operands are on {} and {}; move them to one device", a.device().str(),
                b.device().str());
}

inline void check_same_dtype(const char* where, const Tensor& a, const Tensor& b) {
  TESSERA_CHECK(a.dtype() == b.dtype(), where, "operands have dtypes {} and {}; cast one of them",
                dtype_name(a.dtype()), dtype_name(b.dtype()));
}

inline void check_same_shape(const char* where, const Tensor& a, const Tensor& b) {
  TESSERA_CHECK(a.shape() == b.shape(), where, "shapes {} and {} differ; they must be equal",
                a.shape().str(), b.shape().str());
}

/// Checks that both are defined and have one dtype and device.
inline void check_operands(const char* where, const Tensor& a, const Tensor& b) {
  check_defined(where, "the first operand", a);
  check_defined(where, "the second operand", b);
  check_same_dtype(where, a, b);
  check_same_device(where, a, b);
}

/// Checks c, to which a product of `shape` with the dtype and device of `a` is added.
inline void check_added(const char* where, const Tensor& c, const Tensor& a, const Shape& shape) {
  check_defined(where, "what is added", c);
  check_same_dtype(where, c, a);
  check_same_device(where, c, a);
  TESSERA_CHECK(
      broadcast_shapes(c.shape(), shape, where) == shape, where,
      "{} does not broadcast to the product's {}; it may have fewer dims, or extents of 1",
      c.shape().str(), shape.str());
}

}  // namespace tessera::ops
