// A profile of a training step of nested modules: FLOPs of each module, forward and backward,
// compared with formulas; recompute; the optimizer.

#include "tessera/tensor/profile/profile.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/recompute.h"
#include "tessera/tensor/ops/create.h"

namespace tessera {
namespace {

constexpr std::int64_t kRows = 3, kIn = 5, kDim = 7, kHidden = 11;

class Inner final : public nn::Layer<Inner> {
 public:
  Inner() : up_({.in = kDim, .out = kHidden}), down_({.in = kHidden, .out = kDim}) {
    register_module("up", up_);
    register_module("down", down_);
  }
  Variable forward(const Variable& x) { return down_(gelu(up_(x))); }

 private:
  nn::Linear up_, down_;
};

class Net final : public nn::Layer<Net> {
 public:
  Net() : stem_({.in = kIn, .out = kDim}) {
    register_module("stem", stem_);
    register_module("inner", inner_);
  }
  Variable forward(const Variable& x) { return inner_(stem_(x)); }
  Inner& inner() { return inner_; }

 private:
  nn::Linear stem_;
  Inner inner_;
};

void train(Net& net, int steps, Profile& profile) {
  nn::initialize(net, {.seed = 1});
  nn::optim::SGD optimizer(net.parameters(), {.lr = 0.1});
  const Variable x(full({kRows, kIn}, 0.5));
  for (int step = 0; step < steps; ++step) {
    const Profile::Scope measured(profile);
    optimizer.zero_grad();
    backward(mean(square(net(x))));
    optimizer.step();
  }
}

ProfileModule module_at(const Profile& profile, const std::string& path) {
  for (const ProfileModule& module : profile.modules()) {
    if (module.path == path) return module;
  }
  FAIL("there is no module " << path);
  return {};
}

std::int64_t flops(const std::array<ProfileFigures, kProfilePhases>& figures, ProfilePhase phase) {
  return figures[static_cast<std::size_t>(phase)].flops;
}

void check_sum(const Profile& profile) {
  std::int64_t sum = 0;
  for (const ProfileRow& row : profile.rows()) {
    if (row.thread == kHostThread) sum += row.figures.self_ns;
  }
  CHECK(sum == profile.wall_ns());
}

TEST_CASE("profile: forward and backward of nested modules") {
  constexpr int kSteps = 2;
  Net net;
  Profile profile;
  train(net, kSteps, profile);
  const std::int64_t stem = 2 * kRows * kIn * kDim, layer = 2 * kRows * kDim * kHidden;
  const auto forward = ProfilePhase::kForward, back = ProfilePhase::kBackward;
  const ProfileModule root = module_at(profile, kRootModule), up = module_at(profile, "inner.up"),
                      inner = module_at(profile, "inner"), first = module_at(profile, "stem");
  CHECK(flops(up.own, forward) == kSteps * layer);
  CHECK(flops(up.own, back) == kSteps * 2 * layer);
  CHECK(flops(first.own, forward) == kSteps * stem);
  CHECK(flops(first.own, back) == kSteps * stem);  // its input needs no gradient
  CHECK(flops(inner.own, forward) == 0);
  CHECK(flops(inner.whole, forward) == kSteps * 2 * layer);
  CHECK(flops(inner.whole, back) == kSteps * 4 * layer);
  CHECK(flops(root.whole, forward) == kSteps * (stem + 2 * layer));
  CHECK(flops(root.whole, back) == kSteps * (stem + 4 * layer));
  CHECK(flops(root.whole, ProfilePhase::kRecompute) == 0);
  CHECK(flops(root.whole, ProfilePhase::kOptimizer) == 0);
  for (const ProfileModule& module : {root, up, inner, first}) CHECK(module.calls == kSteps);

  bool found_gelu = false, found_loss = false, found_update = false;
  for (const ProfileRow& row : profile.rows()) {
    found_gelu |= row.name == "gelu" && row.module == "inner" && row.phase == forward;
    found_loss |= row.name == "square" && row.module == kNoModule && row.phase == forward;
    found_update |=
        row.name == "sgd" && row.phase == ProfilePhase::kOptimizer && row.figures.calls == kSteps;
    if (row.name == "gelu_backward") CHECK(row.module == "inner");
  }
  CHECK(found_gelu);
  CHECK(found_loss);
  CHECK(found_update);
  check_sum(profile);
}

TEST_CASE("profile: what backward computes again is a phase of its own") {
  Net net;
  nn::recompute(net.inner());
  Profile profile;
  train(net, 1, profile);
  const std::int64_t layer = 2 * kRows * kDim * kHidden;
  const ProfileModule up = module_at(profile, "inner.up"), inner = module_at(profile, "inner");
  CHECK(flops(up.own, ProfilePhase::kForward) == layer);
  CHECK(flops(up.own, ProfilePhase::kRecompute) == layer);
  CHECK(flops(up.own, ProfilePhase::kBackward) == 2 * layer);
  CHECK(flops(inner.whole, ProfilePhase::kRecompute) == 2 * layer);
  CHECK(flops(module_at(profile, "stem").own, ProfilePhase::kRecompute) == 0);
  CHECK(up.calls == 1);
  check_sum(profile);
}

}  // namespace
}  // namespace tessera
