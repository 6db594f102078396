// The check of the order in which ranks run their groups: its findings, its message, and that all
// ranks get it.

#include <catch2/catch.hpp>

#include <optional>
#include <string>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/order_check.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/container.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/recompute.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

/// layer0, then layer1 or layer2, which have equal sizes: a rank that takes the other path computes
/// with the wrong parameters, and no transport can detect it.
class Fork final : public nn::Layer<Fork> {
 public:
  Fork() : layer0_(linear()), layer1_(linear()), layer2_(linear()) {
    register_module("layer0", layer0_);
    register_module("layer1", layer1_);
    register_module("layer2", layer2_);
  }
  static nn::LinearOptions linear() { return {.in = 6, .out = 6, .dtype = DType::kF64}; }
  Variable forward(const Variable& x) {
    const Variable y = layer0_(x);
    return path == 0 ? y : path == 1 ? layer1_(y) : layer2_(y);
  }
  int path = 1;  // 0: only layer0

 private:
  nn::Linear layer0_, layer1_, layer2_;
};

struct Fixture {
  explicit Fixture(RankTest& test, const distributed::DeviceMesh& mesh) : t(test) {
    for (auto& child : model.children()) fsdp::fully_shard(*child.module, {.mesh = mesh});
    fsdp::fully_shard(model, {.mesh = mesh});
    fsdp::of(model).set_prefetch({.forward = 0});
    nn::initialize(model, {.seed = 1});
  }
  explicit Fixture(RankTest& test) : Fixture(test, test.world().mesh()) {}
  void forward(int path) {
    model.path = path;
    model(Variable(random_rows(2, 6, DType::kF64, 1)));
  }
  /// A step on `path`.
  void step(int path) {
    model.path = path;
    backward(sum(square(model(Variable(random_rows(2, 6, DType::kF64, 1))))));
    for (nn::Parameter parameter : model.parameters()) parameter.zero_grad();
  }
  int last() const { return t.size() - 1; }
  /// `usual`, but `other` on the last rank.
  int path(int usual, int other) const { return t.rank() == last() ? other : usual; }

  RankTest& t;
  Fork model;
};

// Without the checked process group, which would detect the different group names.
const RankTestOptions kUnchecked = {.worlds = {2, 3, 5}, .checked = false};

TESSERA_RANK_TEST_WITH("fsdp order check: the first forward", "[fsdp]", (kUnchecked)) {
  Fixture f(t);
  f.forward(f.path(1, 2));  // not detected yet
  fsdp::of(f.model).reset_iter_state();
  const fsdp::OrderCheck check(f.model);
  t.check_throws<StateError>(
      fmt::format("as number 3 rank 0 ran \"layer1\" and rank {} ran \"layer2\"", f.last()),
      [&] { f.forward(f.path(1, 2)); });
}

TESSERA_RANK_TEST_WITH("fsdp order check: only the first forwards are compared", "[fsdp]",
                       (kUnchecked)) {
  for (const int compared : {1, 2}) {
    Fixture f(t);
    const fsdp::OrderCheck check(f.model, {.compare_forwards = compared});
    f.step(1);
    if (compared == 1) {
      f.step(f.path(1, 2));
    } else {
      t.check_throws<StateError>("rank 0 ran \"layer1\"", [&] { f.step(f.path(1, 2)); });
    }
  }
}

TESSERA_RANK_TEST_WITH("fsdp order check: where the user compares", "[fsdp]", (kUnchecked)) {
  Fixture f(t);
  fsdp::OrderCheck check(f.model, {.compare_forwards = 0});
  f.step(1);
  f.step(2);  // two forwards of one iteration
  check.compare();
  f.step(1);
  f.step(f.path(1, 2));
  t.check_throws<StateError>(
      fmt::format("as number 6 rank 0 ran \"layer1\" and rank {} ran \"layer2\"", f.last()),
      [&] { check.compare(); });
}

