// The CUDA product against the CPU's: every dtype and layout, batches, epilogues, results in other
// dtypes, and epilogues that the library rejects.
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include "tessera/tensor/kernels/matmul.h"
#include "tessera/tensor/tf32.h"
#include "tessera/tests/gpu/comparison.h"

namespace tessera {
namespace {

using testing::compare_devices;
using testing::HostTensor;
using testing::Tolerance;

constexpr DType kFloating[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};

double unit(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-53;
    case DType::kBF16:
      return 0x1p-8;
    case DType::kF16:
      return 0x1p-11;
    default:
      return 0x1p-24;
  }
}

// Both sum up to k products of numbers up to 2, in different orders, and round once.
Tolerance sums(DType operands, DType result, std::int64_t k) {
  const double sum = unit(operands == DType::kF64 ? DType::kF64 : DType::kF32);
  return {.rtol = 2.1 * unit(result), .atol = 24 * sum * static_cast<double>(k + 2)};
}
// The library applies GELU to the unrounded sum, the CPU to the rounded one; the difference shows
// where the slope is steep and the value small.
Tolerance with_activation(Tolerance tolerance, DType result) {
  tolerance.rtol *= 2;
  tolerance.atol += 2 * unit(result);
  return tolerance;
}

// The layouts of a matrix, or batch of matrices, in products.
enum class Layout { kRows, kColumns, kWideRows, kWideColumns };
constexpr Layout kLayouts[] = {Layout::kRows, Layout::kColumns, Layout::kWideRows,
                               Layout::kWideColumns};

Shape with_matrix(const Shape& batch, std::int64_t rows, std::int64_t columns) {
  Shape shape = batch;
  shape.push_back(rows);
  shape.push_back(columns);
  return shape;
}

HostTensor matrices(DType dtype, const Shape& batch, std::int64_t rows, std::int64_t columns,
                    Layout layout, std::uint64_t seed, std::int64_t first = 0) {
  const bool by_rows = layout == Layout::kRows || layout == Layout::kWideRows;
  const std::int64_t gap = layout == Layout::kWideRows || layout == Layout::kWideColumns ? 3 : 0;
  const std::int64_t step = (by_rows ? columns : rows) + gap;
  std::int64_t row = by_rows ? step : 1, column = by_rows ? 1 : step;
  settle_strides(rows, columns, row, column);
  Shape strides = contiguous_strides(batch);
  for (int d = 0; d < batch.ndim(); ++d) strides[d] *= (by_rows ? rows : columns) * step;
  strides.push_back(row);
  strides.push_back(column);
  return HostTensor(dtype, with_matrix(batch, rows, columns), strides, first).random(-2, 2, seed);
}

struct Case {
  DType dtype = DType::kF32;
  std::int64_t m = 1, k = 1, n = 1;
  Layout a = Layout::kRows, b = Layout::kRows, c = Layout::kRows;
  Shape batch = {};
  DType result = DType::kF32;
  DType bias_dtype = DType::kF32;
  bool bias = false;
  bool before = false;
  ActivationKind activation = ActivationKind::kNone;
  double alpha = 1, beta = 0;
  std::int64_t first = 0;       // offset of a, b and c
  std::int64_t first_bias = 0;  // and of the bias
  std::int64_t bias_stride = 1;
  double slack = 0;  // tolerance in roundings of 1

