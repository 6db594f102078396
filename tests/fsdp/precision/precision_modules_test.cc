// Mixed precision with exempt modules; norms, exempt and not.

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/batch_norm.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/tests/fsdp/precision/precision_reference.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using fsdp::MixedPrecision;

constexpr DType kHalves[] = {DType::kBF16, DType::kF16};

/// A model with a norm in it. `cast_norm` and `cast_down`: makes the casts of exempt modules by
/// hand, as the reference does.
class NormNet final : public nn::Layer<NormNet> {
 public:
  explicit NormNet(std::optional<DType> cast_norm = {}, std::optional<DType> cast_down = {})
      : up_({.in = 7, .out = 12}),
        norm_({.shape = {12}}),
        down_({.in = 12, .out = 5}),
        cast_norm_(cast_norm),
        cast_down_(cast_down) {
    register_module("up", up_);
    register_module("norm", norm_);
    register_module("down", down_);
  }
  Variable forward(const Variable& x) {
    const Variable y = gelu(apart(norm_, up_(x), cast_norm_));
    return apart(down_, y, cast_down_);
  }

 private:
  template <class L>
  static Variable apart(L& layer, const Variable& x, std::optional<DType> back) {
    return back ? cast(layer(cast(x, DType::kF32)), *back) : layer(x);
  }
  nn::Linear up_;
  nn::LayerNorm norm_;
  nn::Linear down_;
  std::optional<DType> cast_norm_, cast_down_;
};

struct NetCase {
  std::string name;
  MixedPrecision mixed;
  ReferencePrecision reference;
  std::optional<DType> cast_norm = {}, cast_down = {};
};

void train(RankTest& t, const NetCase& c) {
  NormNet sharded;
  fsdp::fully_shard(sharded, {.mesh = t.world().mesh(), .mixed_precision = c.mixed});
  nn::initialize(sharded, {.seed = 4});
  const auto make = [&] {
    auto net = std::make_unique<NormNet>(c.cast_norm, c.cast_down);
    nn::initialize(*net, {.seed = 4});
    return net;
  };
  PrecisionReference<NormNet> reference(make, c.reference, {.shards = t.size()});
  nn::optim::SGD sharded_sgd(sharded.parameters(), kSgd);
  nn::optim::SGD reference_sgd(reference.master().parameters(), kSgd);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Tensor x = random_rows(9, 7, DType::kF32, step);
    backward(row_loss(sharded(Variable(my_rows(x, t.world())))));
    for (int rank = 0; rank < t.size(); ++rank) {
      const distributed::Chunk rows = distributed::chunk_of(9, t.size(), rank);
      const Variable mine(cast(x.slice(0, rows.begin, rows.end), c.reference.param));
      reference.run(rank, [&](NormNet& net) { return row_loss(net(mine)); });
    }
    reference.reduce();
    const std::string difference = compare_with_reference(sharded, reference.master(), 0, true);
    t.check(difference.empty(), "{}, step {}: {}", c.name, step, difference);
    sharded_sgd.step();
    reference_sgd.step();
    sharded_sgd.zero_grad();
    reference_sgd.zero_grad();
    reference.refresh();
  }
}

bool is_linear_of_5(const nn::Module& module) {
  const auto own = module.own_parameters();
  return !own.empty() && own.front().parameter.spec().global_shape[0] == 5;
}

TESSERA_RANK_TEST("mixed precision: exempt modules compute in the stored dtype", "[fsdp]") {
  for (const DType half : kHalves) {
    train(t, {"nothing exempt", {.param_dtype = half}, {.param = half, .reduce = half}});
    // One reduction has both dtypes of values, so it uses the wider one.
    train(t, {"norms",
              {.param_dtype = half, .exempt = fsdp::is_norm},
              {.param = half, .reduce = DType::kF32, .exempt = fsdp::is_norm},
              half});
    train(t, {"norms, reduced in the lower",
              {.param_dtype = half, .reduce_dtype = half, .exempt = fsdp::is_norm},
              {.param = half, .reduce = half, .exempt = fsdp::is_norm},
              half});
    train(t, {"by a predicate",
              {.param_dtype = half, .exempt = is_linear_of_5},
              {.param = half, .reduce = DType::kF32, .exempt = is_linear_of_5},
              {},
              half});
  }
}

/// A residual stream; records the result of its norm.
class NormStream final : public nn::Layer<NormStream> {
 public:
  NormStream() : up_({.in = 7, .out = 7}), norm_({.shape = {7}}) {
    register_module("up", up_);
    register_module("norm", norm_);
  }
  Variable forward(const Variable& x) {
    h = norm_(x, up_(x));
    return h.sum * h.y;
  }
  nn::Linear up_;
  nn::LayerNorm norm_;
  AddNorm h;
};