/// Nothing is gathered, so ranks may run different numbers of groups without waiting for each
/// other.
TESSERA_RANK_TEST_WITH("fsdp order check: one rank runs fewer groups", "[fsdp]", (kUnchecked)) {
  Fork model;
  for (auto& child : model.children()) fsdp::replicate(*child.module, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  fsdp::OrderCheck check(model, {.compare_forwards = 0, .mesh = t.world().mesh()});
  const int last = t.size() - 1;
  model.path = t.rank() == last ? 0 : 1;
  {
    const NoGradGuard no_grad;
    model(Variable(random_rows(2, 6, DType::kF64, 1)));
  }
  t.check_throws<StateError>(
      fmt::format("as number 2 rank 0 ran \"layer1\" and rank {} ran nothing (it ran 1)", last),
      [&] { check.compare(); });
}

TESSERA_RANK_TEST_WITH("fsdp order check: over both axes of hybrid sharding", "[fsdp]",
                       {.worlds = {4}, .checked = false}) {
  const distributed::DeviceMesh mesh({"replicate", "shard"}, {2, 2}, t.world().group(),
                                     default_device());
  for (const int odd : {1, 2, 3}) {
    Fixture f(t, mesh);
    const fsdp::OrderCheck check(f.model);
    t.check_throws<StateError>(fmt::format("rank 0 ran \"layer1\" and rank {} ran \"layer2\"", odd),
                               [&] { f.forward(t.rank() == odd ? 2 : 1); });
  }
}

TESSERA_RANK_TEST("fsdp order check: an order that is not the first iteration's", "[fsdp]") {
  const char* text = "as number 3 ran \"layer2\", and \"layer1\" the first time";
  Fixture f(t);
  {
    const fsdp::OrderCheck check(f.model, {.on_change = fsdp::OrderChange::kWarn});
    for (int i = 0; i < 3; ++i) f.step(1);
    t.check(check.change().empty(), "warned of equal iterations: {}", check.change());
    f.step(2);
    const std::string first = check.change();
    t.check(first.find(text) != std::string::npos, "warned: {}", first);
    f.step(0);
    t.check(check.change() == first, "warned again: {}", check.change());
  }
  {
    const fsdp::OrderCheck check(f.model, {.on_change = fsdp::OrderChange::kThrow});
    f.step(1);
    t.check_throws<StateError>(text, [&] { f.step(2); });
  }
  fsdp::of(f.model).reset_iter_state();
  const fsdp::OrderCheck check(f.model);
  f.step(1);
  f.step(2);
  t.check(check.change().empty(), "reported without being asked: {}", check.change());
}

TESSERA_RANK_TEST_WITH("fsdp order check: only ranks that deviate are warned", "[fsdp]",
                       (kUnchecked)) {
  Fixture f(t);
  const fsdp::OrderCheck check(f.model, {.on_change = fsdp::OrderChange::kWarn});
  f.step(1);
  f.step(f.path(1, 2));
  t.check(check.change().empty() == (t.rank() != f.last()), "rank {}: {}", t.rank(),
          check.change());
}

TESSERA_RANK_TEST("fsdp order check: evaluation may take another path", "[fsdp]") {
  Fixture f(t);
  const fsdp::OrderCheck check(f.model, {.on_change = fsdp::OrderChange::kThrow});
  for (int i = 0; i < 2; ++i) {
    f.step(1);
    f.model.eval();
    f.forward(2);
    f.model.train();
    const NoGradGuard no_grad;
    f.forward(0);
  }
}

TESSERA_RANK_TEST("fsdp order check: what recompute runs again does not count", "[fsdp]") {
  Fixture f(t);
  nn::recompute(f.model);  // the layers' hooks run again in backward
  fsdp::OrderCheck check(f.model, {.compare_forwards = 0, .on_change = fsdp::OrderChange::kThrow});
  f.step(1);
  check.compare();
  f.forward(1);  // without a backward
  check.compare();
  fsdp::of(f.model).reset_iter_state();
}

TESSERA_RANK_TEST_WITH("fsdp order check: its hooks go with it", "[fsdp]", (kUnchecked)) {
  Fixture f(t);
  {
    const fsdp::OrderCheck check(f.model, {.compare_forwards = 100});
    f.step(1);
  }
  f.step(f.path(1, 2));
}

TESSERA_RANK_TEST("fsdp order check: errors", "[fsdp]") {
  Fork plain;
  t.check_throws<InvalidArgument>("nothing in Fork is sharded",
                                  [&] { const fsdp::OrderCheck check(plain); });
  nn::ModuleList list;
  list.add<nn::Linear>({.in = 2, .out = 2});
  t.check_throws<InvalidArgument>("container without a forward",
                                  [&] { const fsdp::OrderCheck check(list); });
  Fixture f(t);
  t.check_throws<InvalidArgument>("compare_forwards is -1", [&] {
    const fsdp::OrderCheck check(f.model, {.compare_forwards = -1});
  });
}

}  // namespace
}  // namespace tessera::testing
