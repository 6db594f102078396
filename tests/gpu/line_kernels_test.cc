// Running results, searches and positions of extremes along lines on a GPU, and rotary embedding,
// against the CPU's.
#include <catch2/catch.hpp>
#include <limits>
#include <string>

#include "tessera/tensor/kernels/order.h"
#include "tessera/tensor/kernels/rotary.h"
#include "tessera/tensor/kernels/scan.h"
#include "tessera/tensor/kernels/search.h"
#include "tessera/tests/gpu/row_tensors.h"

namespace tessera::testing {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64,
                             DType::kI64, DType::kI32,  DType::kU8,  DType::kBool};

void compare_cumsum(DType dtype, std::int64_t rows, std::int64_t n, RowLayout layout) {
  for (const bool reverse : {false, true}) {
    const HostTensor x = rows_tensor(dtype, rows, n, layout).random(-3, 5),
                     y = rows_tensor(is_floating(dtype) ? dtype : DType::kI64, rows, n, layout);
    ScanKernel::Args args;
    args.x = x;
    args.y = y;
    args.reverse = reverse;
    Tolerance tolerance = close_in(dtype);
    if (dtype == DType::kF64) tolerance = {.rtol = 1e-12, .atol = 1e-10};
    compare_devices<ScanKernel>(row_case(dtype, rows, n, layout), args,
                                is_floating(dtype) ? tolerance : Tolerance{});
  }
}

// The other running results. Few different numbers near 1, so that products stay in range.
void compare_scan(ScanOp op, DType dtype, std::int64_t rows, std::int64_t n, RowLayout layout) {
  const bool extreme = op == ScanOp::kMax || op == ScanOp::kMin;
  if (op == ScanOp::kLogCumSumExp && !is_floating(dtype)) return;
  const HostTensor x = rows_tensor(dtype, rows, n, layout).filled([&](std::int64_t i) {
    const auto value = static_cast<double>(i * 7919 % 13);
    if (!is_floating(dtype)) return value - 6;
    if (extreme && i % 997 == 996) return std::nan("");
    return 1 + (value - 6) / 1024;
  });
  const HostTensor y =
      rows_tensor(extreme || !is_floating(dtype) ? DType::kI64 : dtype, rows, n, layout);
  ScanKernel::Args args;
  args.x = x;
  args.y = y;
  args.op = op;
  Tolerance tolerance = close_in(dtype);
  if (dtype == DType::kF64) tolerance = {.rtol = 1e-11, .atol = 1e-10};
  compare_devices<ScanKernel>(row_case(dtype, rows, n, layout), args,
                              extreme || !is_floating(dtype) ? Tolerance{} : tolerance);
}

constexpr ScanOp kOtherScans[] = {ScanOp::kProd, ScanOp::kMax, ScanOp::kMin, ScanOp::kLogCumSumExp};

void compare_search(DType dtype, std::int64_t rows, std::int64_t n, RowLayout layout) {
  for (const bool right : {false, true}) {
    const HostTensor x = rows_tensor(dtype, rows, 37, layout).random(-1, 9);
    const HostTensor sorted = rows_tensor(dtype, rows, n, layout).filled([&](std::int64_t i) {
      return static_cast<double>(i % n * 8 / n);
    });
    const HostTensor y(DType::kI64, {rows, 37});
    SearchSortedKernel::Args args;
    args.sorted = sorted;
    args.x = x;
    args.y = y;
    args.right = right;
    compare_devices<SearchSortedKernel>(row_case(dtype, rows, n, layout), args);
  }
}

// Few different numbers, so that many are equal.
void compare_arg_extreme(DType dtype, std::int64_t rows, std::int64_t n, RowLayout layout) {
  for (const bool largest : {false, true}) {
    const HostTensor x = rows_tensor(dtype, rows, n, layout).filled([&](std::int64_t i) {
      const double value = static_cast<double>(i * 7919 % 13);
      return is_floating(dtype) && i % 997 == 996 ? std::nan("") : value;
    });
    const HostTensor y(DType::kI64, {rows}, {layout == RowLayout::kPadded ? 3 : 1});
    ArgExtremeKernel::Args args;
    args.x = x;
    args.y = y;
    args.largest = largest;
    compare_devices<ArgExtremeKernel>(row_case(dtype, rows, n, layout), args);
  }
}

