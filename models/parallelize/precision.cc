#include "tessera/models/parallelize/precision.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tessera/tensor/check.h"

namespace tessera::models {
namespace {

// One dtype for everything: it is its own master copy.
Precision plain(std::string name, DType dtype) {
  return {.name = std::move(name),
          .storage = dtype,
          .compute = dtype,
          .reduce = dtype,
          .accumulate = dtype,
          .buffer = dtype};
}

}  // namespace

const std::vector<std::string>& precision_names() {
  static const std::vector<std::string> names = {"f32", "bf16", "f16", "f64"};
  return names;
}

Precision precision_named(std::string_view name) {
  if (name == "f32") return {};
  if (name == "f64") return plain("f64", DType::kF64);
  if (name == "bf16") return {.name = "bf16", .compute = DType::kBF16};
  if (name == "f16") return {.name = "f16", .compute = DType::kF16};
  throw_error<InvalidArgument>("models.precision", "\"{}\" is no precision; there are: {}", name,
                               fmt::join(precision_names(), ", "));
}

std::string describe(const Precision& precision) {
  return fmt::format("storage {}, compute {}, reduce {}, accumulate {}, buffer {}",
                     dtype_name(precision.storage), dtype_name(precision.compute),
                     dtype_name(precision.reduce), dtype_name(precision.accumulate),
                     dtype_name(precision.buffer));
}

fsdp::MixedPrecision mixed_precision(const Precision& precision) {
  return {.param_dtype = precision.compute,
          .reduce_dtype = precision.reduce,
          .buffer_dtype = precision.buffer};
}

}  // namespace tessera::models
