// Recomputation inside sharded modules and around them: the gradients of the plain twin.

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/recompute.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/twin.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

constexpr std::int64_t kWidth = 5;

enum class Again { kNever, kInside, kAround };

// A sharded block that forgets what it computed.
class Forgetful final : public nn::Layer<Forgetful> {
 public:
  explicit Forgetful(Again again) : again_(again), inner_(kWidth, kWidth, DType::kF64) {
    register_module("inner", inner_);
  }
  Variable forward(const Variable& x) {
    const auto twice = [this](const Variable& h) { return add(inner_(inner_(h)), h); };
    return again_ == Again::kInside ? recompute(twice, x) : twice(x);
  }

 private:
  Again again_;
  Block inner_;
};

class Model final : public nn::Layer<Model> {
 public:
  explicit Model(Again again) : again_(again) {
    for (int i = 0; i < 3; ++i) {
      blocks_.push_back(std::make_unique<Forgetful>(again));
      register_module("block" + std::to_string(i), *blocks_.back());
    }
  }
  Variable forward(Variable x) {
    for (const auto& block : blocks_) {
      const auto call = [&block](const Variable& h) { return (*block)(h); };
      x = again_ == Again::kAround ? recompute(call, x) : call(x);
    }
    return x;
  }
  void shard(const fsdp::FullyShardOptions& options) {
    for (const auto& block : blocks_) fsdp::fully_shard(*block, options);
    fsdp::fully_shard(*this, {.mesh = options.mesh});
  }

 private:
  Again again_;
  std::vector<std::unique_ptr<Forgetful>> blocks_;
};

TESSERA_RANK_TEST("recompute in sharded models: inside modules and around them", "[fsdp]") {
  for (Again again : {Again::kNever, Again::kInside, Again::kAround}) {
    Model sharded(again), twin(Again::kNever);
    sharded.shard({.mesh = t.world().mesh()});
    nn::initialize(sharded, {.seed = 3});
    nn::initialize(twin, {.seed = 3});
    nn::optim::SGD sharded_sgd(sharded.parameters(), kSgd), twin_sgd(twin.parameters(), kSgd);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Tensor x = random_rows(11, kWidth, DType::kF64, step);
      backward(sharded_loss(sharded(Variable(my_rows(x, t.world()))), t.world()));
      backward(plain_loss(twin(Variable(x))));
      const std::string difference = compare_with_twin(sharded, twin, 1e-12, /*gradients=*/true);
      t.check(difference.empty(), "case {}, step {}: {}", static_cast<int>(again), step,
              difference);
      sharded_sgd.step();
      twin_sgd.step();
      sharded_sgd.zero_grad();
      twin_sgd.zero_grad();
    }
  }
}

}  // namespace
}  // namespace tessera::testing
