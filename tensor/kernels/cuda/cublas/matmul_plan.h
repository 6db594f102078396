#pragma once

/// How a product becomes calls of cuBLASLt, without its types and without a GPU: what the operands
/// look like to it, what it does on the way out, and what is left for a kernel of ours. Pure
/// functions of the arguments, tested on the CPU.
///
/// The library takes matrices by columns. A matrix by rows is its transpose by columns, so instead
/// of c = a b it computes c^T = b^T a^T: b is the first operand, a the second.
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
/// *staged*: the bare product goes to scratch in f32 or f64, and a kernel finishes it.
///
/// Of activations the library applies gelu_tanh, to 16-bit results: its GELU is the form with tanh,
/// how exact is not documented, so f32 does without. It would also apply relu, as max(x, 0), which
/// makes 0 of NaN; ours keeps NaN. The others it does not have. What it leaves, a kernel applies.

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

/// Matrices by columns, as they lie in memory; strides in elements.
struct LtMatrix {
  DType dtype = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t leading = 0;       ///< from a column to the next; at least `rows`
  std::int64_t batch_stride = 0;  ///< from a matrix to the next; 0: one for all
  bool operator==(const LtMatrix&) const = default;
};

/// What a call computes: result = epilogue(alpha * first second + beta * result), either operand
/// transposed if it says so. The bias has result.rows elements. An algorithm is chosen by all of it
/// and by the alignment of addresses.
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

/// The longest batch of one call. The library has kernels that count matrices by the third
/// dimension of the grid, which ends at 65,535; half of that keeps addresses aligned.
inline constexpr std::int64_t kMostInBatch = 32768;
/// Of a bias or aux, in bytes: some algorithms read and write them in 16 bytes without asking.
inline constexpr std::size_t kEpilogueAlignment = 16;

/// One of a plan's calls: where its first matrices lie, in elements of each, and how many it takes.
struct MatmulCall {
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t c = 0;
  std::int64_t before = 0;
  std::int64_t batch = 1;
};

struct MatmulPlan {
  bool multiplies = true;  ///< false: k is 0
  bool staged = false;     ///< `plain` goes to scratch without gaps, alpha and beta are ours
  bool fuses = false;      ///< `fused` does everything at once, if the library has an algorithm
  LtProduct fused;         ///< result in c, aux in `before`
  LtProduct plain;         ///< result in scratch, `before` or c

  /// Dims of the batch that no regular stride covers are walked call by call.
  struct Loop {
    std::int64_t extent = 1;
    MatmulCall strides;
  };
  int loops = 0;
  Loop loop[kMaxDims];
  std::int64_t batch = 1;    ///< matrices along the regular stride
  MatmulCall batch_strides;  ///< of that stride
  std::int64_t calls = 1;

  MatmulCall call(std::int64_t index) const;
  /// Matrices along the regular stride take so many calls.
  std::int64_t pieces() const { return (batch + kMostInBatch - 1) / kMostInBatch; }
};

struct MatmulPlanOptions {
  bool tf32 = false;  ///< for f32 operands
};
/// Throws InvalidArgument for an extent that the library cannot count.
MatmulPlan plan_matmul(const MatmulKernel::Args& args, const MatmulPlanOptions& options = {});

/// Whether the library can read the bias where it lies: of the result's dtype, without gaps, and
/// aligned. Else it gets a converted copy.
bool takes_bias(const MatmulKernel::Args& args);

/// The parts of the scratch of one launch, in bytes, each a multiple of 256. Calls use them one
/// after another.
struct MatmulScratch {
  std::size_t bias = 0;     ///< a bias of the result's dtype, without gaps and aligned
  std::size_t product = 0;  ///< what is staged
  std::size_t library = 0;
  std::size_t total() const { return bias + product + library; }
};
/// The library gets room for 64 partial results beside 1 MiB, at most 32 MiB: what its makers
/// recommend for Hopper. (For older GPUs they recommend 4 MiB; more only lets it choose among more
/// algorithms.) A small product has no use for more than its own partial results, and does not
/// count as if it had. The same for all GPUs, because memory is planned from the arguments.
MatmulScratch matmul_scratch(const MatmulKernel::Args& args, const MatmulPlan& plan);

}  // namespace tessera::cuda
