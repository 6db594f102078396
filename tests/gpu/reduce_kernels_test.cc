// Reductions on a GPU against the CPU's: the order is the same, and so are the bits, except if a
// maths library function is called.
#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "tessera/tensor/kernels/reduce.h"
#include "tessera/tests/gpu/row_tensors.h"

namespace tessera::testing {
namespace {

constexpr ReduceOp kAnyOps[] = {ReduceOp::kSum,         ReduceOp::kMax, ReduceOp::kMin,
                                ReduceOp::kProd,        ReduceOp::kAny, ReduceOp::kAll,
                                ReduceOp::kCountNonzero};
constexpr ReduceOp kFloatingOps[] = {ReduceOp::kMean,   ReduceOp::kSumOfSquares, ReduceOp::kNorm2,
                                     ReduceOp::kNormP,  ReduceOp::kSumAbs,       ReduceOp::kMaxAbs,
                                     ReduceOp::kMinAbs, ReduceOp::kLogSumExp,    ReduceOp::kVar,
                                     ReduceOp::kStddev};
constexpr DType kIntegers[] = {DType::kI64, DType::kI32, DType::kU8, DType::kBool};

bool is_exact(ReduceOp op, DType dtype) {
  if (op == ReduceOp::kNormP) return false;
  return op != ReduceOp::kLogSumExp || dtype != DType::kF64;
}

// The layout of an operand: kept dims, then reduced ones, and their strides.
struct Layout {
  std::string name;
  Shape shape;
  Shape strides;
  int kept = 0;
  std::int64_t first = 0;
};

Layout rows(std::int64_t outputs, std::int64_t n) { return {"rows", {outputs, n}, {n, 1}, 1}; }
Layout columns(std::int64_t n, std::int64_t outputs) {
  return {"columns", {outputs, n}, {1, outputs}, 1};
}

void compare(ReduceOp op, DType dtype, const Layout& layout) {
  Shape kept;
  for (int d = 0; d < layout.kept; ++d) kept.push_back(layout.shape[d]);
  const bool small = op == ReduceOp::kProd;
  const HostTensor x = HostTensor(dtype, layout.shape, layout.strides, layout.first)
                           .random(small ? 0.5 : -3, small ? 2 : 3),
                   y(is_floating(dtype) ? dtype : DType::kI64, kept),
                   shift = HostTensor(DType::kF64, kept).random(-1, 1, 2);
  ReduceKernel::Args args;
  args.x = x;
  args.y = y;
  args.kept_dims = layout.kept;
  args.op = op;
  args.parameter = op == ReduceOp::kNormP ? 3 : 1;
  if (op == ReduceOp::kLogSumExp || op == ReduceOp::kVar || op == ReduceOp::kStddev)
    args.shift = shift;
  compare_devices<ReduceKernel>(std::string(dtype_name(dtype)) + ", operation " +
                                    std::to_string(static_cast<int>(op)) + ", " + layout.name +
                                    " " + layout.shape.str(),
                                args, is_exact(op, dtype) ? Tolerance{} : close_in(dtype));
}

void compare_sums(const Layout& layout) {
  for (const DType dtype : kFloating) {
    compare(ReduceOp::kSum, dtype, layout);
    compare(ReduceOp::kNorm2, dtype, layout);
  }
}

// Small layouts for every operation, dtype and path.
std::vector<Layout> few_elements() {
  return {rows(5, 70),
          rows(3, 1064),
          columns(70, 5),
          columns(1100, 24),
          {"every second", {4, 50}, {120, 2}, 1},
          {"several dims", {2, 3, 4, 5}, {60, 5, 15, 1}, 2},
          {"misaligned", {3, 64}, {64, 1}, 1, 1}};
}

}  // namespace

TEST_CASE("every reduction of floating dtypes on a GPU gives the CPU's bits") {
  for (const DType dtype : kFloating) {
    for (const Layout& layout : few_elements()) {
      for (const ReduceOp op : kAnyOps) compare(op, dtype, layout);
      for (const ReduceOp op : kFloatingOps) compare(op, dtype, layout);
    }
  }
}

TEST_CASE("every reduction of integers on a GPU gives the CPU's bits") {
  for (const DType dtype : kIntegers) {
    for (const Layout& layout : few_elements()) {
      for (const ReduceOp op : kAnyOps) compare(op, dtype, layout);
    }
  }
}

TEST_CASE("sums of rows on a GPU, of any length and number") {
  for (const std::int64_t n : {1, 3, 4, 15, 16, 17, 64, 1000, 1024, 1025, 2048, 5000, 65536})
    compare_sums(rows(3, n));
  for (const std::int64_t outputs : {1, 2, 63, 64, 65, 1001}) {
    compare_sums(rows(outputs, 32));
    compare_sums(rows(outputs, 9));
  }
}

// Enough blocks for reads in packs.
TEST_CASE("sums of many rows on a GPU, 16 bytes at a time") {
  compare_sums(rows(16400, 8));
  compare_sums(rows(8200, 40));
  for (const ReduceOp op : kFloatingOps) compare(op, DType::kBF16, rows(16400, 24));
  for (const ReduceOp op : kAnyOps) compare(op, DType::kF32, rows(8200, 24));
  compare_sums({"padded", {16400, 24}, {32, 1}, 1});
}

TEST_CASE("the sum of a whole tensor on a GPU: groups of blocks, and groups of groups") {
  for (const std::int64_t n : {65537, 70001, 300000}) compare_sums(rows(1, n));
  compare(ReduceOp::kSum, DType::kF32, rows(1, 5000000));
  compare(ReduceOp::kNorm2, DType::kBF16, rows(1, 17000008));
  compare(ReduceOp::kMax, DType::kF32, rows(2, 200000));
  compare(ReduceOp::kSum, DType::kI32, rows(2, 100000));
}

TEST_CASE("sums of columns on a GPU, of any width and number") {
  for (const std::int64_t width : {2, 3, 8, 31, 64, 65, 255, 264, 520}) {
    compare_sums(columns(40, width));
    compare_sums(columns(1500, width));
  }
  compare_sums(columns(70000, 3));
  compare_sums(columns(66000, 8));
  compare_sums({"middle dim", {3, 64, 20}, {1280, 1, 64}, 2});
  compare_sums({"broadcast rows", {16, 30}, {1, 0}, 1});
}

TEST_CASE("sums of rows on a GPU are the CPU's, aligned and not, of many rows and columns") {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const std::int64_t rows : {0, 1, 31, 33, 1000, 20000}) {
      for (const std::int64_t columns : {1, 8, 31, 256, 264, 1030}) {
        if (rows * columns > 5000000) continue;
        for (const std::int64_t gap : {0, 8, 3}) {
          const HostTensor x =
              HostTensor(dtype, {rows, columns}, {columns + gap, 1}, gap % 2).random(-1, 1);
          for (const double beta : {0.0, 1.0}) {
            RowSumKernel::Args args;
            args.x = x;
            const HostTensor y = HostTensor(DType::kF32, {columns}).random(-1, 1, 2);
            args.y = y;
            args.beta = beta;
            const std::string name = std::string(dtype_name(dtype)) + " " + std::to_string(rows) +
                                     " x " + std::to_string(columns) + ", gap " +
                                     std::to_string(gap);
            compare_devices<RowSumKernel>(
                name, args,
                {.rtol = 1e-5, .atol = 2e-6 * std::sqrt(static_cast<double>(rows + 1))});
          }
        }
      }
    }
  }
}

