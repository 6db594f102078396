// The steps of running products as a GPU combines them, segment by segment, against one element
// after another.
#include "tessera/tensor/kernels/math/scan_steps.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

namespace tessera {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using List = std::vector<double>;

// Each segment of `size` elements is folded on its own and combined with what is before it.
template <class Step>
List in_segments(const List& x, std::size_t size) {
  List out;
  auto before = Step::none();
  for (std::size_t first = 0; first < x.size(); first += size) {
    auto segment = Step::none();
    for (std::size_t i = first; i < std::min(first + size, x.size()); ++i) {
      segment = Step::combine(segment, Step::of(x[i], static_cast<std::int64_t>(i)));
      out.push_back(Step::result(Step::combine(before, segment)));
    }
    before = Step::combine(before, segment);
  }
  return out;
}

List one_by_one(const List& x) {
  List out;
  double product = 1;
  for (const double factor : x) out.push_back(product *= factor);
  return out;
}

bool is_close(double got, double expected) {
  if (std::isnan(expected)) return std::isnan(got);
  if (expected == 0 || std::isinf(expected))
    return got == expected && std::signbit(got) == std::signbit(expected);
  return std::abs(got - expected) <= 1e-13 * std::abs(expected);
}

using GpuProdStep = SegmentStep<ProdStep<double>>;

void check_segments(const List& x) {
  const List expected = one_by_one(x);
  for (const std::size_t size : {1, 2, 3, 4, 5, 128}) {
    const List got = in_segments<GpuProdStep>(x, size);
    for (std::size_t i = 0; i < x.size(); ++i) {
      INFO("element " << i << " in segments of " << size << ": " << got[i] << ", expected "
                      << expected[i]);
      CHECK(is_close(got[i], expected[i]));
    }
  }
}

TEST_CASE("products: a later segment beyond f64's range does not harm what it is combined with") {
  check_segments({0, 1, 1, 1, 1e200, 1e200, 1, 1, 1});
  check_segments({1e-300, 1, 1, 1e200, 1e200, 1e200, 1});
  check_segments({1e300, 1, 1, 1e-200, 1e-200, 1e-200, 1});
  check_segments({0x1p-1074, 0x1p1000, 0x1p1000, 0x1p-1074, -1, 3});
  check_segments({kInf, 1, 1e-200, 1e-200, -1e-200});
  check_segments({-0.0, 1, 1e200, 1e200, -1});
  List zeros(3000, 1e300), infinities(3000, 1e-300);
  zeros[0] = 0;
  infinities[0] = -kInf;
  check_segments(zeros);
  check_segments(infinities);
}

TEST_CASE("products: infinities, NaN, overflow, underflow and zeros as one after another") {
  check_segments({2, kInf, 3, 0, 4});
  check_segments({2, 0, 3, -kInf, 4});
  check_segments({1, kNan, 0, kInf, 2});
  check_segments({1e200, -1e200, 1e200, 3});
  check_segments({1e-200, -1e-200, 1e-200, 3});
  check_segments(List(5000, 1e300));
  check_segments(List(5000, -1e-300));
  check_segments({});
}

TEST_CASE("products in the CPU's order: the CPU's bits within the range of normal numbers") {
  List x;
  for (int i = 0; i < 3000; ++i) x.push_back((i % 2 == 0 ? 1.7 : -0.6) + 0.001 * (i * 7919 % 97));
  const List got = in_segments<GpuProdStep>(x, x.size()), expected = one_by_one(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isnormal(expected[i])) break;
    INFO(i);
    CHECK(std::bit_cast<std::uint64_t>(got[i]) == std::bit_cast<std::uint64_t>(expected[i]));
  }
  CHECK(std::isnormal(expected[300]));
}

TEST_CASE("the workspace on a GPU holds the states of chunks") {
  ScanKernel::Args args;
  args.x.shape = {1 << 20};
  args.x.strides = {1};
  args.x.dtype = DType::kF32;
  args.op = ScanOp::kSum;
  const std::size_t chunks = ScanKernel::cuda_workspace(args) / sizeof(SumStep<double>::State);
  REQUIRE(chunks > 0);
  args.op = ScanOp::kProd;
  CHECK(ScanKernel::cuda_workspace(args) == chunks * sizeof(GpuProdStep::State));
  args.op = ScanOp::kMax;
  CHECK(ScanKernel::cuda_workspace(args) == chunks * sizeof(ExtremeStep<double, true>::State));
  args.x.dtype = DType::kI64;
  args.op = ScanOp::kProd;
  CHECK(ScanKernel::cuda_workspace(args) == chunks * sizeof(ProdStep<std::int64_t>::State));
}

}  // namespace
}  // namespace tessera
