#pragma once

/// The operations of the emulated cuDNN on memory: f32 inside, f64 where an operation's compute
/// type is that; each rounds once, when it stores.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>

#include "tessera/tensor/half.h"
#include "tessera/tests/support/emulated_gpu/cudnn/cudnn_graph.h"

namespace tessera::emulated::cudnn {

/// How an engine computes products.
struct Manner {
  bool tf32 = false;       ///< f32 operands are rounded to 10 bits of mantissa first
  bool backwards = false;  ///< sums run from last to first
};

/// Where tensors begin, by id.
using Places = std::map<std::int64_t, char*>;

void run_operation(const Graph& graph, const Operation& operation, const Places& places,
                   Manner manner);
/// The three kinds of convolution.
void run_convolution(const Graph& graph, const Operation& operation, const Places& places,
                     Manner manner);

template <class T>
T load(const void* base, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + index * sizeof(T), sizeof(T));
  return value;
}

template <class Number>
Number read(cudnnDataType_t type, const void* base, std::int64_t index) {
  switch (type) {
    case CUDNN_DATA_HALF:
      return static_cast<float>(load<Float16>(base, index));
    case CUDNN_DATA_BFLOAT16:
      return static_cast<float>(load<BFloat16>(base, index));
    case CUDNN_DATA_DOUBLE:
      return static_cast<Number>(load<double>(base, index));
    case CUDNN_DATA_INT32:
      return static_cast<Number>(load<std::int32_t>(base, index));
    case CUDNN_DATA_BOOLEAN:
      return load<unsigned char>(base, index) != 0 ? Number(1) : Number(0);
    default:
      return load<float>(base, index);
  }
}

template <class Number>
void write(cudnnDataType_t type, void* base, std::int64_t index, Number value) {
  const auto put = [&](auto stored) {
    std::memcpy(static_cast<char*>(base) + index * sizeof stored, &stored, sizeof stored);
  };
  switch (type) {
    case CUDNN_DATA_HALF:
      return put(Float16(value));
    case CUDNN_DATA_BFLOAT16:
      return put(BFloat16(value));
    case CUDNN_DATA_DOUBLE:
      return put(static_cast<double>(value));
    case CUDNN_DATA_INT32:
      return put(static_cast<std::int32_t>(value));
    case CUDNN_DATA_BOOLEAN:
      return put(static_cast<unsigned char>(value != 0));
    default:
      return put(static_cast<float>(value));
  }
}

/// A factor of a product, as the engine takes it.
template <class Number>
Number operand(Manner manner, Number value) {
  const auto narrow = static_cast<float>(value);
  const auto bits = std::bit_cast<std::uint32_t>(narrow);
  if (!manner.tf32 || (bits & 0x7f800000u) == 0x7f800000u) return value;
  return std::bit_cast<float>((bits + 0x1000u) & ~0x1fffu);
}

}  // namespace tessera::emulated::cudnn