  std::string text() const {
    return std::string(dtype_name(dtype)) + " " + std::to_string(m) + "x" + std::to_string(k) +
           "x" + std::to_string(n) + " to " + dtype_name(result) + ", layouts " +
           std::to_string(static_cast<int>(a)) + std::to_string(static_cast<int>(b)) +
           std::to_string(static_cast<int>(c)) + ", batch " + std::to_string(batch.numel()) +
           (bias ? ", bias " + std::string(dtype_name(bias_dtype)) : "") +
           (before ? ", before" : "") + ", activation " +
           std::to_string(static_cast<int>(activation)) + ", first " + std::to_string(first);
  }
};

void compare(const Case& x) {
  const HostTensor a = matrices(x.dtype, x.batch, x.m, x.k, x.a, 1, x.first),
                   b = matrices(x.dtype, x.batch, x.k, x.n, x.b, 2, x.first),
                   c = matrices(x.result, x.batch, x.m, x.n, x.c, 3, x.first),
                   before = matrices(x.result, x.batch, x.m, x.n, Layout::kRows, 4);
  const HostTensor bias =
      HostTensor(x.bias_dtype, {x.n}, {x.bias_stride}, x.first_bias).random(-2, 2, 5);
  MatmulKernel::Args args = {.a = a,
                             .b = b,
                             .bias = {},
                             .before = {},
                             .c = c,
                             .alpha = x.alpha,
                             .beta = x.beta,
                             .activation = x.activation};
  if (x.bias) args.bias = bias;
  if (x.before) args.before = before;
  Tolerance tolerance = sums(x.dtype, x.result, x.k);
  if (x.activation != ActivationKind::kNone) tolerance = with_activation(tolerance, x.result);
  tolerance.atol += x.slack * unit(x.result);
  compare_devices<MatmulKernel>(x.text(), args, tolerance);
}

}  // namespace

TEST_CASE("products: every dtype and layout") {
  for (DType dtype : kFloating) {
    for (Layout a : kLayouts) {
      for (Layout b : kLayouts)
        compare({.dtype = dtype, .m = 5, .k = 33, .n = 7, .a = a, .b = b, .result = dtype});
    }
    compare({.dtype = dtype, .m = 5, .k = 9, .n = 7, .c = Layout::kWideRows, .result = dtype});
  }
}

TEST_CASE("products: odd sizes, rows, columns, one number") {
  for (DType dtype : kFloating) {
    for (std::int64_t m : {1, 3, 31}) {
      for (std::int64_t n : {1, 8, 33}) {
        for (std::int64_t k : {1, 2, 65}) {
          compare({.dtype = dtype, .m = m, .k = k, .n = n, .result = dtype});
          compare({.dtype = dtype,
                   .m = m,
                   .k = k,
                   .n = n,
                   .a = Layout::kColumns,
                   .b = Layout::kColumns,
                   .result = dtype});
        }
      }
    }
    compare({.dtype = dtype, .m = 17, .k = 1025, .n = 9, .result = dtype});
    compare({.dtype = dtype, .m = 64, .k = 64, .n = 128, .result = dtype});
  }
}

TEST_CASE("products: misaligned operands, bias and result") {
  for (DType dtype : kFloating) {
    for (std::int64_t first : {1, 3}) {
      compare({.dtype = dtype, .m = 9, .k = 17, .n = 16, .result = dtype, .first = first});
      compare({.dtype = dtype,
               .m = 9,
               .k = 17,
               .n = 16,
               .result = dtype,
               .bias_dtype = dtype,
               .bias = true,
               .first_bias = first});
      compare({.dtype = dtype,
               .m = 9,
               .k = 17,
               .n = 16,
               .result = dtype,
               .bias_dtype = dtype,
               .bias = true,
               .before = true,
               .activation = ActivationKind::kGeluTanh,
               .first = first});
    }
  }
}

TEST_CASE("products: results of another dtype, and sums into one") {
  for (DType dtype : kFloating) {
    for (DType result : kFloating) {
      compare({.dtype = dtype, .m = 6, .k = 35, .n = 10, .result = result});
      compare({.dtype = dtype, .m = 6, .k = 35, .n = 16, .result = result, .beta = 1});
      compare({.dtype = dtype,
               .m = 6,
               .k = 35,
               .n = 9,
               .c = Layout::kWideRows,
               .result = result,
               .alpha = 0.5,
               .beta = -2});
    }
  }
}

TEST_CASE("products: bias of every dtype, also one number for all") {
  for (DType dtype : kFloating) {
    for (DType result : kFloating) {
      for (DType bias : kFloating) {
        for (std::int64_t stride : {1, 0}) {
          compare({.dtype = dtype,
                   .m = 4,
                   .k = 12,
                   .n = 11,
                   .result = result,
                   .bias_dtype = bias,
                   .bias = true,
                   .bias_stride = stride});
        }
      }
    }
  }
}