// The residual is cast like the norm's other arguments. The sum is returned in the stream's dtype;
// the norm is computed from the sum before it was rounded.
TESSERA_RANK_TEST("mixed precision: an exempt norm adds its residual in the stored dtype",
                  "[fsdp]") {
  for (const DType half : kHalves) {
    NormStream sharded, plain;
    fsdp::fully_shard(sharded, {.mesh = t.world().mesh(),
                                .mixed_precision = {.param_dtype = half, .exempt = fsdp::is_norm}});
    nn::initialize(sharded, {.seed = 4});
    nn::initialize(plain, {.seed = 4});
    for (nn::Parameter& parameter : plain.up_.parameters()) parameter.to(default_device(), half);
    const Variable x(random_rows(8, 7, DType::kF32, 5)), low = cast(x, half), up = plain.up_(low);
    const AddNorm wide = plain.norm_(cast(low, DType::kF32), cast(up, DType::kF32));
    const Variable y = sharded(x);
    t.check(y.dtype() == half, "the result is {}", dtype_name(y.dtype()));
    t.check_equal(sharded.h.sum.tensor(), (low + up).tensor(), "sum");
    t.check_equal(sharded.h.y.tensor(), cast(wide.y, half).tensor(), "norm");
    backward(row_loss(y));
    t.check(sharded.norm_.weight().grad().dtype() == DType::kF32, "gradient's dtype");
    sharded.h = {};
  }
}

TEST_CASE("is_norm goes by the type") {
  nn::LayerNorm layer({.shape = {3}});
  nn::RMSNorm rms({.shape = {3}});
  nn::GroupNorm group({.groups = 1, .channels = 3});
  nn::BatchNorm1d batch1({.channels = 3});
  nn::BatchNorm2d batch2({.channels = 3});
  for (const nn::Module* norm :
       std::vector<const nn::Module*>{&layer, &rms, &group, &batch1, &batch2}) {
    INFO(norm->type_name());
    CHECK(fsdp::is_norm(*norm));
  }
  nn::Sequential sequential;
  sequential.add<nn::LayerNorm>({.shape = {3}});
  nn::Linear linear({.in = 3, .out = 3});
  CHECK_FALSE(fsdp::is_norm(sequential));
  CHECK_FALSE(fsdp::is_norm(linear));
}

/// Norms between linear layers, each in its own group, none exempt.
class NormStack final : public nn::Layer<NormStack> {
 public:
  NormStack()
      : first_({.in = 6, .out = 10}),
        batch_({.channels = 10}),
        second_({.in = 10, .out = 5}),
        layer_({.shape = {5}}) {
    register_module("first", first_);
    register_module("batch", batch_);
    register_module("second", second_);
    register_module("layer", layer_);
  }
  Variable forward(const Variable& x) { return layer_(second_(batch_(first_(x)))); }
  std::vector<nn::Module*> groups() { return {&first_, &batch_, &second_, &layer_}; }
  nn::BatchNorm1d& batch() { return batch_; }

 private:
  nn::Linear first_;
  nn::BatchNorm1d batch_;
  nn::Linear second_;
  nn::LayerNorm layer_;
};

TESSERA_RANK_TEST("mixed precision: norms work in 16 bits, their statistics stay in f32",
                  "[fsdp]") {
  for (const DType half : kHalves) {
    NormStack sharded, plain;
    const fsdp::FullyShardOptions options = {.mesh = t.world().mesh(),
                                             .mixed_precision = {.param_dtype = half}};
    for (nn::Module* group : sharded.groups()) fsdp::fully_shard(*group, options);
    fsdp::fully_shard(sharded, options);
    nn::initialize(sharded, {.seed = 1});
    nn::initialize(plain, {.seed = 1});
    for (nn::Parameter& parameter : plain.parameters()) parameter.to(default_device(), half);
    const Tensor x = random_rows(8, 6, DType::kF32, 5);
    const Variable y = sharded(Variable(x)), expected = plain(Variable(cast(x, half)));
    t.check(y.dtype() == half, "the result is {}", dtype_name(y.dtype()));
    t.check_equal(y.tensor(), expected.tensor(), "result");
    t.check_equal(sharded.batch().running_var().tensor(), plain.batch().running_var().tensor(),
                  "running variance");
    t.check(sharded.batch().running_mean().dtype() == DType::kF32, "statistics were cast");
    backward(row_loss(y));
    t.check(sharded.batch().weight().grad().dtype() == DType::kF32, "gradient's dtype");
  }
}

}  // namespace
}  // namespace tessera::testing