TEST_CASE("reductions of nothing on a GPU") {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMean}) {
    compare(op, DType::kF32, rows(4, 0));
    compare(op, DType::kF32, columns(0, 4));
    compare(op, DType::kF32, rows(0, 4));
  }
  compare(ReduceOp::kSum, DType::kF32, {"a number", {}, {}, 0});
}

TEST_CASE("a NaN wins over numbers on a GPU, and infinities are met") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kSum, ReduceOp::kLogSumExp,
                            ReduceOp::kCountNonzero, ReduceOp::kMaxAbs}) {
    const HostTensor x = HostTensor(DType::kF32, {4, 300}).filled([=](std::int64_t i) {
      if (i == 299) return std::nan("");
      if (i == 301) return infinity;
      return i >= 600 && i < 900 ? -infinity : 1.0;
    });
    const HostTensor y(DType::kF32, {4}),
        shift = HostTensor(DType::kF64, {4}).filled([=](std::int64_t i) {
          return i == 1 ? infinity : i == 2 ? -infinity : 1;
        });
    ReduceKernel::Args args;
    args.x = x;
    args.y = y;
    args.kept_dims = 1;
    args.op = op;
    if (op == ReduceOp::kLogSumExp) args.shift = shift;
    compare_devices<ReduceKernel>("special", args);
  }
}

}  // namespace tessera::testing