struct RotaryCase {
  DType dtype = DType::kF32;
  Shape shape;    // [batch, positions, heads, features]
  Shape strides;  // of x; y is contiguous
  std::int64_t pairs = 0;
  std::int64_t first = 0;
};

void compare_rotary(const RotaryCase& c) {
  const DType compute = c.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const Shape table{c.shape[1], c.pairs};
  for (const bool interleaved : {false, true}) {
    for (const bool inverse : {false, true}) {
      const HostTensor x = HostTensor(c.dtype, c.shape, c.strides, c.first).random(),
                       y(c.dtype, c.shape), cos = HostTensor(compute, table).random(-1, 1, 2),
                       sin = HostTensor(compute, table).random(-1, 1, 3);
      RotaryKernel::Args args;
      args.x = x;
      args.y = y;
      args.cos = cos;
      args.sin = sin;
      args.interleaved = interleaved;
      args.inverse = inverse;
      compare_devices<RotaryKernel>(std::string(dtype_name(c.dtype)) + " " + c.shape.str(), args);
    }
  }
}

}  // namespace

TEST_CASE("running sums on a GPU, for every dtype, layout and length, in both directions") {
  for (const DType dtype : kDTypes) {
    for (const RowLayout layout : kRowLayouts) {
      for (const std::int64_t n : {1, 3, 31, 33, 255, 1025}) compare_cumsum(dtype, 3, n, layout);
    }
  }
}

TEST_CASE("running sums of long lines on a GPU: chunk after chunk") {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32}) {
    compare_cumsum(dtype, 1, 100003, RowLayout::kContiguous);
    compare_cumsum(dtype, 3, 5000, RowLayout::kTransposed);
    compare_cumsum(dtype, 2, 4097, RowLayout::kEverySecond);
  }
  compare_cumsum(DType::kF32, 1000, 5, RowLayout::kContiguous);
}

// One thread goes along a line, as on the CPU.
TEST_CASE("running sums along lines side by side keep the CPU's bits") {
  const HostTensor x = HostTensor(DType::kF64, {70, 900}, {1, 70}).random(),
                   y(DType::kF64, {70, 900}, {1, 70});
  ScanKernel::Args args;
  args.x = x;
  args.y = y;
  compare_devices<ScanKernel>("side by side", args);
}

TEST_CASE("running products, extremes and log-sum-exp on a GPU, also chunk after chunk") {
  for (const ScanOp op : kOtherScans) {
    for (const DType dtype : kDTypes) {
      for (const RowLayout layout : {RowLayout::kContiguous, RowLayout::kTransposed}) {
        for (const std::int64_t n : {1, 33, 1025}) compare_scan(op, dtype, 3, n, layout);
      }
    }
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32}) {
      compare_scan(op, dtype, 1, 100003, RowLayout::kContiguous);
      compare_scan(op, dtype, 3, 5000, RowLayout::kTransposed);
    }
    compare_scan(op, DType::kF32, 4, 0, RowLayout::kContiguous);
  }
}

TEST_CASE("running products on a GPU: later factors that alone leave the range of f64") {
  for (const std::int64_t n : {9, 100, 5000, 100003}) {
    for (const bool huge : {false, true}) {
      const HostTensor x = HostTensor(DType::kF64, {n}).filled([=](std::int64_t i) {
        if (i == 0) return huge ? 0.0 : std::numeric_limits<double>::infinity();
        return huge ? 1e200 : 1e-200;
      });
      const HostTensor y(DType::kF64, {n});
      ScanKernel::Args args;
      args.x = x;
      args.y = y;
      args.op = ScanOp::kProd;
      compare_devices<ScanKernel>("beyond f64", args);
    }
  }
}

