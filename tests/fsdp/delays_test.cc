// A missing wait between two streams shows when one of them is late: with each stream late in turn,
// and with compute queued, training gives the bits that it gives without delays.

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "tessera/autograd/function.h"
#include "tessera/distributed/decorators.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/twin.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

struct Delays {
  const char* name;
  double compute_ms = 0;
  double gather_ms = 0;
  double reduce_ms = 0;
};

Variable late(const Variable& x, double ms) {
  stream_sleep(current_stream(x.device()), ms);
  return record("late", x.tensor().detached_version(), {x},
                [ms](const Tensor& dy, const BackwardContext&) -> std::vector<Tensor> {
                  stream_sleep(current_stream(dy.device()), ms);
                  return {dy};
                });
}

/// Chain with a late operation on both sides of each block.
class LateChain final : public nn::Layer<LateChain> {
 public:
  explicit LateChain(double ms) : chain_({.widths = {7, 5, 6, 9, 3}, .stem = true}), ms_(ms) {
    register_module("chain", chain_);
  }
  Variable forward(Variable x) {
    for (const auto& block : chain_.blocks()) x = late((*block)(late(x, ms_)), ms_);
    return x;
  }
  void shard(const distributed::DeviceMesh& mesh) {
    for (const auto& block : chain_.blocks()) fsdp::fully_shard(*block, {.mesh = mesh});
    fsdp::fully_shard(*this, {.mesh = mesh});
  }

 private:
  Chain chain_;
  double ms_;
};

/// Every local() after three steps, in f64.
std::vector<double> train(RankTest& t, const Delays& delays) {
  using distributed::CollectiveKind;
  std::shared_ptr<distributed::ProcessGroup> group = t.world().group();
  group = distributed::delay(group, CollectiveKind::kAllGather, delays.gather_ms);
  group = distributed::delay(group, CollectiveKind::kReduceScatter, delays.reduce_ms);
  LateChain model(delays.compute_ms);
  model.shard(t.world().mesh().with_group("data", group));
  nn::initialize(model, {.seed = 1});
  nn::optim::SGD sgd(model.parameters(), kSgd);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Tensor x = random_rows(2 * t.size(), 7, DType::kF64, step);
    backward(sharded_loss(model(Variable(my_rows(x, t.world()))), t.world()));
    sgd.step();
    sgd.zero_grad();
  }
  std::vector<double> out;
  for (const nn::Parameter& parameter : model.parameters()) {
    for (const double value : parameter.local().tensor().to_vector<double>()) out.push_back(value);
  }
  return out;
}

void check_delays(RankTest& t) {
  const std::vector<double> expected = train(t, {.name = "none"});
  for (const Delays& delays :
       {Delays{.name = "compute", .compute_ms = 2}, Delays{.name = "gather", .gather_ms = 3},
        Delays{.name = "reduce", .reduce_ms = 3}}) {
    t.check(train(t, delays) == expected, "bits change when {} is late", delays.name);
  }
}

TESSERA_RANK_TEST_WITH("fsdp: late streams change no bit, compute inline", "[fsdp]",
                       {.worlds = {3}}) {
  check_delays(t);
}

TESSERA_RANK_TEST_WITH("fsdp: late streams change no bit, compute queued", "[fsdp]",
                       {.worlds = {3}, .cpu_compute = StreamKind::kQueued}) {
  check_delays(t);
}

}  // namespace
}  // namespace tessera::testing
