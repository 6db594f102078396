// Recomputation: the same bits, order and accumulation as without, and what goes wrong.
#include "tessera/autograd/recompute.h"

#include <catch2/catch.hpp>
#include <functional>

#include "tessera/autograd/anomaly.h"
#include "tessera/autograd/engine.h"
#include "tessera/autograd/function.h"
#include "tessera/autograd/grad_check.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/autocast.h"
#include "tessera/autograd/ops/inplace.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/memory_category.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/scope_name.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

using Catch::Matchers::Contains;
using In = const std::vector<Variable>&;
using OneToOne = std::function<Variable(const Variable&)>;

// A mask of the thread's next random key.
Variable dropout(const Variable& x) {
  const Tensor mask = Tensor::empty(x.shape(), x.tensor().options());
  const random::Key key = random::next_key("dropout").key();
  random::fill_uniform(mask, key, random::whole(x.shape()), 0, 2);
  return mul(x, Variable(mask));
}

struct Net {
  Variable w1 = Variable(cast(irregular({6, 6}), DType::kF32), true);
  Variable w2 = Variable(cast(irregular({6, 6}, -1, 1, 0.6), DType::kF32), true);
  Variable b = Variable(cast(irregular({6}), DType::kF32), true);

  // Uses w1 twice, and b in both blocks, so that the order of sums counts.
  Variable block(const Variable& x) const {
    const Variable h = dropout(gelu(linear(x, w1, b)));
    return add(tanh(linear(dropout(h), w1, Variable())), mul(h, b));
  }
  Variable last(const Variable& x) const { return linear(gelu(x), w2, b); }
};

enum class How { kPlain, kRecompute, kNested, kWhole };

// Gradients of everything, in f32 with numbers whose sums round.
std::vector<std::vector<float>> gradients_of(How how) {
  const Net net;
  const Variable x(cast(irregular({5, 6}), DType::kF32), true);
  const OneToOne block = [&](const Variable& h) { return net.block(h); };
  const OneToOne two = [&](const Variable& h) {
    if (how != How::kNested && how != How::kWhole) return block(dropout(block(h)));
    return recompute(block, dropout(recompute(block, h)));
  };
  const OneToOne all = [&](const Variable& in) {
    const Variable h = how == How::kPlain ? two(in) : recompute(two, in);
    return net.last(add(dropout(h), mul(in, net.b)));
  };
  random::StepScope step({.seed = 3, .step = 4});
  const Variable y = how == How::kWhole ? recompute(all, x) : all(x);
  backward(sum(square(y)));
  std::vector<std::vector<float>> out = {y.tensor().to_vector<float>()};
  for (const Variable& leaf : {x, net.w1, net.w2, net.b})
    out.push_back(leaf.grad().to_vector<float>());
  CHECK(random::next_key("dropout").call == 6);  // backward drew nothing of its own
  return out;
}

TEST_CASE("recompute: bit-equal gradients, with random numbers, nested") {
  const auto plain = gradients_of(How::kPlain);
  CHECK(gradients_of(How::kRecompute) == plain);
  CHECK(gradients_of(How::kNested) == plain);
  CHECK(gradients_of(How::kWhole) == plain);
}

TEST_CASE("recompute: keeps the inputs only, and frees as it goes") {
  constexpr std::int64_t kRows = 512, kBlocks = 8;
  const auto bytes = [] { return current_rank_context()->memory().current().total(); };
  const auto kept_bytes = [&](bool again) {
    const Variable x(zeros({kRows, 64}), true);
    const OneToOne block = [](const Variable& h) {
      Variable out = h;
      for (int i = 0; i < 10; ++i) out = exp(neg(square(out)));
      return out;
    };
    const std::int64_t before = bytes();
    Variable y = x;
    for (int i = 0; i < kBlocks; ++i) y = again ? recompute(block, y) : block(y);
    const std::int64_t kept = bytes() - before;
    backward(sum(y));
    return kept;
  };
  const std::int64_t one = kRows * 64 * 4;
  CHECK(kept_bytes(false) >= kBlocks * 10 * one);
  CHECK(kept_bytes(true) <= (kBlocks + 1) * one);
}