TEST_CASE("products: every activation, with and without what it is applied to") {
  for (DType dtype : kFloating) {
    for (ActivationKind activation :
         {ActivationKind::kNone, ActivationKind::kRelu, ActivationKind::kGelu,
          ActivationKind::kGeluTanh, ActivationKind::kSilu}) {
      for (bool before : {false, true}) {
        if (before && activation == ActivationKind::kNone) continue;
        for (bool bias : {false, true}) {
          // Rows of 16 satisfy all requirements of the library, rows of 13 do not.
          for (std::int64_t n : {16, 13})
            compare({.dtype = dtype,
                     .m = 5,
                     .k = 20,
                     .n = n,
                     .result = dtype,
                     .bias_dtype = dtype,
                     .bias = bias,
                     .before = before,
                     .activation = activation});
        }
      }
      compare({.dtype = dtype,
               .m = 5,
               .k = 20,
               .n = 16,
               .c = Layout::kWideRows,
               .result = dtype,
               .before = activation != ActivationKind::kNone,
               .activation = activation});
    }
  }
}

TEST_CASE("products: activations of results that the library does not write") {
  for (ActivationKind activation :
       {ActivationKind::kRelu, ActivationKind::kGelu, ActivationKind::kGeluTanh}) {
    for (bool before : {false, true}) {
      for (std::int64_t n : {24, 7}) {
        compare({.dtype = DType::kF32,
                 .m = 6,
                 .k = 11,
                 .n = n,
                 .result = DType::kBF16,
                 .bias = true,
                 .before = before,
                 .activation = activation});
        compare({.dtype = DType::kF64,
                 .m = 6,
                 .k = 11,
                 .n = n,
                 .c = Layout::kWideRows,
                 .result = DType::kF32,
                 .before = before,
                 .activation = activation});
      }
    }
  }
}

TEST_CASE("products: batches, also with bias and activation") {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Shape& batch : {Shape{3}, Shape{2, 3}, Shape{2, 1, 3}}) {
      for (Layout a : {Layout::kRows, Layout::kWideColumns}) {
        compare({.dtype = dtype,
                 .m = 5,
                 .k = 9,
                 .n = 8,
                 .a = a,
                 .b = Layout::kColumns,
                 .batch = batch,
                 .result = dtype});
        compare({.dtype = dtype,
                 .m = 3,
                 .k = 9,
                 .n = 8,
                 .a = a,
                 .batch = batch,
                 .result = dtype,
                 .bias_dtype = dtype,
                 .bias = true,
                 .before = true,
                 .activation = ActivationKind::kGeluTanh});
        compare({.dtype = dtype,
                 .m = 3,
                 .k = 9,
                 .n = 8,
                 .a = a,
                 .batch = batch,
                 .result = DType::kF16,
                 .beta = 1});
      }
    }
  }
}

TEST_CASE("products: heads beside each other, broadcast batches, and both at once") {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    // q [batch, tokens, heads, width] as [batch, heads, tokens, width]; no single stride covers
    // both dims.
    const std::int64_t batch = 2, heads = 3, tokens = 5, width = 8, row = heads * width;
    const HostTensor q =
        HostTensor(dtype, {batch, heads, tokens, width}, {tokens * row, width, row, 1})
            .random(-2, 2, 1);
    const HostTensor k =
        HostTensor(dtype, {batch, heads, width, tokens}, {tokens * row, width, 1, row})
            .random(-2, 2, 2);
    const HostTensor scores(dtype, {batch, heads, tokens, tokens});
    compare_devices<MatmulKernel>("scores", {.a = q, .b = k, .bias = {}, .before = {}, .c = scores},
                                  sums(dtype, dtype, width));
    // One key head for all; the result also with heads beside each other.
    const HostTensor one =
        HostTensor(dtype, {batch, heads, tokens, width}, {tokens * width, 0, width, 1})
            .random(-2, 2, 3);
    const HostTensor p = HostTensor(dtype, {batch, heads, tokens, tokens}).random(-1, 1, 4);
    const HostTensor out(dtype, {batch, heads, tokens, width}, {tokens * row, width, row, 1});
    compare_devices<MatmulKernel>("values", {.a = p, .b = one, .bias = {}, .before = {}, .c = out},
                                  sums(dtype, dtype, tokens));
    const HostTensor same =
        HostTensor(dtype, {batch, heads, width, width}, {0, 0, width, 1}).random(-2, 2, 5);
    compare_devices<MatmulKernel>("weights",
                                  {.a = q, .b = same, .bias = {}, .before = {}, .c = out},
                                  sums(dtype, dtype, width));
  }
}

