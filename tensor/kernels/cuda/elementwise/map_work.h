#pragma once

/// The parameters of an elementwise kernel (map.h), made from the views of its arguments. Pure
/// functions.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/kernels/cuda/elementwise/runs.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cuda {

/// Number of elements that a thread takes at a time.
template <class C>
inline constexpr int kGroup = sizeof(C) <= 4 ? 8 : 4;

inline RunOperand run_operand(const ConstView& x) {
  return {.address = reinterpret_cast<std::uintptr_t>(x.data),
          .bytes = dtype_size(x.dtype),
          .strides = x.strides};
}
inline RunOperand run_operand(const View& y) {
  return {.address = reinterpret_cast<std::uintptr_t>(y.data),
          .bytes = dtype_size(y.dtype),
          .strides = y.strides,
          .in_a_row = true};
}

/// One input: an operand, or positions, which are not in memory but advance in runs.
struct MapInput {
  Operand operand;
  RunOperand run;

  MapInput(const Operand& from) : operand(from) {
    if (!from.is_number()) run = run_operand(from.view);
  }
  /// The i-th position is first + i . strides; a run begins at a multiple of its length.
  static MapInput positions(std::int64_t first, const Shape& strides) {
    MapInput input(Operand(0.0));
    input.run = {.address = static_cast<std::uintptr_t>(first),
                 .bytes = 1,
                 .strides = strides,
                 .in_a_row = true};
    return input;
  }
};

/// The parameters of a kernel with N inputs, computed in C.
template <class C, int N>
struct MapWork {
  Runs<N + 1> runs;  ///< the result is the last operand
  const void* data[N];
  DType dtypes[N];
  bool in_words[N];  ///< runs of 16 bytes, see load_inputs
  C numbers[N];      ///< for operands that are numbers
  void* y = nullptr;
  DType y_dtype = DType::kF32;
};

/// The result must not be empty.
template <class C, std::size_t N>
MapWork<C, static_cast<int>(N)> map_work(const View& y, const std::array<MapInput, N>& inputs) {
  MapWork<C, static_cast<int>(N)> work;
  std::array<RunOperand, N + 1> operands;
  std::transform(inputs.begin(), inputs.end(), operands.begin(),
                 [](const MapInput& input) { return input.run; });
  operands[N] = run_operand(y);
  work.runs = plan_runs(y.shape, operands, kGroup<C>);
  const int run = work.runs.run;
  for (std::size_t o = 0; o < N; ++o) {
    const Operand& from = inputs[o].operand;
    work.data[o] = from.is_number() ? nullptr : from.view.data;
    work.dtypes[o] = from.view.dtype;
    work.numbers[o] = static_cast<C>(from.number);
    work.in_words[o] = !from.is_number() && run > 1 && work.runs.steps[o] == 1 &&
                       static_cast<std::size_t>(run) * dtype_size(from.view.dtype) == 16;
  }
  work.y = y.data;
  work.y_dtype = y.dtype;
  return work;
}

}  // namespace tessera::cuda
