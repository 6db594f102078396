// Iterations that are not one forward and one backward of the root: parts of a model, two roots,
// exceptions and the steps after them, methods other than forward.

#include <catch2/catch.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/function.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

/// A model and its reference with their optimizers. M has shard(mesh).
template <class M>
struct Trainer {
  explicit Trainer(RankTest& test) : t(test) {
    model.shard({.mesh = t.world().mesh()});
    nn::initialize(model, {.seed = 1});
    nn::initialize(reference, {.seed = 1});
    sgd = std::make_unique<nn::optim::SGD>(model.parameters(), kSgd);
    reference_sgd = std::make_unique<nn::optim::SGD>(reference.parameters(), kSgd);
  }
  /// `run` computes an output from a model and rows.
  template <class Run>
  void accumulate(std::uint64_t seed, Run&& run) {
    const Tensor x = random_rows(2 * t.size(), 6, DType::kF64, seed);
    backward(sharded_loss(run(model, Variable(my_rows(x, t.world()))), t.world()));
    backward(plain_loss(run(reference, Variable(x))));
  }
  void finish(const std::string& what) {
    const std::string difference =
        compare_with_reference(model, reference, 1e-12, /*gradients=*/true);
    t.check(difference.empty(), "{}: {}", what, difference);
    for (auto* each : {sgd.get(), reference_sgd.get()}) {
      each->step();
      each->zero_grad();
    }
    check_at_rest(what);
  }
  /// Checks that nothing is gathered and every group is sharded.
  void check_at_rest(const std::string& what) {
    for (nn::Module* module : fsdp::sharded_modules(model)) {
      const fsdp::Handle handle = fsdp::of(*module);
      t.check(handle.state() == fsdp::GroupState::kSharded && handle.phase() == fsdp::Phase::kIdle,
              "{}: {} is {} and {}", what, module->type_name(),
              fsdp::group_state_name(handle.state()), fsdp::phase_name(handle.phase()));
    }
    const std::int64_t bytes = t.world().context()->memory().current()[MemoryCategory::kGathered];
    t.check(bytes == 0, "{}: {} gathered bytes remain", what, bytes);
  }

  RankTest& t;
  M model, reference;
  std::unique_ptr<nn::optim::SGD> sgd, reference_sgd;
};

/// Three blocks of one width; the head belongs to the root. Throws on request.
class Failing final : public nn::Layer<Failing> {
 public:
  Failing()
      : chain_({.widths = {6, 6, 6, 6}, .classes = 0}),
        head_({.in = 6, .out = 6, .dtype = DType::kF64}) {
    register_module("chain", chain_);
    register_module("head", head_);
  }
  Variable forward(Variable x) {
    for (const auto& block : chain_.blocks()) {
      x = (*block)(x);
      if (block == chain_.blocks()[1]) x = fail_point(x);
    }
    return head_(x);
  }
  /// Another entry point.
  Variable encode(const Variable& x) {
    return hooked([this](const Variable& v) { return head_((*chain_.blocks()[0])(v)); }, x);
  }
  void shard(const fsdp::FullyShardOptions& options) {
    for (const auto& block : chain_.blocks()) fsdp::fully_shard(*block, options);
    fsdp::fully_shard(*this, options);
  }
  Block& block(std::size_t i) { return *chain_.blocks()[i]; }

  enum class Fail { kNever, kForward, kBackward };
  Fail fail = Fail::kNever;

 private:
  Variable fail_point(const Variable& x) const {
    if (fail == Fail::kForward) throw std::runtime_error("forward fails on purpose");
    if (fail == Fail::kNever) return x;
    return record("failing", x.tensor().detached_version(), {x},
                  [](const Tensor&, const BackwardContext&) -> std::vector<Tensor> {
                    throw std::runtime_error("backward fails on purpose");
                  });
  }

  Chain chain_;
  nn::Linear head_;
};

const auto kWhole = [](Failing& model, const Variable& x) { return model(x); };