TEST_CASE("products: more matrices than one call takes") {
  const Shape batch = {32769};
  compare({.dtype = DType::kF32, .m = 1, .k = 2, .n = 1, .batch = batch});
  compare({.dtype = DType::kBF16, .m = 1, .k = 1, .n = 2, .batch = batch, .result = DType::kF16});
}

TEST_CASE("products: an inner dim of 0") {
  for (DType dtype : kFloating) {
    for (double beta : {0.0, 1.0, 0.5})
      compare({.dtype = dtype, .m = 3, .k = 0, .n = 5, .result = dtype, .beta = beta});
    compare({.dtype = dtype,
             .m = 3,
             .k = 0,
             .n = 8,
             .batch = {2},
             .result = dtype,
             .bias_dtype = dtype,
             .bias = true,
             .before = true,
             .activation = ActivationKind::kGelu});
  }
}

TEST_CASE("products: relu and gelu keep NaN, and a result that is not read may hold it") {
  for (DType dtype : kFloating) {
    for (ActivationKind activation :
         {ActivationKind::kRelu, ActivationKind::kGelu, ActivationKind::kGeluTanh}) {
      const HostTensor a = HostTensor(dtype, {4, 8}).filled([](std::int64_t i) {
        return i == 3 ? std::numeric_limits<double>::quiet_NaN()
                      : 0.25 * static_cast<double>(i % 5);
      });
      const HostTensor b = HostTensor(dtype, {8, 16}).random(-2, 2, 2), c(dtype, {4, 16});
      compare_devices<MatmulKernel>(
          "NaN", {.a = a, .b = b, .bias = {}, .before = {}, .c = c, .activation = activation},
          with_activation(sums(dtype, dtype, 8), dtype));
    }
  }
}

TEST_CASE("products: f32 is f32, unless TF32 is allowed") {
  // 1 + 2^-11 is not representable in TF32, and its products with 1 show it.
  const HostTensor a =
      HostTensor(DType::kF32, {64, 64}).filled([](std::int64_t) { return 1 + 0x1p-11; });
  const HostTensor b = HostTensor(DType::kF32, {64, 64}).filled([](std::int64_t) { return 1; });
  const HostTensor c(DType::kF32, {64, 64});
  const MatmulKernel::Args args = {.a = a, .b = b, .bias = {}, .before = {}, .c = c};
  compare_devices<MatmulKernel>("f32", args, {.rtol = 1e-6});
  set_tf32_allowed(true);
  compare_devices<MatmulKernel>("TF32", args, {.rtol = 2e-3});
  set_tf32_allowed(false);
}

// The emulated library rejects epilogues that have one of these bits; the real library ignores
// this.
class Refused {
 public:
  explicit Refused(const char* bits) { ::setenv(kName, bits, 1); }
  ~Refused() { ::unsetenv(kName); }

 private:
  static constexpr const char* kName = "TESSERA_EMULATED_CUBLAS_REFUSED_EPILOGUES";
};

TEST_CASE("products: epilogues that the library refuses are applied after it") {
  // 32: gelu; 4: bias, and so also gelu with a bias. Each with a size of its own, because earlier
  // proposals are cached.
  for (const auto& [bits, m] : {std::pair<const char*, std::int64_t>{"32", 7}, {"4", 9}}) {
    const Refused refused(bits);
    for (DType dtype : kFloating) {
      for (ActivationKind activation :
           {ActivationKind::kNone, ActivationKind::kRelu, ActivationKind::kGeluTanh}) {
        for (bool before : {false, true}) {
          if (before && activation == ActivationKind::kNone) continue;
          for (std::int64_t n : {40, 7})
            // A bias that is added later is added to the rounded value.
            compare({.dtype = dtype,
                     .m = m,
                     .k = 21,
                     .n = n,
                     .batch = {2},
                     .result = dtype,
                     .bias_dtype = dtype,
                     .bias = true,
                     .before = before,
                     .activation = activation,
                     .slack = 32});
        }
      }
    }
  }
}

}  // namespace tessera