TEST_CASE("recompute: leaves accumulate once a pass, in the promised order") {
  for (bool again : {false, true}) {
    CAPTURE(again);
    Log log;
    const Variable x = scalar_leaf(2.0), w = scalar_leaf(3.0), v = scalar_leaf(5.0);
    log_accumulation(x, "x", log);
    log_accumulation(w, "w", log);
    log_accumulation(v, "v", log);
    const Variable entry = passing("entry", mul(x, w), log);
    const OneToOne block = [&](const Variable& h) {
      return mul(mul(passing("inside", h, log), w), v);
    };
    const Variable y = again ? recompute(block, entry) : block(entry);
    backward(mul(y, w));
    CHECK(log == Log{"v", "inside", "entry", "w", "x"});
    CHECK(w.grad().item<double>() == 3 * 2 * 9 * 5);
    CHECK(v.grad().item<double>() == 2 * 27);
    CHECK(x.grad().item<double>() == 27 * 5);
  }
}

TEST_CASE("recompute: derivatives of derivatives") {
  const Variable captured = leaf({4}, 0.5, 1.5, 0.3);
  const auto function = [&](In in) {
    return recompute([&](const Variable& h) { return exp(mul(mul(h, h), captured)); }, in[0]);
  };
  CHECK(grad_check(function, {leaf({4})}).passed);
  CHECK(grad_grad_check(function, {leaf({4})}).passed);
}

TEST_CASE("recompute: several inputs and results, undefined and without gradients") {
  const Variable a = leaf({3}), b = leaf({3}, 1, 2), plain(irregular({3}));
  int runs = 0;
  const RecomputedFunction function = [&](In in) -> std::vector<Variable> {
    ++runs;
    CHECK_FALSE(in[2].defined());
    return {mul(in[0], in[1]),
            Variable(arange(3, {.dtype = DType::kI64})),
            Variable(),
            exp(in[1]),
            in[0],
            mul(in[3], 2.0)};
  };
  const std::vector<Variable> out = recompute(function, {a, b, Variable(), plain});
  REQUIRE(out.size() == 6);
  CHECK(out[0].requires_grad());
  CHECK_FALSE(out[1].requires_grad());
  CHECK_FALSE(out[2].defined());
  CHECK(out[4].requires_grad());
  backward(add(sum(out[0]), sum(out[4])));
  CHECK(runs == 2);
  CHECK(values(a.grad()) == values(add(b.tensor(), 1)));
  CHECK(values(b.grad()) == values(a));
  // A result without gradient path inside gives nothing, and does no harm.
  const std::vector<Variable> more = recompute(function, {a, b, Variable(), plain});
  Variable(a).set_grad({});
  backward(sum(more[5]));
  CHECK_FALSE(a.grad().defined());
}

TEST_CASE("recompute: when nothing is recorded, and when nobody asks") {
  int runs = 0;
  const OneToOne twice = [&](const Variable& h) {
    ++runs;
    return mul(h, 2.0);
  };
  CHECK_FALSE(recompute(twice, constant(1.0)).requires_grad());
  const Variable x = scalar_leaf(1.0);
  {
    NoGradGuard no_grad;
    CHECK_FALSE(recompute(twice, x).requires_grad());
  }
  CHECK(runs == 2);
  // A captured leaf alone is enough.
  const Variable y = recompute([&](const Variable& h) { return mul(h, x); }, constant(4.0));
  CHECK(y.requires_grad());
  backward(y);
  CHECK(x.grad().item<double>() == 4);
  // A captured result of another operation.
  const Variable z = mul(x, 3.0);
  backward(add(recompute([&](const Variable& h) { return mul(h, z); }, constant(4.0)), z));
  CHECK(x.grad().item<double>() == 4 + 12 + 3);
  // No gradient arrives: the function does not run.
  runs = 0;
  const Variable unused = recompute(twice, x);
  backward(record_differentiable(
      "ignores", {unused.tensor()}, {&unused, 1},
      [](const Gradients&, const BackwardContext&) { return Gradients(1); })[0]);
  CHECK(runs == 1);
}