TEST_CASE("positions among sorted elements on a GPU") {
  for (const DType dtype : kDTypes) {
    for (const RowLayout layout : kRowLayouts) {
      for (const std::int64_t n : {1, 33, 1000}) compare_search(dtype, 3, n, layout);
    }
  }
  compare_search(DType::kF32, 0, 4, RowLayout::kContiguous);
}

TEST_CASE("places of extremes on a GPU: the first of equals, the first NaN") {
  for (const DType dtype : kDTypes) {
    for (const RowLayout layout : kRowLayouts) {
      for (const std::int64_t n : {1, 3, 31, 33, 255, 1025})
        compare_arg_extreme(dtype, 3, n, layout);
    }
    compare_arg_extreme(dtype, 1, 60001, RowLayout::kContiguous);
    compare_arg_extreme(dtype, 3, 5000, RowLayout::kTransposed);
  }
  compare_arg_extreme(DType::kF32, 1000, 6, RowLayout::kContiguous);
}

TEST_CASE("the place of an extreme among infinities alone, and in no line") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const bool largest : {false, true}) {
    const HostTensor x = HostTensor(DType::kF32, {2, 3000}).filled([=](std::int64_t i) {
      return i < 3000 ? -infinity : infinity;
    });
    const HostTensor y(DType::kI64, {2}), none(DType::kF32, {0, 5}), no_place(DType::kI64, {0});
    ArgExtremeKernel::Args args;
    args.x = x;
    args.y = y;
    args.largest = largest;
    compare_devices<ArgExtremeKernel>("infinities", args);
    args.x = none;
    args.y = no_place;
    compare_devices<ArgExtremeKernel>("no line", args);
  }
  compare_cumsum(DType::kF32, 0, 4, RowLayout::kContiguous);
  compare_cumsum(DType::kF32, 4, 0, RowLayout::kContiguous);
}

TEST_CASE("rotary embedding on a GPU gives the CPU's bits, for every layout") {
  for (const DType dtype : kFloating) {
    compare_rotary({dtype, {2, 5, 3, 64}, {960, 192, 64, 1}, 32});
    compare_rotary({dtype, {2, 5, 3, 64}, {960, 192, 64, 1}, 16});
    compare_rotary({dtype, {2, 5, 3, 64}, {960, 192, 64, 1}, 0});
    compare_rotary({dtype, {2, 3, 5, 64}, {960, 64, 192, 1}, 32});
    compare_rotary({dtype, {2, 5, 3, 10}, {150, 30, 10, 1}, 3});
    compare_rotary({dtype, {2, 5, 3, 64}, {960, 192, 64, 1}, 32, 1});
    compare_rotary({dtype, {2, 3, 4, 16}, {1, 2, 6, 24}, 8});
  }
  compare_rotary({DType::kBF16, {3, 70, 8, 128}, {71680, 1024, 128, 1}, 64});
  compare_rotary({DType::kF32, {0, 5, 3, 8}, {120, 24, 8, 1}, 4});
}

TEST_CASE("the table of angles on a GPU, of late positions too") {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const std::int64_t offset : {0, 100000}) {
      const HostTensor cos(dtype, {33, 20}), sin(dtype, {33, 20});
      RotaryTableKernel::Args args;
      args.cos = cos;
      args.sin = sin;
      args.offset = offset;
      // The angle is computed with pow() in f64, which may differ in its last bit.
      const double atol = dtype == DType::kF64 ? 1e-10 : 1e-6;
      compare_devices<RotaryTableKernel>("table", args, {.rtol = 0, .atol = atol});
    }
  }
  const HostTensor none(DType::kF32, {0, 4});
  RotaryTableKernel::Args args;
  args.cos = none;
  args.sin = none;
  compare_devices<RotaryTableKernel>("no positions", args);
}

}  // namespace tessera::testing
