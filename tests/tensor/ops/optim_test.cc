// Optimizer steps: against slow loops and PyTorch, over segments of any length and dtype.
#include "tessera/tensor/ops/optim.h"

#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/support/reference.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/nn_support.h"

namespace tessera {
namespace {

using namespace testing;

struct SgdCase {
  double lr, momentum, dampening, decay;
  bool nesterov;
};

template <class T>
void check_sgd(const SgdCase& c) {
  const std::vector<std::int64_t> lengths = {5, 0, 1, 70'001};
  std::vector<SgdSegment> segments;
  std::vector<std::vector<double>> p, g, m;
  for (std::int64_t n : lengths) {
    const bool has_momentum = c.momentum != 0;
    segments.push_back({.parameter = spread_tensor<T>({n}, -1, 1),
                        .gradient = spread_tensor<T>({n}, -3, 3),
                        .momentum = has_momentum ? zeros({n}, {.dtype = dtype_of<T>}) : Tensor(),
                        .lr = c.lr,
                        .momentum_factor = c.momentum,
                        .dampening = c.dampening,
                        .weight_decay = c.decay,
                        .nesterov = c.nesterov});
    p.push_back(cast(segments.back().parameter, DType::kF64).to_vector<double>());
    g.push_back(cast(segments.back().gradient, DType::kF64).to_vector<double>());
    m.emplace_back(p.back().size());
  }
  for (int step = 0; step < 3; ++step) {
    for (SgdSegment& s : segments) s.first_step = step == 0;
    sgd_step(segments);
    for (std::size_t s = 0; s < p.size(); ++s) {
      for (std::size_t i = 0; i < p[s].size(); ++i) {
        const double grad = g[s][i] + c.decay * p[s][i];
        m[s][i] = step == 0 ? grad : c.momentum * m[s][i] + (1 - c.dampening) * grad;
        const double by = c.momentum == 0 ? grad
                          : c.nesterov    ? grad + c.momentum * m[s][i]
                                          : m[s][i];
        p[s][i] -= c.lr * by;
      }
    }
  }
  double worst = 0;
  for (std::size_t s = 0; s < p.size(); ++s) {
    const auto got = cast(segments[s].parameter, DType::kF64).to_vector<double>();
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(got[i] - p[s][i]));
  }
  CHECK(worst <= (sizeof(T) == 4 ? 2e-6 : 1e-14));
}

TEST_CASE("sgd_step: PyTorch's definition, over segments of any length") {
  for (const SgdCase& c : {SgdCase{0.1, 0, 0, 0, false}, SgdCase{0.1, 0, 0, 0.01, false},
                           SgdCase{0.1, 0.9, 0, 0, false}, SgdCase{0.05, 0.9, 0.1, 0.01, false},
                           SgdCase{0.1, 0.9, 0, 0.01, true}}) {
    check_sgd<float>(c);
    check_sgd<double>(c);
  }
  sgd_step({});
}

TEST_CASE("sgd_step: equal bits for any number of threads and any cut into segments") {
  const auto step = [](std::vector<std::int64_t> cuts) {
    const Tensor p = spread_tensor<float>({100'003}), g = spread_tensor<float>({100'003}, 0, 1);
    std::vector<SgdSegment> segments;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      segments.push_back({.parameter = p.slice(0, cuts[i], cuts[i + 1]),
                          .gradient = g.slice(0, cuts[i], cuts[i + 1]),
                          .momentum = {},
                          .lr = 0.1,
                          .weight_decay = 0.01});
    }
    sgd_step(segments);
    return p.to_vector<float>();
  };
  CHECK(same_for_any_threads([&] { return step({0, 100'003}); }));
  CHECK(same_bits(step({0, 100'003}), step({0, 1, 20, 50'001, 50'001, 100'003})));
}

TEST_CASE("steps take gradients of fewer bits as they are") {
  struct Kinds {
    DType parameter, gradient;
  };
  for (const Kinds& k : {Kinds{DType::kF32, DType::kBF16}, Kinds{DType::kF32, DType::kF16},
                         Kinds{DType::kF64, DType::kF32}, Kinds{DType::kF64, DType::kBF16},
                         Kinds{DType::kBF16, DType::kF16}, Kinds{DType::kBF16, DType::kF32}}) {
    INFO(dtype_name(k.gradient) << " for " << dtype_name(k.parameter));
    const auto stepped = [&](const auto& step, DType gradient_dtype) {
      const Tensor p = cast(spread_tensor<double>({1027}, -1, 1), k.parameter);
      const Tensor g = cast(spread_tensor<double>({1027}, -3, 3), k.gradient);
      step(p, cast(g, gradient_dtype));
      return cast(p, DType::kF64).to_vector<double>();
    };
    const DType wide = compute_dtype(k.parameter);
    const auto sgd = [&](const Tensor& p, const Tensor& g) {
      const Tensor m = full({1027}, 0.5, {.dtype = wide});
      sgd_step({{.parameter = p, .gradient = g, .momentum = m, .lr = 0.1, .momentum_factor = 0.9}});
    };
    const auto adam = [&](const Tensor& p, const Tensor& g) {
      const Tensor m = zeros({1027}, {.dtype = wide}), v = zeros({1027}, {.dtype = wide});
      adam_step({{.parameter = p, .gradient = g, .exp_avg = m, .exp_avg_sq = v, .lr = 0.1}});
    };
    const auto lion = [&](const Tensor& p, const Tensor& g) {
      const Tensor m = full({1027}, 0.5, {.dtype = wide});
      lion_step({{.parameter = p, .gradient = g, .exp_avg = m, .lr = 0.1}});
    };
    CHECK(stepped(sgd, k.gradient) == stepped(sgd, wide));
    CHECK(stepped(adam, k.gradient) == stepped(adam, wide));
    CHECK(stepped(lion, k.gradient) == stepped(lion, wide));
  }
}

TEST_CASE("sgd_step: errors") {
  const Tensor p = zeros({4}), g = zeros({4});
  const auto message = [](SgdSegment segment) {
    return thrown<InvalidArgument>([&] { sgd_step({segment}); });
  };
  CHECK(message({}) == "[sgd_step] the parameter is undefined; pass a tensor");
  CHECK(message({.parameter = p}) == "[sgd_step] the gradient is undefined; pass a tensor");
  CHECK(message({.parameter = p, .gradient = zeros({3})}) ==
        "[sgd_step] shapes [4] and [3] differ; they must be equal");
  CHECK(message({.parameter = p, .gradient = zeros({4}, {.dtype = DType::kF64})}) ==
        "[sgd_step] operands have dtypes f32 and f64; cast one of them");
  CHECK(message({.parameter = p, .gradient = zeros({4, 2}).select(1, 0)}) ==
        "[sgd_step] the gradient of shape [4] has strides [2]; it must be contiguous");
  CHECK(message({.parameter = arange(4), .gradient = arange(4)}) ==
        "[sgd_step] needs a floating dtype, got i64; cast it first");
  CHECK(message({.parameter = p, .gradient = g, .momentum_factor = 0.9}) ==
        "[sgd_step] the momentum is undefined; momentum_factor 0.9 (nesterov: false) needs a "
        "buffer, pass one");
}

constexpr int kSteps = 5;

// The reference's parameter after each step, and ours.
template <class Step>
void check_reference(const ReferenceCase& c, const Step& step) {
  INFO(c.name);
  const Tensor p = clone(c.tensor("parameter"));
  for (int i = 0; i < kSteps; ++i) {
    step(p, c.tensor("gradient" + std::to_string(i)), i);
    CHECK(all_close(p, c.tensor("parameter" + std::to_string(i))));
  }
}

TEST_CASE("sgd_step: what PyTorch computes") {
  for (const ReferenceCase& c : load_reference("optimizer", "sgd")) {
    const double momentum = c.number("momentum");
    const Tensor m = momentum == 0 ? Tensor() : zeros({3, 3}, {.dtype = DType::kF64});
    check_reference(c, [&](const Tensor& p, const Tensor& g, int i) {
      sgd_step({{.parameter = p,
                 .gradient = g,
                 .momentum = m,
                 .lr = c.number("lr"),
                 .momentum_factor = momentum,
                 .dampening = c.number("dampening"),
                 .weight_decay = c.number("weight_decay"),
                 .nesterov = c.flag("nesterov"),
                 .first_step = i == 0,
                 .maximize = c.flag("maximize")}});
    });
  }
}

TEST_CASE("adam_step: what PyTorch computes") {
  for (const std::string function : {"adam", "adamw"}) {
    for (const ReferenceCase& c : load_reference("optimizer", function)) {
      const TensorOptions f64{.dtype = DType::kF64};
      const Tensor m = zeros({3, 3}, f64), v = zeros({3, 3}, f64);
      const Tensor largest = c.flag("amsgrad") ? zeros({3, 3}, f64) : Tensor();
      check_reference(c, [&](const Tensor& p, const Tensor& g, int i) {
        adam_step({{.parameter = p,
                    .gradient = g,
                    .exp_avg = m,
                    .exp_avg_sq = v,
                    .max_exp_avg_sq = largest,
                    .lr = c.number("lr"),
                    .beta1 = c.number("beta1"),
                    .beta2 = c.number("beta2"),
                    .eps = c.number("eps"),
                    .weight_decay = c.number("weight_decay"),
                    .step = i + 1,
                    .decoupled_decay = function == "adamw",
                    .maximize = c.flag("maximize")}});
      });
    }
  }
}

struct AdamState {
  Tensor p, g, m, v, largest;
};

AdamState adam_state(const Shape& shape, DType dtype, DType state) {
  const TensorOptions kind{.dtype = state};
  return {.p = cast(spread_tensor<double>(shape, -1, 1), dtype),
          .g = cast(spread_tensor<double>(shape, -3, 3), dtype),
          .m = zeros(shape, kind),
          .v = zeros(shape, kind),
          .largest = zeros(shape, kind)};
}

AdamSegment segment_of(const AdamState& s, std::int64_t step) {
  return {.parameter = s.p,
          .gradient = s.g,
          .exp_avg = s.m,
          .exp_avg_sq = s.v,
          .max_exp_avg_sq = s.largest,
          .lr = 0.05,
          .weight_decay = 0.1,
          .step = step};
}

// Element by element, in f64, from the same numbers.
std::vector<double> slow_adam(const AdamState& s, int steps) {
  auto p = cast(s.p, DType::kF64).to_vector<double>();
  const auto g = cast(s.g, DType::kF64).to_vector<double>();
  for (std::size_t i = 0; i < p.size(); ++i) {
    double m = 0, v = 0, largest = 0;
    for (int step = 1; step <= steps; ++step) {
      p[i] *= 1 - 0.05 * 0.1;
      m = 0.9 * m + 0.1 * g[i];
      v = 0.999 * v + 0.001 * g[i] * g[i];
      largest = std::max(largest, v);
      const double divisor = std::sqrt(largest / (1 - std::pow(0.999, step))) + 1e-8;
      p[i] -= 0.05 / (1 - std::pow(0.9, step)) * m / divisor;
    }
  }
  return p;
}

TEST_CASE("adam_step: every dtype of parameter and state, against a slow loop") {
  const std::vector<std::pair<DType, DType>> dtypes = {{DType::kF64, DType::kF64},
                                                       {DType::kF32, DType::kF32},
                                                       {DType::kBF16, DType::kF32},
                                                       {DType::kBF16, DType::kBF16},
                                                       {DType::kF16, DType::kF32}};
  for (const auto& [dtype, state] : dtypes) {
    INFO(dtype_name(dtype) << " with state of " << dtype_name(state));
    for (const Shape& shape : {Shape{0}, Shape{1}, Shape{3, 171}, Shape{70'001}}) {
      const AdamState s = adam_state(shape, dtype, state);
      const Tensor expected = Tensor::from_vector(slow_adam(s, 1), shape);
      adam_step({segment_of(s, 1)});
      CHECK(all_close(s.p, cast(expected, dtype)));
    }
  }
  // Several steps, in f64, where nothing is rounded in between.
  const AdamState s = adam_state({501}, DType::kF64, DType::kF64);
  const Tensor expected = Tensor::from_vector(slow_adam(s, 4), {501});
  for (int step = 1; step <= 4; ++step) adam_step({segment_of(s, step)});
  CHECK(all_close(s.p, expected));
  adam_step({});
}

TEST_CASE("adam_step: a copy of the parameter as it stands after the step, in any floating dtype") {
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    for (DType copy_dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
      INFO(dtype_name(dtype) << ", copied to " << dtype_name(copy_dtype));
      for (const Shape& shape : {Shape{0}, Shape{3, 171}, Shape{70'001}}) {
        const AdamState with = adam_state(shape, dtype, dtype),
                        without = adam_state(shape, dtype, dtype);
        AdamSegment segment = segment_of(with, 1);
        segment.copy = full(shape, 7, {.dtype = copy_dtype});
        adam_step({segment});
        adam_step({segment_of(without, 1)});
        CHECK(all_equal(with.p, without.p));
        CHECK(all_equal(segment.copy, cast(with.p, copy_dtype)));
      }
    }
  }
}

TEST_CASE("adam_step and sgd_step: gradients of f32 for parameters of 16 bits") {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const AdamState own = adam_state({700}, dtype, DType::kF32),
                    wide = adam_state({700}, dtype, DType::kF32);
    AdamSegment segment = segment_of(wide, 1);
    segment.gradient = cast(wide.g, DType::kF32);
    adam_step({segment_of(own, 1), segment});
    CHECK(all_equal(own.p, wide.p));
    sgd_step({{.parameter = own.p,
               .gradient = own.g,
               .momentum = own.m,
               .lr = 0.1,
               .momentum_factor = 0.9,
               .first_step = true},
              {.parameter = wide.p,
               .gradient = cast(wide.g, DType::kF32),
               .momentum = wide.m,
               .lr = 0.1,
               .momentum_factor = 0.9,
               .first_step = true}});
    CHECK(all_equal(own.p, wide.p));
    const Tensor start = adam_state({700}, dtype, DType::kF32).p;
    const Tensor plain = clone(start);
    sgd_step({{.parameter = plain, .gradient = own.g, .lr = 0.1}});
    CHECK(all_close(
        plain, cast(sub(cast(start, DType::kF64), mul(cast(own.g, DType::kF64), 0.1)), dtype)));
  }
}

TEST_CASE("adam_step: equal bits for any number of threads and any cut into segments") {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const auto step = [&](const std::vector<std::int64_t>& cuts) {
      const AdamState s = adam_state({100'003}, dtype, DType::kF32);
      std::vector<AdamSegment> segments;
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        const auto part = [&](const Tensor& x) { return x.slice(0, cuts[i], cuts[i + 1]); };
        segments.push_back(
            segment_of({part(s.p), part(s.g), part(s.m), part(s.v), part(s.largest)}, 1));
      }
      adam_step(segments);
      return cast(s.p, DType::kF32).to_vector<float>();
    };
    CHECK(same_for_any_threads([&] { return step({0, 100'003}); }));
    CHECK(same_bits(step({0, 100'003}), step({0, 1, 20, 50'001, 50'001, 100'003})));
  }
}

TEST_CASE("adam_step: errors") {
  const auto message = [](AdamSegment segment) {
    return thrown<InvalidArgument>([&] { adam_step({segment}); });
  };
  const AdamState s = adam_state({4}, DType::kF32, DType::kF32);
  CHECK(message({}) == "[adam_step] the parameter is undefined; pass a tensor");
  CHECK(message({.parameter = s.p, .gradient = s.g, .exp_avg = s.m}) ==
        "[adam_step] exp_avg_sq is undefined; pass a tensor");
  AdamSegment segment = segment_of(s, 0);
  CHECK(message(segment) == "[adam_step] step is 0; steps count from 1");
  segment.step = 1;
  segment.beta2 = 1;
  CHECK(message(segment) == "[adam_step] betas are 0.9 and 1; they must lie in [0, 1)");
  segment = segment_of(s, 1);
  segment.exp_avg = zeros({4}, {.dtype = DType::kBF16});
  CHECK(message(segment) == "[adam_step] operands have dtypes f32 and bf16; cast one of them");
  segment.exp_avg = zeros({3});
  CHECK(message(segment) == "[adam_step] shapes [4] and [3] differ; they must be equal");
  segment.exp_avg = zeros({4, 2}).select(1, 0);
  CHECK(message(segment) ==
        "[adam_step] exp_avg of shape [4] has strides [2]; it must be contiguous");
  segment.exp_avg = zeros({4}, {.device = kNull});
  CHECK(message(segment).starts_with("[adam_step] operands are on "));
  segment = segment_of(s, 1);
  segment.copy = zeros({4}, {.dtype = DType::kI32});
  CHECK(message(segment) == "[adam_step] needs a floating dtype, got i32; cast it first");
  segment.copy = zeros({2, 2});
  CHECK(message(segment) == "[adam_step] shapes [4] and [2, 2] differ; they must be equal");
  segment.copy = zeros({4, 2}).select(1, 0);
  CHECK(message(segment) ==
        "[adam_step] the copy of shape [4] has strides [2]; it must be contiguous");
  CHECK(message({.parameter = arange(4), .gradient = arange(4)}) ==
        "[adam_step] needs a floating dtype, got i64; cast it first");
}

}  // namespace
}  // namespace tessera
