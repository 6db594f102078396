// The gradient scaler on one rank, and with meshes that simulate other ranks: the rules of growth
// and backoff, which step is skipped, the order of calls, its state.
#include "tessera/nn/training/grad_scaler.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/optim/optimizer.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/tests/nn/counting_optimizer.h"
#include "tessera/tests/nn/support.h"

namespace tessera {
namespace {

using nn::GradScaler;
using nn::Parameter;
using testing::CountingOptimizer;
using testing::FakeMesh;
using testing::FakeOwner;
using testing::row_sharding;
using testing::thrown;
using testing::values;

constexpr double kInf = std::numeric_limits<double>::infinity();

Parameter make(const std::vector<double>& gradient, DType dtype = DType::kF32) {
  const Shape shape{static_cast<std::int64_t>(gradient.size())};
  Parameter p({.shape = shape, .dtype = dtype, .init = nn::init::zeros()});
  p.materialize(default_device());
  p.set_grad(cast(Tensor::from_vector(gradient, shape), dtype));
  return p;
}

Parameter sharded(std::shared_ptr<const nn::Mesh> mesh) {
  Parameter p({.shape = {6}, .init = nn::init::zeros()});
  p.shard(row_sharding({6}, 2, 2, 2, std::move(mesh)), std::make_shared<FakeOwner>("g"));
  p.materialize(default_device());
  return p;
}

// One iteration in which the gradient is `gradient` (scaled); whether the step was done.
bool iterate(GradScaler& scaler, CountingOptimizer& optimizer, double gradient) {
  Parameter p = optimizer.parameters()[0];
  p.set_grad(full(p.shape(), gradient));
  const bool done = scaler.step(optimizer);
  scaler.update();
  return done;
}

TEST_CASE("the scaler multiplies the loss and divides the gradients") {
  GradScaler scaler;
  CHECK(scaler.get_scale() == 65536);
  Parameter p = make({0, 0, 0}), narrow = make({0.5, 2}, DType::kBF16),
            exact = make({3}, DType::kF64);
  p.set_grad({});
  p.local();
  CountingOptimizer optimizer({p, narrow, exact});
  const Variable loss = sum(mul(p.local(), Variable(Tensor::from_vector<float>({1, 2, -3}, {3}))));
  const Variable scaled = scaler.scale(loss);
  CHECK(scaled.dtype() == DType::kF32);
  backward(scaled);
  CHECK(values(p.grad()) == std::vector<double>{65536, 131072, -196608});
  scaler.unscale(optimizer);
  CHECK(values(p.grad()) == std::vector<double>{1, 2, -3});
  CHECK(values(cast(narrow.grad(), DType::kF32)) == std::vector<double>{0.5 / 65536, 2.0 / 65536});
  CHECK(values(exact.grad()) == std::vector<double>{3.0 / 65536});
  CHECK(nn::clip_grad_norm(optimizer.parameters(), 1, {.norm_type = kInf}).item<double>() == 3);
  CHECK(scaler.step(optimizer));
  CHECK(optimizer.updates == 1);
  CHECK(std::abs(values(p.grad())[2] + 1) < 1e-6);  // clipped, and not divided again
  scaler.update();
  CHECK(scaler.get_scale() == 65536);
  CHECK(scaler.growth_tracker() == 1);
}

TEST_CASE("a gradient that is not finite leaves the step out and lowers the scale") {
  for (double bad : {kInf, -kInf, std::nan("")}) {
    for (std::size_t at : {0u, 1u, 2u}) {
      GradScaler scaler({.init_scale = 1024});
      std::vector<double> gradient{1, 2, 3};
      gradient[at] = bad;
      CountingOptimizer optimizer({make({1, 1}), make(gradient)});
      CHECK_FALSE(scaler.step(optimizer));
      CHECK(optimizer.updates == 0);
      scaler.update();
      CHECK(scaler.get_scale() == 512);
      CHECK(scaler.growth_tracker() == 0);
    }
  }
  // Large numbers are no infinity.
  GradScaler scaler;
  CountingOptimizer optimizer({make({1e300, -1e300}, DType::kF64), make({3e38, -3e38})});
  CHECK(scaler.step(optimizer));
}

TEST_CASE("the scale grows after growth_interval good steps in a row") {
  GradScaler scaler(
      {.init_scale = 8, .growth_factor = 4, .backoff_factor = 0.25, .growth_interval = 3});
  CountingOptimizer optimizer({make({1})});
  std::vector<double> scales;
  for (double gradient : {1.0, 1.0, kInf, 1.0, 1.0, 1.0, 1.0, kInf, kInf, 1.0}) {
    CHECK(iterate(scaler, optimizer, gradient) == std::isfinite(gradient));
    scales.push_back(scaler.get_scale());
  }
  // As PyTorch's scaler does, with the same numbers.
  CHECK(scales == std::vector<double>{8, 8, 2, 2, 2, 8, 8, 2, 0.5, 0.5});
  CHECK(scaler.growth_tracker() == 1);
  CHECK(optimizer.updates == 7);
}

TEST_CASE("the scale stays a number of f32 above 0") {
  GradScaler large({.init_scale = 3e38, .growth_interval = 1});
  CountingOptimizer optimizer({make({1})});
  CHECK(iterate(large, optimizer, 1));
  CHECK(large.get_scale() == static_cast<double>(3e38f));
  CHECK(large.growth_tracker() == 0);
  GradScaler small({.init_scale = 1.5e-45});
  CHECK_FALSE(iterate(small, optimizer, kInf));
  CHECK(small.get_scale() == static_cast<double>(1.5e-45f));
  GradScaler odd({.init_scale = 0.1, .growth_factor = 1.1, .growth_interval = 1});
  CHECK(odd.get_scale() == static_cast<double>(0.1f));
  iterate(odd, optimizer, 1);
  CHECK(odd.get_scale() ==
        static_cast<double>(static_cast<float>(static_cast<double>(0.1f) * 1.1)));
}

TEST_CASE("each optimizer skips for itself, the scale follows all of them") {
  GradScaler scaler({.init_scale = 4});
  CountingOptimizer good({make({1})}), bad({make({kInf})});
  CHECK(scaler.step(good));
  CHECK_FALSE(scaler.step(bad));
  scaler.update();
  CHECK(scaler.get_scale() == 2);
  // One that was unscaled only counts too.
  CountingOptimizer unstepped({make({std::nan("")})}), another({make({1})});
  scaler.unscale(unstepped);
  CHECK(scaler.step(another));
  scaler.update();
  CHECK(scaler.get_scale() == 1);
}

TEST_CASE("parameters without gradients take part and are stepped") {
  GradScaler scaler;
  Parameter none = make({1, 2}), empty = make({}),
            frozen({.shape = {2}, .init = nn::init::zeros()});
  none.zero_grad();
  CountingOptimizer optimizer({none, empty, frozen});  // frozen is not even materialised
  CHECK(scaler.step(optimizer));
  scaler.update();
  CHECK(scaler.growth_tracker() == 1);
}

TEST_CASE("what is infinite on another rank counts here, over every axis of every mesh") {
  const auto mesh = std::make_shared<FakeMesh>(std::vector<std::string>{"replica", "data"}, 2);
  const auto experts = std::make_shared<FakeMesh>(std::vector<std::string>{"expert"}, 2);
  const auto all = std::make_shared<FakeMesh>(std::vector<std::string>{"world"}, 4);
  // No gradient anywhere on this rank.
  CountingOptimizer optimizer({sharded(mesh), sharded(experts), sharded(mesh)});
  GradScaler scaler({.mesh = all});
  CHECK(scaler.step(optimizer));
  scaler.update();
  CHECK(mesh->reduced == std::vector<std::string>{"replica[] max", "data[] max"});
  CHECK(experts->reduced == std::vector<std::string>{"expert[] max"});
  CHECK(all->reduced == std::vector<std::string>{"world[] max"});
  for (const auto& telling : {mesh, experts, all}) {
    telling->others = 1;
    CHECK_FALSE(scaler.step(optimizer));
    scaler.update();
    telling->others = 0;
  }
  CHECK(optimizer.updates == 1);
  CHECK(scaler.get_scale() == 65536 / 8);
  // A mesh that is both is asked once.
  GradScaler same({.mesh = experts});
  experts->reduced.clear();
  same.step(optimizer);
  CHECK(experts->reduced.size() == 1);
}

TEST_CASE("calls in the wrong order are refused, as PyTorch does") {
  GradScaler scaler;
  CountingOptimizer optimizer({make({1})});
  const auto text = [](auto body) { return thrown<StateError>(body); };
  CHECK(text([&] { scaler.update(); }) ==
        "[nn.GradScaler] update() without an optimizer since the last one; call step() first, or "
        "give a scale");
  scaler.unscale(optimizer);
  CHECK(text([&] { scaler.unscale(optimizer); }) ==
        "[nn.GradScaler] unscale() was called for this optimizer since the last update(); call it "
        "once, between backward and step");
  CHECK(scaler.step(optimizer));
  CHECK(text([&] { scaler.unscale(optimizer); }) ==
        "[nn.GradScaler] unscale() after step() of this optimizer since the last update(); call it "
        "once, between backward and step");
  CHECK(text([&] { scaler.step(optimizer); }) ==
        "[nn.GradScaler] step() was called for this optimizer since the last update(); call "
        "update() after each iteration");
  CHECK(optimizer.updates == 1);
  scaler.update();
  CHECK(scaler.step(optimizer));
}

TEST_CASE("f16 parameters are refused; frozen ones do not matter") {
  GradScaler scaler;
  CountingOptimizer optimizer({make({1}, DType::kF16)});
  CHECK(
      thrown<InvalidArgument>([&] { scaler.step(optimizer); }) ==
      "[nn.GradScaler] \"\" is f16, in which unscaled gradients vanish; keep it in f32 and compute "
      "under AutocastGuard(DType::kF16)");
  CHECK(optimizer.updates == 0);
  Parameter frozen = make({1}, DType::kF16);
  frozen.zero_grad();
  frozen.set_requires_grad(false);
  CountingOptimizer fine({frozen});
  CHECK(scaler.step(fine));
}

TEST_CASE("gradients of f16 are refused on every rank, those of bf16 unscaled") {
  Parameter narrow = make({1, 2});
  narrow.set_grad(full({2}, 4, {.dtype = DType::kF16}));
  CountingOptimizer optimizer({make({1}), narrow});
  GradScaler scaler({.init_scale = 4});
  const std::string text =
      "[nn.GradScaler] a gradient is f16, in which unscaled gradients vanish; let sharding hand "
      "them over in the parameters' f32: leave out keep_low_precision_gradients";
  CHECK(thrown<InvalidArgument>([&] { scaler.step(optimizer); }) == text);
  CHECK(optimizer.updates == 0);
  CHECK(values(cast(narrow.grad(), DType::kF32))[0] == 4);
  narrow.set_grad(full({2}, 4, {.dtype = DType::kBF16}));
  scaler.update(4.0);
  CHECK(scaler.step(optimizer));
  CHECK(values(cast(narrow.grad(), DType::kF32)) == std::vector<double>{1, 1});
  // Another rank had one.
  const auto mesh = std::make_shared<FakeMesh>(std::vector<std::string>{"data"}, 2);
  mesh->others = 2;
  CountingOptimizer here({sharded(mesh)});
  GradScaler told;
  CHECK(thrown<InvalidArgument>([&] { told.step(here); }) == text);
}

TEST_CASE("a disabled scaler lets everything pass") {
  GradScaler scaler({.enabled = false});
  CountingOptimizer optimizer({make({kInf})});
  const Variable loss(Tensor::scalar(3), true);
  CHECK(scaler.scale(loss).same_as(loss));
  CHECK(scaler.get_scale() == 1);
  scaler.unscale(optimizer);
  scaler.unscale(optimizer);
  CHECK(scaler.step(optimizer));
  CHECK(scaler.step(optimizer));
  CHECK(optimizer.updates == 2);
  scaler.update();
  CHECK(scaler.state_dict().empty());
  scaler.load_state_dict({});
  CHECK_FALSE(scaler.is_enabled());
}

TEST_CASE("update takes a new scale") {
  GradScaler scaler;
  scaler.update(16.0);
  CHECK(scaler.get_scale() == 16);
  CountingOptimizer optimizer({make({kInf})});
  scaler.step(optimizer);
  scaler.update(32.0);  // instead of the result of unscale
  CHECK(scaler.get_scale() == 32);
  CHECK(thrown<InvalidArgument>([&] { scaler.update(0.0); }) ==
        "[nn.GradScaler] the new scale is 0; it is above 0 and a number of f32");
}

TEST_CASE("a scaler goes on from its state") {
  GradScaler scaler({.init_scale = 8, .growth_interval = 3});
  CountingOptimizer optimizer({make({1})});
  iterate(scaler, optimizer, kInf);
  iterate(scaler, optimizer, 1);
  iterate(scaler, optimizer, 1);
  const nn::StateDict state = scaler.state_dict();
  CHECK(state.number("scale") == 4);
  CHECK(state.integer("growth_tracker") == 2);
  CHECK(state.integer("growth_interval") == 3);
  CHECK(state.number("growth_factor") == 2);
  CHECK(state.number("backoff_factor") == 0.5);
  CHECK(state.size() == 5);
  GradScaler other;
  other.load_state_dict(state);
  iterate(other, optimizer, 1);
  iterate(scaler, optimizer, 1);
  CHECK(scaler.get_scale() == 8);
  CHECK(other.get_scale() == 8);
  CHECK(other.growth_tracker() == 0);
  CHECK(other.options().growth_interval == 3);
}

TEST_CASE("a state that does not fit changes nothing") {
  GradScaler scaler;
  const auto refuses = [&](const nn::StateDict& state) {
    const std::string text = thrown<InvalidArgument>([&] { scaler.load_state_dict(state); });
    CHECK(scaler.get_scale() == 65536);
    CHECK(scaler.options().growth_factor == 2);
    return text;
  };
  CHECK(
      refuses({}) ==
      "[nn.GradScaler] this is not the state of an enabled scaler: missing [scale, growth_factor, "
      "backoff_factor, growth_interval, growth_tracker], unknown []");
  nn::StateDict state = scaler.state_dict();
  state.set("scale", 2.0);
  state.set("growth_factor", 3.0);
  nn::StateDict wrong = state;
  wrong.set("momentum", 1.0);
  wrong.erase("scale");
  CHECK(refuses(wrong) ==
        "[nn.GradScaler] this is not the state of an enabled scaler: missing [scale], unknown "
        "[momentum]");
  wrong = state;
  wrong.set("growth_tracker", std::int64_t{2000});
  CHECK(refuses(wrong) ==
        "[nn.GradScaler] growth_tracker is 2000; it is at least 0 and below growth_interval, 2000");
  wrong = state;
  wrong.set("backoff_factor", 1.0);
  CHECK(refuses(wrong) == "[nn.GradScaler] backoff_factor is 1; it is between 0 and 1");
  wrong = state;
  wrong.set("growth_interval", 0.5);
  CHECK(refuses(wrong).find("growth_interval") != std::string::npos);
}

TEST_CASE("options outside their ranges are named") {
  const auto text = [](const nn::GradScalerOptions& options) {
    return thrown<InvalidArgument>([&] { GradScaler scaler(options); });
  };
  CHECK(text({.init_scale = 0}) ==
        "[nn.GradScaler] init_scale is 0; it is above 0 and a number of f32");
  CHECK(text({.init_scale = 1e39}) ==
        "[nn.GradScaler] init_scale is 1e+39; it is above 0 and a number of f32");
  CHECK(text({.growth_factor = 1}) == "[nn.GradScaler] growth_factor is 1; it is above 1");
  CHECK(text({.backoff_factor = 1}) ==
        "[nn.GradScaler] backoff_factor is 1; it is between 0 and 1");
  CHECK(text({.growth_interval = 0}) == "[nn.GradScaler] growth_interval is 0; it is at least 1");
}

}  // namespace
}  // namespace tessera
