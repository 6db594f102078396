#pragma once

/// Plans how a product becomes cuBLASLt calls, without the library's types and without a GPU: the
/// operands, the epilogue, and the steps that are left for our kernel. Pure functions of the
/// arguments, tested on the CPU.
///
/// The library takes column-major matrices. A row-major matrix is its transpose in column-major
/// order, so instead of c = a b it computes c^T = b^T a^T: b is the first operand, a the second.
///
/// What the library can write (its table of types; sums in f32, in f64 for f64):
///
///     a, b            result
///     bf16            bf16, f32
///     f16             f16, f32
///     f32             f32
///     f64             f64
///
/// in each case with a beta, and with a bias of the result's dtype. Everything else (f32 into bf16,
/// bf16 into f16 or f64, f64 into f32, a bias wider than the result) and an inner dim of 0 is
/// *staged*: the bare product is written to scratch in f32 or f64, and our kernel finishes it.
///
/// Of the activations the library applies gelu_tanh, to 16-bit results: its GELU is the tanh form,
/// with undocumented accuracy, so it is not used for f32. The library's relu is max(x, 0), which
/// turns NaN into 0; ours keeps NaN. It does not have the other activations. Our kernel applies
/// these.

#include <cstddef>
#include <cstdint>

#include "tessera/tensor/kernels/matmul.h"

namespace tessera::cuda {

enum class LtCompute : std::uint8_t { kF32, kTf32, kF64 };

/// In the order of application: bias, a copy of the result so far (aux), gelu_tanh.
enum class LtEpilogue : std::uint8_t { kNone, kBias, kGelu, kGeluBias, kGeluAux, kGeluAuxBias };
constexpr bool has_bias(LtEpilogue epilogue) {
  return epilogue == LtEpilogue::kBias || epilogue == LtEpilogue::kGeluBias ||
         epilogue == LtEpilogue::kGeluAuxBias;
}
constexpr bool has_aux(LtEpilogue epilogue) {
  return epilogue == LtEpilogue::kGeluAux || epilogue == LtEpilogue::kGeluAuxBias;
}

/// Column-major matrices as they lie in memory; strides in elements.
struct LtMatrix {
  DType dtype = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t leading = 0;       ///< distance between columns; at least `rows`
  std::int64_t batch_stride = 0;  ///< distance between matrices; 0: one matrix for all
  bool operator==(const LtMatrix&) const = default;
};

/// The computation of one call: result = epilogue(alpha * first second + beta * result), each
/// operand transposed if its flag says so. The bias has result.rows elements. The choice of the
/// algorithm depends on all fields and on the alignment of addresses.
struct LtProduct {
  LtCompute compute = LtCompute::kF32;
  LtEpilogue epilogue = LtEpilogue::kNone;
  bool first_transposed = false;
  bool second_transposed = false;
  LtMatrix first;
  LtMatrix second;
  LtMatrix result;
  std::int64_t aux_leading = 0;
  std::int64_t aux_batch_stride = 0;
  std::int64_t batch = 1;
  bool operator==(const LtProduct&) const = default;
};

/// The largest batch of one call. Some kernels of the library count matrices in the third dimension
/// of the grid, whose limit is 65,535; half of that keeps addresses aligned.
inline constexpr std::int64_t kMostInBatch = 32768;
/// Of a bias or aux, in bytes: some algorithms access them 16 bytes at a time without checking.
inline constexpr std::size_t kEpilogueAlignment = 16;

/// One of a plan's calls: offsets of its first matrices, in elements, and the number of matrices.
struct MatmulCall {
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t c = 0;
  std::int64_t before = 0;
  std::int64_t batch = 1;
};

struct MatmulPlan {
  bool multiplies = true;  ///< false if k is 0
  bool staged = false;     ///< `plain` is written to scratch without gaps; our kernel applies alpha
                           ///< and beta
  bool fuses = false;      ///< `fused` does everything in one call, if the library has an algorithm
  LtProduct fused;         ///< result in c, aux in `before`
  LtProduct plain;         ///< result in scratch, `before` or c

  /// Dims of the batch that no regular stride covers are looped over, one call each.
  struct Loop {
    std::int64_t extent = 1;
    MatmulCall strides;
  };
  int loops = 0;
  Loop loop[kMaxDims];
  std::int64_t batch = 1;    ///< matrices along the regular stride
  MatmulCall batch_strides;  ///< of the regular stride
  std::int64_t calls = 1;

  MatmulCall call(std::int64_t index) const;
  /// The number of calls for the matrices along the regular stride.
  std::int64_t pieces() const { return (batch + kMostInBatch - 1) / kMostInBatch; }
};

struct MatmulPlanOptions {
  bool tf32 = false;  ///< for f32 operands
};
/// Throws InvalidArgument for an extent that exceeds the library's limits.
MatmulPlan plan_matmul(const MatmulKernel::Args& args, const MatmulPlanOptions& options = {});

/// Whether the library can read the bias in place: in the result's dtype, without gaps, and
/// aligned. Else it gets a converted copy.
bool takes_bias(const MatmulKernel::Args& args);

/// The parts of the scratch of one launch, in bytes, each a multiple of 256. Calls use them one
/// after another.
struct MatmulScratch {
  std::size_t bias = 0;     ///< a bias of the result's dtype, without gaps and aligned
  std::size_t product = 0;  ///< the staged product
  std::size_t library = 0;
  std::size_t total() const { return bias + product + library; }
};
/// The library's workspace: room for 64 partial results plus 1 MiB, at most 32 MiB, which NVIDIA
/// recommends for Hopper. (For older GPUs 4 MiB are recommended; more only adds algorithms to
/// choose from.) A small product can only use its own partial results, and its workspace is smaller
/// accordingly. The same for all GPUs, because memory is planned from the arguments.
MatmulScratch matmul_scratch(const MatmulKernel::Args& args, const MatmulPlan& plan);

}  // namespace tessera::cuda
