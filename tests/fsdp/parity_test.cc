// Sharded training equals training the unsharded reference on the whole batch.

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "tessera/autograd/grad_mode.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

struct Case {
  std::string name;
  ChainOptions chain = {};
  std::optional<bool> reshard = std::nullopt;
  fsdp::PrefetchOptions prefetch = {};
  int reduces_in_flight = 1;
  std::int64_t batch = 11;
  bool input_gradient = false;
};

void train(RankTest& t, const Case& c, double tolerance) {
  Chain sharded(c.chain);
  shard_chain(sharded, {.mesh = t.world().mesh(), .reshard_after_forward = c.reshard});
  fsdp::of(sharded).set_prefetch(c.prefetch);
  fsdp::of(sharded).set_reduce_scatter_max_input_buffers(c.reduces_in_flight);
  nn::initialize(sharded, {.seed = 3});
  nn::optim::SGD sharded_sgd(sharded.parameters(), kSgd);
  Chain reference(c.chain);
  nn::initialize(reference, {.seed = 3});
  nn::optim::SGD reference_sgd(reference.parameters(), kSgd);
  t.check(compare_with_reference(sharded, reference, 0).empty(), "{}: initial values differ",
          c.name);

  for (std::uint64_t step = 0; step < 4; ++step) {
    const Tensor x = random_rows(c.batch, c.chain.widths.front(), c.chain.dtype, step);
    const Variable mine(my_rows(x, t.world()), c.input_gradient);
    const Variable all(x, c.input_gradient);
    backward(sharded_loss(sharded(mine), t.world()));
    backward(plain_loss(reference(all)));
    const std::string difference =
        compare_with_reference(sharded, reference, tolerance, /*gradients=*/true);
    t.check(difference.empty(), "{}, step {}: {}", c.name, step, difference);
    if (c.input_gradient) {
      // A rank's input gradient differs only by the averaging over ranks, which parameters get.
      const Tensor mean = mul(mine.grad(), 1.0 / t.world().size());
      const double error = worst_error(mean, my_rows(all.grad(), t.world()));
      t.check(error <= tolerance, "{}: input gradient differs by {}", c.name, error);
    }
    sharded_sgd.step();
    reference_sgd.step();
    sharded_sgd.zero_grad();
    reference_sgd.zero_grad();
  }
  const std::string difference = compare_with_reference(sharded, reference, tolerance);
  t.check(difference.empty(), "{}, at the end: {}", c.name, difference);
}

TESSERA_RANK_TEST("fsdp: training equals the unsharded reference's in f64", "[fsdp]") {
  train(t, {.name = "defaults"}, 1e-13);
  train(t, {.name = "inputs with gradients", .input_gradient = true}, 1e-13);
  train(t, {.name = "fewer rows than ranks", .batch = 2}, 1e-13);
  train(t, {.name = "one group", .chain = {.widths = {3}, .classes = 1}}, 1e-13);
  train(t, {.name = "wide", .chain = {.widths = {6, 33, 2}, .classes = 0}}, 1e-13);
}

TESSERA_RANK_TEST("fsdp: training equals the reference's whatever is released and gathered ahead",
                  "[fsdp]") {
  for (const std::optional<bool> reshard :
       {std::optional<bool>(true), std::optional<bool>(false)}) {
    train(t, {.name = "reshard given", .reshard = reshard}, 1e-13);
  }
  for (const bool forward : {false, true}) {
    for (const bool backward : {false, true}) {
      train(t, {.name = "prefetch", .prefetch = prefetch_of(forward, backward)}, 1e-13);
    }
  }
  for (const int reduces : {0, 3})
    train(t, {.name = "reduces in flight", .reduces_in_flight = reduces}, 1e-13);
}

TESSERA_RANK_TEST_WITH("fsdp: training equals the reference's with queued compute", "[fsdp]",
                       {.cpu_compute = StreamKind::kQueued}) {
  train(t, {.name = "queued"}, 1e-13);
  train(t, {.name = "queued, nothing ahead", .prefetch = prefetch_of(false, false)}, 1e-13);
  train(t, {.name = "queued, kept", .reshard = false, .reduces_in_flight = 0}, 1e-13);
}

TESSERA_RANK_TEST("fsdp: training equals the unsharded reference's in f32", "[fsdp]") {
  train(t, {.name = "f32", .chain = {.dtype = DType::kF32}}, 1e-5);
}

TESSERA_RANK_TEST("fsdp: a model initialised before it is sharded keeps its rows", "[fsdp]") {
  Chain sharded({});
  nn::initialize(sharded, {.seed = 5});
  shard_chain(sharded, {.mesh = t.world().mesh()});
  Chain reference({});
  nn::initialize(reference, {.seed = 5});
  t.check(compare_with_reference(sharded, reference, 0).empty(), "rows differ after sharding");
  backward(sharded_loss(sharded(Variable(my_rows(random_rows(6, 7, DType::kF64, 1), t.world()))),
                        t.world()));
  backward(plain_loss(reference(Variable(random_rows(6, 7, DType::kF64, 1)))));
  const std::string difference =
      compare_with_reference(sharded, reference, 1e-13, /*gradients=*/true);
  t.check(difference.empty(), "{}", difference);
}

TESSERA_RANK_TEST("fsdp: gradients of several backward passes add up", "[fsdp]") {
  Chain sharded({});
  shard_chain(sharded, {.mesh = t.world().mesh()});
  nn::initialize(sharded, {.seed = 5});
  Chain reference({});
  nn::initialize(reference, {.seed = 5});
  for (std::uint64_t pass = 0; pass < 3; ++pass) {
    const Tensor x = random_rows(5, 7, DType::kF64, pass);
    backward(sharded_loss(sharded(Variable(my_rows(x, t.world()))), t.world()));
    backward(plain_loss(reference(Variable(x))));
  }
  const std::string difference =
      compare_with_reference(sharded, reference, 1e-13, /*gradients=*/true);
  t.check(difference.empty(), "{}", difference);
}

TESSERA_RANK_TEST(
    "fsdp: evaluation without gradients gives the reference's outputs and keeps nothing",
    "[fsdp]") {
  Chain sharded({});
  shard_chain(sharded, {.mesh = t.world().mesh()});
  nn::initialize(sharded, {.seed = 5});
  Chain reference({});
  nn::initialize(reference, {.seed = 5});
  const Tensor x = random_rows(3, 7, DType::kF64, 1);
  for (int round = 0; round < 3; ++round) {
    const NoGradGuard no_grad;
    const double error =
        worst_error(sharded(Variable(x)).tensor(), reference(Variable(x)).tensor());
    t.check(error == 0, "outputs differ by {}", error);
    const auto gathered = t.world().context()->memory().current()[MemoryCategory::kGathered];
    t.check(gathered == 0, "{} gathered bytes remain", gathered);
  }
}

}  // namespace
}  // namespace tessera::testing
