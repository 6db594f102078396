#pragma once

/// Checks and conversions that the norms share. Private to this folder.

#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera::ops {

/// A parameter of a norm, contiguous and of one dim, in x's dtype or x's compute dtype; undefined
/// stays undefined. Throws unless it has `shape`, one of these dtypes and x's device.
inline Tensor stored_norm_parameter(const char* where, const char* name, const Tensor& parameter,
                                    const Tensor& x, const Shape& shape) {
  if (!parameter.defined()) return {};
  const DType compute = compute_dtype(x.dtype());
  check_same_device(where, x, parameter);
  TESSERA_CHECK(parameter.dtype() == x.dtype() || parameter.dtype() == compute, where,
                "the {} has dtype {}; with an input of {} it must be {}; cast one of them", name,
                dtype_name(parameter.dtype()), dtype_name(x.dtype()), dtype_name(compute));
  TESSERA_CHECK(parameter.shape() == shape, where,
                "the {} has shape {}; an input of shape {} needs {}", name, parameter.shape().str(),
                x.shape().str(), shape.str());
  return contiguous(parameter).view({shape.numel()});
}

/// The same, converted to x's compute dtype.
inline Tensor norm_parameter(const char* where, const char* name, const Tensor& parameter,
                             const Tensor& x, const Shape& shape) {
  const Tensor stored = stored_norm_parameter(where, name, parameter, x, shape);
  return stored.defined() ? cast(stored, compute_dtype(x.dtype())) : stored;
}

/// A required statistic: as norm_parameter, in x's compute dtype.
inline Tensor norm_statistic(const char* where, const char* name, const Tensor& statistic,
                             const Tensor& x, const Shape& shape) {
  check_defined(where, name, statistic);
  check_same_device(where, x, statistic);
  const DType compute = compute_dtype(x.dtype());
  TESSERA_CHECK(statistic.dtype() == compute && statistic.shape() == shape, where,
                "{} is {} of shape {}; an input of {} and shape {} needs {} of shape {}", name,
                dtype_name(statistic.dtype()), statistic.shape().str(), dtype_name(x.dtype()),
                x.shape().str(), dtype_name(compute), shape.str());
  return contiguous(statistic).view({shape.numel()});
}

inline void check_eps(const char* where, double eps) {
  TESSERA_CHECK(eps >= 0, where, "eps is {}; it must not be negative", eps);
}

}  // namespace tessera::ops