TESSERA_RANK_TEST("fsdp iteration: a part of the model runs alone after the root", "[fsdp]") {
  Trainer<Failing> f(t);
  for (std::uint64_t step = 0; step < 3; ++step) {
    f.accumulate(10 * step, kWhole);
    f.finish("the whole");
    f.accumulate(10 * step + 1, [](Failing& m, const Variable& x) { return m.block(0)(x); });
    // Only this block has gradients now, in both models.
    f.finish("the first block");
    f.accumulate(10 * step + 2,
                 [](Failing& m, const Variable& x) { return m.block(2)(m.block(1)(x)); });
    f.accumulate(10 * step + 3, kWhole);
    f.finish("two blocks, then the whole");
  }
}

TESSERA_RANK_TEST("fsdp iteration: two roots take turns", "[fsdp]") {
  Trainer<Failing> a(t), b(t);
  for (std::uint64_t step = 0; step < 2; ++step) {
    const Tensor x = random_rows(2 * t.size(), 6, DType::kF64, step);
    const Variable mine(my_rows(x, t.world()));
    // The forward of one inside the iteration of the other; backwards in either order.
    const Variable loss_a = sharded_loss(a.model(mine), t.world());
    const Variable loss_b = sharded_loss(b.model(mine), t.world());
    backward(step == 0 ? loss_a : loss_b);
    backward(step == 0 ? loss_b : loss_a);
    for (Failing* reference : {&a.reference, &b.reference})
      backward(plain_loss((*reference)(Variable(x))));
    a.finish("one");
    b.finish("the other");
    // One backward through both.
    const Variable y = b.model(a.model(mine)), y_reference = b.reference(a.reference(Variable(x)));
    backward(sharded_loss(y, t.world()));
    backward(plain_loss(y_reference));
    a.finish("the first of two in a row");
    b.finish("the second of two in a row");
  }
}

TESSERA_RANK_TEST("fsdp iteration: several forwards before their backwards, some without gradients",
                  "[fsdp]") {
  Trainer<Failing> f(t);
  for (std::uint64_t step = 0; step < 2; ++step) {
    f.accumulate(step, [](Failing& m, const Variable& x) {
      Variable total = m(x);
      {
        const NoGradGuard no_grad;
        m(x);
        m.block(1)(x);
      }
      for (int i = 0; i < 2; ++i) total = add(total, m(mul(x, 0.5 * (i + 1))));
      return total;
    });
    f.finish("three forwards");
  }
}

TESSERA_RANK_TEST("fsdp iteration: after an exception a clean step is the reference's", "[fsdp]") {
  for (const Failing::Fail fail : {Failing::Fail::kForward, Failing::Fail::kBackward}) {
    for (const bool reset : {true, false}) {
      Trainer<Failing> f(t);
      f.accumulate(1, kWhole);
      f.finish("before");
      f.model.fail = fail;
      t.check_throws<std::runtime_error>("on purpose", [&] {
        backward(local_loss(f.model(Variable(random_rows(2, 6, DType::kF64, 7), true))));
      });
      f.model.fail = Failing::Fail::kNever;
      if (reset) fsdp::of(f.model).reset_iter_state();
      f.check_at_rest(fmt::format("after an exception, reset {}", reset));
      for (nn::Parameter parameter : f.model.parameters()) parameter.zero_grad();
      for (std::uint64_t step = 2; step < 4; ++step) {
        f.accumulate(step, kWhole);
        f.finish(fmt::format("after an exception, reset {}, step {}", reset, step));
      }
    }
  }
}

