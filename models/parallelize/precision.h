#pragma once

/// The dtypes of a run, by one name.
///
///     name  storage  compute  reduce  accumulate  buffer
///     f32   f32      f32      f32     f32         f32
///     f64   f64      f64      f64     f64         f64
///     bf16  f32      bf16     f32     f32         f32
///     f16   f32      f16      f32     f32         f32    and a loss scale

#include <string>
#include <string_view>
#include <vector>

#include "tessera/fsdp/options.h"
#include "tessera/tensor/dtype.h"

namespace tessera::models {

struct Precision {
  std::string name = "f32";
  DType storage = DType::kF32;  ///< of parameters, gradients and optimizer state: the master copy
  DType compute = DType::kF32;  ///< of gathered values and of activations
  DType reduce = DType::kF32;   ///< of gradients until they are reduced over the ranks
  DType accumulate = DType::kF32;  ///< of accumulation inside matrix products, norms, softmax and
                                   ///< losses
  DType buffer = DType::kF32;      ///< of floating-point buffers

  /// True if gradients of small losses underflow in the compute dtype (f16).
  bool needs_loss_scale() const { return compute == DType::kF16; }
  bool operator==(const Precision&) const = default;
};

/// f32, bf16, f16, f64.
const std::vector<std::string>& precision_names();
/// Throws InvalidArgument for an unknown name, listing the known ones.
Precision precision_named(std::string_view name);
/// "storage f32, compute bf16, reduce f32, accumulate f32, buffer f32".
std::string describe(const Precision& precision);
/// The options for fully_shard and replicate. The model must be constructed with `storage`.
fsdp::MixedPrecision mixed_precision(const Precision& precision);

}  // namespace tessera::models