TEST_CASE("recompute: chosen inputs, grad and retain_graph") {
  int runs = 0;
  const Variable x = scalar_leaf(3.0), w = scalar_leaf(2.0);
  const Variable y = recompute(
      [&](const Variable& h) {
        ++runs;
        return mul(mul(h, h), w);
      },
      x);
  CHECK(grad({&y, 1}, {&w, 1}, {.retain_graph = true})[0].item<double>() == 9);
  CHECK_FALSE(w.grad().defined());
  backward(y, {.retain_graph = true, .inputs = {x}});
  CHECK(x.grad().item<double>() == 12);
  CHECK_FALSE(w.grad().defined());
  backward(y);
  CHECK(x.grad().item<double>() == 24);
  CHECK(w.grad().item<double>() == 9);
  CHECK(runs == 4);
  CHECK_THAT(thrown<StateError>([&] { backward(y); }), Contains("through \"recompute\""));
}

TEST_CASE("recompute: what the second run saved goes as it is used, with retain_graph too") {
  std::weak_ptr<int> saved;
  bool alive_below = true;
  const Variable x = scalar_leaf(3.0);
  Variable entry = mul(x, 2.0);
  entry.register_hook([&](const Variable&) {
    alive_below = !saved.expired();
    return Variable();
  });
  const Variable y = recompute(
      [&](const Variable& h) {
        auto token = std::make_shared<int>(1);
        saved = token;
        return record_twice(
            "holder", h.tensor(), {h},
            [token](const Variable& dy, const BackwardContext&) { return Gradients{dy}; });
      },
      entry);
  backward(y, {.retain_graph = true});
  CHECK_FALSE(alive_below);
  CHECK(x.grad().item<double>() == 2);
}

TEST_CASE("recompute: the thread's state is that of the first run, and is put back") {
  const Variable x = leaf({3});
  const Device before = default_device();
  const auto name = make_scope_name();
  name->set("block", nullptr);
  std::vector<std::string> seen;
  const OneToOne function = [&](const Variable& h) {
    seen.push_back(current_scope_text() + (autocast_dtype() ? " f32" : " none") + " " +
                   std::to_string(random::first_sample()) +
                   (detail::anomaly_mode() ? " checked " : " ") + default_device().str() + " " +
                   memory_category_name(current_memory_category()));
    return mul(h, h);
  };
  Variable y;
  {
    NamedScope scope(*name);
    AutocastGuard autocast(DType::kF32);
    AnomalyGuard anomaly;
    DefaultDeviceScope device(kNull);
    MemoryCategoryScope category(MemoryCategory::kOther);
    random::StepScope step({.first_sample = 7});
    y = recompute(function, x);
  }
  backward(sum(y));
  CHECK(seen == std::vector<std::string>(2, "in \"block\" f32 7 checked null other"));
  CHECK(current_scope_text() == "outside modules");
  CHECK_FALSE(autocast_dtype());
  CHECK(grad_enabled());
  CHECK(default_device() == before);
  CHECK(current_memory_category() == MemoryCategory::kActivation);
}

TEST_CASE("recompute: exceptions of either run leave the thread clean") {
  int runs = 0;
  int fails_at = 1;
  const Variable x = scalar_leaf(2.0);
  const OneToOne function = [&](const Variable& h) {
    const Variable out = mul(h, h);
    random::next_key("a");
    if (++runs == fails_at) throw DataError("in run " + std::to_string(runs));
    return out;
  };
  random::StepScope step({.seed = 1, .step = 1});
  CHECK(thrown<DataError>([&] { recompute(function, x); }) == "in run 1");
  CHECK(grad_enabled());
  fails_at = 3;
  const Variable y = recompute([&](const Variable& h) { return recompute(function, h); }, x);
  CHECK(runs == 2);
  const std::uint64_t drawn = random::next_key("a").call;
  CHECK(thrown<DataError>([&] { backward(y, {.retain_graph = true}); }) == "in run 3");
  CHECK_FALSE(in_backward());
  CHECK(grad_enabled());
  CHECK(random::next_key("a").call == drawn + 1);
  CHECK_FALSE(x.grad().defined());
  backward(y);  // the next try
  CHECK(x.grad().item<double>() == 4);
  CHECK(runs == 5);
}

