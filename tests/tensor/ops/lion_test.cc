// The step of Lion: against a slow loop, over segments of any length and dtype.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/optim.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/nn_support.h"

namespace tessera {
namespace {

using namespace testing;

struct LionState {
  Tensor p, g, m;
};

LionState lion_state(const Shape& shape, DType dtype, DType state) {
  return {.p = cast(spread_tensor<double>(shape, -1, 1), dtype),
          .g = cast(spread_tensor<double>(shape, -3, 3), dtype),
          .m = cast(spread_tensor<double>(shape, -2, 1), state)};
}

LionSegment segment_of(const LionState& s) {
  return {.parameter = s.p,
          .gradient = s.g,
          .exp_avg = s.m,
          .lr = 0.05,
          .beta1 = 0.8,
          .beta2 = 0.6,
          .weight_decay = 0.1};
}

// Element by element, in f64, from the same numbers.
LionState slow_lion(const LionState& s, int steps, double sign) {
  auto p = cast(s.p, DType::kF64).to_vector<double>();
  auto m = cast(s.m, DType::kF64).to_vector<double>();
  const auto g = cast(s.g, DType::kF64).to_vector<double>();
  for (std::size_t i = 0; i < p.size(); ++i) {
    for (int step = 0; step < steps; ++step) {
      const double c = 0.8 * m[i] + (1 - 0.8) * sign * g[i];
      p[i] -= 0.05 * ((c > 0 ? 1 : c < 0 ? -1 : 0) + 0.1 * p[i]);
      m[i] = 0.6 * m[i] + (1 - 0.6) * sign * g[i];
    }
  }
  return {
      .p = Tensor::from_vector(p, s.p.shape()), .g = {}, .m = Tensor::from_vector(m, s.p.shape())};
}

TEST_CASE("lion_step: every dtype of parameter and state, against a slow loop") {
  const std::vector<std::pair<DType, DType>> dtypes = {{DType::kF64, DType::kF64},
                                                       {DType::kF32, DType::kF32},
                                                       {DType::kBF16, DType::kF32},
                                                       {DType::kBF16, DType::kBF16},
                                                       {DType::kF16, DType::kF32}};
  for (const auto& [dtype, state] : dtypes) {
    INFO(dtype_name(dtype) << " with state of " << dtype_name(state));
    for (const Shape& shape : {Shape{0}, Shape{1}, Shape{3, 171}, Shape{70'001}}) {
      const LionState s = lion_state(shape, dtype, state);
      const LionState expected = slow_lion(s, 1, 1);
      lion_step({segment_of(s)});
      CHECK(all_close(s.p, cast(expected.p, dtype)));
      CHECK(all_close(s.m, cast(expected.m, state)));
    }
  }
  for (bool maximize : {false, true}) {
    const LionState s = lion_state({501}, DType::kF64, DType::kF64);
    const LionState expected = slow_lion(s, 5, maximize ? -1 : 1);
    LionSegment segment = segment_of(s);
    segment.maximize = maximize;
    for (int step = 0; step < 5; ++step) lion_step({segment});
    CHECK(all_close(s.p, expected.p));
    CHECK(all_close(s.m, expected.m));
  }
  lion_step({});
}

TEST_CASE("lion_step: nothing moves where average and gradient are 0; NaN is seen") {
  const Tensor p = full({3}, 2), m = zeros({3});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  lion_step({{.parameter = p,
              .gradient = Tensor::from_vector<float>({0, 1, nan}, {3}),
              .exp_avg = m,
              .lr = 0.5}});
  const auto got = p.to_vector<float>();
  CHECK(got[0] == 2);
  CHECK(got[1] == 1.5F);
  CHECK(std::isnan(got[2]));
}

TEST_CASE("lion_step: equal bits for any number of threads and any cut into segments") {
  const auto step = [](std::vector<std::int64_t> cuts) {
    const LionState s = lion_state({100'003}, DType::kF32, DType::kF32);
    std::vector<LionSegment> segments;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      LionSegment segment = segment_of(s);
      for (Tensor* tensor : {&segment.parameter, &segment.gradient, &segment.exp_avg})
        *tensor = tensor->slice(0, cuts[i], cuts[i + 1]);
      segments.push_back(segment);
    }
    lion_step(segments);
    return s.p.to_vector<float>();
  };
  CHECK(same_for_any_threads([&] { return step({0, 100'003}); }));
  CHECK(same_bits(step({0, 100'003}), step({0, 1, 20, 50'001, 50'001, 100'003})));
}

TEST_CASE("lion_step: errors") {
  const auto message = [](const LionSegment& segment) {
    return thrown<InvalidArgument>([&] { lion_step({segment}); });
  };
  const LionState s = lion_state({4}, DType::kF32, DType::kF32);
  CHECK(message({}) == "[lion_step] the parameter is undefined; pass a tensor");
  CHECK(message({.parameter = s.p, .gradient = s.g}) ==
        "[lion_step] exp_avg is undefined; pass a tensor");
  LionSegment segment = segment_of(s);
  segment.beta1 = -0.5;
  CHECK(message(segment) == "[lion_step] betas are -0.5 and 0.6; they must lie in [0, 1)");
  segment = segment_of(s);
  segment.exp_avg = zeros({3});
  CHECK(message(segment) == "[lion_step] shapes [4] and [3] differ; they must be equal");
}

}  // namespace
}  // namespace tessera