TESSERA_RANK_TEST("fsdp iteration: reset_iter_state gives up what is under way", "[fsdp]") {
  Trainer<Failing> f(t);
  const fsdp::Handle root = fsdp::of(f.model);
  f.accumulate(1, kWhole);
  std::vector<Tensor> before;
  for (const nn::Parameter& parameter : f.model.parameters())
    before.push_back(clone(parameter.grad()));
  // Pending gradients, a forward without its backward, a gather that was not waited for.
  root.set_requires_gradient_sync(false);
  backward(local_loss(f.model(Variable(random_rows(2, 6, DType::kF64, 7)))));
  root.set_requires_gradient_sync(true);
  const Variable forgotten = f.model(Variable(random_rows(2, 6, DType::kF64, 8)));
  fsdp::of(f.model.block(1)).unshard({.async = true});
  root.reset_iter_state();
  f.check_at_rest("after reset_iter_state");
  std::size_t i = 0;
  for (const nn::Parameter& parameter : f.model.parameters())
    t.check_equal(parameter.grad(), before[i++], parameter.name() + " keeps grad()");
  f.finish("the gradients of before");
  f.accumulate(2, kWhole);
  f.finish("a clean step");
}

TESSERA_RANK_TEST("fsdp iteration: another method than forward, with its hooks", "[fsdp]") {
  Trainer<Failing> f(t);
  for (std::uint64_t step = 0; step < 3; ++step) {
    f.accumulate(step, [](Failing& m, const Variable& x) { return m.encode(x); });
    f.finish("encode");
    f.accumulate(step, kWhole);
    f.finish("forward");
  }
}

/// Has a method, with the hooks of forward, that calls the module itself and then uses its
/// parameters.
class Twice final : public nn::Layer<Twice> {
 public:
  Twice() : linear_({.in = 5, .out = 5, .dtype = DType::kF64}) {
    register_module("linear", linear_);
  }
  Variable forward(const Variable& x) { return linear_(x); }
  Variable twice(const Variable& x) {
    return hooked([this](const Variable& y) { return linear_((*this)(y)); }, x);
  }

 private:
  nn::Linear linear_;
};

TESSERA_RANK_TEST("fsdp iteration: a method that calls its own module keeps the values", "[fsdp]") {
  for (const bool reshard : {true, false}) {
    Twice sharded, reference;
    fsdp::fully_shard(sharded, {.mesh = t.world().mesh(), .reshard_after_forward = reshard});
    nn::initialize(sharded, {.seed = 1});
    nn::initialize(reference, {.seed = 1});
    const Tensor x = random_rows(6, 5, DType::kF64, 2);
    backward(sharded_loss(sharded.twice(Variable(my_rows(x, t.world()))), t.world()));
    backward(plain_loss(reference.twice(Variable(x))));
    const std::string difference =
        compare_with_reference(sharded, reference, 1e-13, /*gradients=*/true);
    t.check(difference.empty(), "reshard {}: {}", reshard, difference);
  }
}

/// Calls its parent module on request.
class Inner final : public nn::Layer<Inner> {
 public:
  Inner() : linear_({.in = 6, .out = 6, .dtype = DType::kF64}) {
    register_module("linear", linear_);
  }
  Variable forward(const Variable& x) {
    if (outer) std::exchange(outer, nullptr)(x);
    return linear_(x);
  }
  std::function<void(const Variable&)> outer;

 private:
  nn::Linear linear_;
};
class Around final : public nn::Layer<Around> {
 public:
  Around() { register_module("inner", inner); }
  Variable forward(const Variable& x) { return inner(x); }
  Inner inner;
};

TESSERA_RANK_TEST("fsdp iteration: another root in the middle of a step is refused", "[fsdp]") {
  Around model;
  fsdp::fully_shard(model.inner, {.mesh = t.world().mesh()});
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  const Variable x(random_rows(2, 6, DType::kF64, 1));
  model.inner.outer = [&](const Variable& v) { model(v); };
  t.check_throws<StateError>("in the middle of a step", [&] { model.inner(x); });
  // Between steps it is legal.
  model.inner(x);
  model(x);
  t.check(fsdp::of(model).is_root() && !fsdp::of(model.inner).is_root(), "the wrong root");
}

}  // namespace
}  // namespace tessera::testing