TEST_CASE("recompute: a function that does not give the same is told") {
  const Variable x = leaf({2});
  int runs = 0;
  const auto error_of = [&](const std::function<std::vector<Variable>(In)>& function) {
    runs = 0;
    const std::vector<Variable> y = recompute(function, {x});
    return thrown<StateError>([&] { backward(sum(y[0])); });
  };
  CHECK(error_of([&](In in) {
          const std::int64_t rows = ++runs == 1 ? 2 : 1;
          return std::vector<Variable>{slice(in[0], 0, 0, rows)};
        }) == "[recompute] result 0 of the function was of shape [2], f64 on " +
                  default_device().str() + " in forward and is of shape [1], f64 on " +
                  default_device().str() + " in backward; it must give the same each time");
  CHECK_THAT(error_of([&](In in) {
               return std::vector<Variable>{cast(in[0], ++runs == 1 ? DType::kF64 : DType::kF32)};
             }),
             Contains("f64 on " + default_device().str() + " in forward and is of shape [2], f32"));
  CHECK_THAT(error_of([&](In in) {
               return std::vector<Variable>{mul(in[0], 2.0), ++runs == 1 ? Variable() : in[0]};
             }),
             Contains("result 1 of the function was undefined in forward and is of shape"));
  CHECK(error_of([&](In in) { return std::vector<Variable>(++runs == 1 ? 1u : 2u, in[0]); }) ==
        "[recompute] the function returned 1 results in forward and 2 in backward; it must give "
        "the same each time");
}

TEST_CASE("recompute: variables whose gradient was complete already") {
  const Variable x = scalar_leaf(2.0), late = scalar_leaf(3.0);
  const Variable result = mul(x, 5.0);
  int runs = 0;
  const Variable y = recompute(
      [&](const Variable& h) { return ++runs == 1 ? mul(h, 1.0) : mul(h, late); }, result);
  // `late` is complete before the node of `y` runs, since it is used only after it.
  CHECK(thrown<StateError>([&] { backward(mul(y, late)); }) ==
        "[backward] what was recorded during backward uses the result of \"accumulate\", whose "
        "gradient was complete already; a function that is recomputed must use the same variables "
        "each time");
  CHECK_FALSE(in_backward());
  // One that the pass did not know is fine.
  runs = 0;
  const Variable z = recompute(
      [&](const Variable& h) { return ++runs == 1 ? mul(h, 1.0) : mul(h, late); }, mul(x, 5.0));
  Variable(late).set_grad({});
  backward(z);
  CHECK(late.grad().item<double>() == 10);
}

TEST_CASE("recompute: overwritten inputs and parameters are told") {
  const Variable x = scalar_leaf(2.0), w = scalar_leaf(3.0);
  const auto make = [&](const Variable& in) {
    return recompute([&](const Variable& h) { return mul(h, w); }, in);
  };
  const Variable in = mul(x, 1.0);
  const Variable y = make(in);
  fill_(in.tensor(), 7);
  CHECK_THAT(thrown<StateError>([&] { backward(y); }),
             Contains("that \"recompute\" saved was overwritten since by \"fill_\""));
  const Variable z = make(x);
  fill_(w.tensor(), 7);
  CHECK_THAT(thrown<StateError>([&] { backward(z); }),
             Contains("that \"recompute\" saved was overwritten since by \"fill_\""));
  // Operations in place on what the function made itself are fine.
  const Variable own = recompute(
      [&](const Variable& h) {
        const Variable r = mul(h, 2.0);
        add_(r, w);
        return r;
      },
      x);
  Variable(w).set_grad({});
  backward(own);
  CHECK(w.grad().item<double>() == 1);
}

}  // namespace
}  // namespace tessera::testing
