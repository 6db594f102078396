// Norms of rows on a GPU, and their derivatives, against the CPU's.
#include <catch2/catch.hpp>
#include <string>

#include "tessera/tensor/kernels/row_norm.h"
#include "tessera/tests/gpu/row_tensors.h"

namespace tessera::testing {
namespace {

struct Case {
  DType dtype = DType::kF32;
  RowNormShape shape;
  bool centered = true;
  bool affine = true;      // with a weight and a bias
  bool residual = false;   // forward: a summand; backward: another gradient of x
  std::int64_t first = 0;  // 1: misaligned
  bool narrow = false;     // weight, bias and their gradients in `dtype`
  double offset = 0;       // of x's mean

  DType compute() const { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }
  HostTensor rows() const {
    return {dtype, {shape.rows(), shape.length()}, {shape.length(), 1}, first};
  }
  HostTensor row_values() const { return {compute(), {shape.rows()}}; }
  HostTensor channels() const {
    return {narrow ? dtype : compute(), {shape.groups * shape.channels}, {1}, first};
  }
  std::string name() const {
    return std::string(dtype_name(dtype)) + " " + std::to_string(shape.samples) + " x " +
           std::to_string(shape.groups) + " x " + std::to_string(shape.channels) + " x " +
           std::to_string(shape.spatial) + (centered ? "" : ", rms") + (affine ? "" : ", plain") +
           (residual ? ", residual" : "") + (narrow ? ", narrow" : "") +
           (first > 0 ? ", misaligned" : "");
  }
};

// The result of a norm is about 1; its statistics may cancel a large mean.
Tolerance tolerance_of(const Case& c) {
  Tolerance t = close_in(c.dtype);
  t.atol += 2 * t.rtol;
  return t;
}

void compare_forward(const Case& c) {
  const HostTensor x = c.rows().random(c.offset - 3, c.offset + 3),
                   residual = c.rows().random(-2, 2, 2), sum = c.rows(), y = c.rows(),
                   weight = c.channels().random(0.5, 2), bias = c.channels().random(-1, 1, 3),
                   mean = c.row_values(), rstd = c.row_values();
  RowNormKernel::Args args;
  args.x = x;
  args.y = y;
  if (c.affine) args.weight = weight;
  if (c.affine) args.bias = bias;
  if (c.centered) args.mean = mean;
  args.rstd = rstd;
  args.shape = c.shape;
  args.centered = c.centered;
  args.eps = 1e-5;
  if (c.residual) args.residual = residual;
  if (c.residual) args.sum = sum;
  compare_devices<RowNormKernel>(c.name(), args, tolerance_of(c));
}

void compare_backward(const Case& c, bool needs_x = true, bool needs_weight = true) {
  const HostTensor dy = c.rows().random(-1, 1), x = c.rows().random(-3, 3, 2), dx = c.rows(),
                   weight = c.channels().random(0.5, 2), dweight = c.channels(),
                   dbias = c.channels(), mean = c.row_values().random(-0.1, 0.1),
                   rstd = c.row_values().random(0.5, 0.7), added = c.rows().random(-2, 2, 4);
  RowNormBackwardKernel::Args args;
  args.dy = dy;
  args.x = x;
  if (c.centered) args.mean = mean;
  args.rstd = rstd;
  if (c.affine) args.weight = weight;
  if (needs_x) args.dx = dx;
  if (needs_x && c.residual) args.added = added;
  if (needs_weight) args.dweight = dweight;
  if (c.centered) args.dbias = dbias;
  args.shape = c.shape;
  Tolerance tolerance = tolerance_of(c);
  const double terms = static_cast<double>(c.shape.samples * c.shape.spatial);
  // dweight and dbias are sums in f32 or f64, for every dtype of x.
  tolerance.atol += (c.dtype == DType::kF64 ? 1e-14 : 1e-6) * std::sqrt(terms + 1);
  compare_devices<RowNormBackwardKernel>(c.name(), args, tolerance);
}

void compare_both(const Case& c) {
  compare_forward(c);
  compare_backward(c);
  Case other = c;
  other.residual = true;
  compare_backward(other);
  if (dtype_size(c.dtype) > 2) return;
  other.narrow = true;
  compare_forward(other);
  compare_backward(other);
}

constexpr std::int64_t kWidths[] = {1, 3, 8, 31, 64, 255, 1024, 1025, 4096};

}  // namespace

TEST_CASE("layer norm on a GPU is the CPU's, for every dtype and length, aligned and not") {
  for (const DType dtype : kFloating) {
    for (const std::int64_t width : kWidths) {
      const Case c{.dtype = dtype, .shape = {.samples = 5, .channels = width}};
      compare_both(c);
      Case other = c;
      other.first = 1;
      compare_both(other);
      other = c;
      other.affine = false;
      compare_both(other);
    }
  }
}

TEST_CASE("RMS norm on a GPU is the CPU's, with and without a weight") {
  for (const DType dtype : kFloating) {
    for (const std::int64_t width : kWidths) {
      compare_both({.dtype = dtype, .shape = {.samples = 3, .channels = width}, .centered = false});
      compare_both({.dtype = dtype,
                    .shape = {.samples = 3, .channels = width},
                    .centered = false,
                    .affine = false});
    }
  }
}

TEST_CASE("group norm on a GPU is the CPU's: channels of many elements, and of one") {
  for (const DType dtype : kFloating) {
    for (const std::int64_t spatial : {1, 2, 9, 64, 300}) {
      const RowNormShape shape{.samples = 3, .groups = 2, .channels = 6, .spatial = spatial};
      compare_both({.dtype = dtype, .shape = shape});
      compare_both({.dtype = dtype, .shape = shape, .affine = false});
    }
    const RowNormShape aligned{.samples = 3, .groups = 2, .channels = 16};
    compare_both({.dtype = dtype, .shape = aligned});
  }
}

TEST_CASE("norms of rows that registers do not hold") {
  for (const std::int64_t width : {8192, 8200, 20001})
    compare_both({.shape = {.samples = 2, .channels = width}});
  for (const std::int64_t width : {16384, 16392})
    compare_both({.dtype = DType::kBF16, .shape = {.samples = 2, .channels = width}});
}

TEST_CASE("norms of many rows: several chunks of samples, more blocks than one") {
  compare_both({.shape = {.samples = 1500, .channels = 12}});
  compare_both({.dtype = DType::kBF16, .shape = {.samples = 333, .channels = 264}});
  compare_both({.shape = {.samples = 300, .groups = 2, .channels = 3, .spatial = 5}});
}

TEST_CASE("the variance of rows with a large mean does not cancel on a GPU either") {
  for (const std::int64_t width : {64, 1000}) {
    const Case c{.shape = {.samples = 4, .channels = width}, .offset = 1000};
    compare_forward(c);
  }
}

TEST_CASE("a norm of a sum with a residual, in one kernel") {
  for (const DType dtype : kFloating) {
    for (const std::int64_t width : {1, 31, 64, 1025, 4096, 17000}) {
      for (const bool centered : {true, false}) {
        compare_forward({.dtype = dtype,
                         .shape = {.samples = 3, .channels = width},
                         .centered = centered,
                         .residual = true});
      }
    }
    compare_forward(
        {.dtype = dtype, .shape = {.samples = 3, .channels = 33}, .residual = true, .first = 1});
  }
}

TEST_CASE("the gradients of a norm that are not needed are left alone") {
  const Case c{.shape = {.samples = 40, .channels = 64}, .centered = false};
  compare_backward(c, true, false);
  compare_backward(c, false, true);
  compare_backward({.shape = c.shape}, false, false);
}

TEST_CASE("norms of nothing") {
  for (const RowNormShape& shape :
       {RowNormShape{.samples = 0, .channels = 5}, RowNormShape{.samples = 4, .channels = 0},
        RowNormShape{.samples = 3, .groups = 2, .channels = 2, .spatial = 0}}) {
    compare_both({.shape = shape});
  }
}

}  // namespace tessera::testing
