// A missing wait between two streams changes the result if one of them is late. With each stream
// and each collective delayed in turn, and with queued compute, training gives the same bits as
// without delays and with inline compute. For every way to shard.

#include <catch2/catch.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/step_in_backward.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/late.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::CollectiveKind;

struct Delays {
  const char* name;
  double compute_ms = 0;
  Lateness lateness = {};
};

const std::vector<Delays>& shard_delays() {
  static const std::vector<Delays> delays = {
      {.name = "compute", .compute_ms = 1},
      {.name = "a gather", .lateness = {.kind = CollectiveKind::kAllGather, .before_ms = 1}},
      {.name = "what follows a gather",
       .lateness = {.kind = CollectiveKind::kAllGather, .after_ms = 1}},
      {.name = "a reduce", .lateness = {.kind = CollectiveKind::kReduceScatter, .before_ms = 1}},
      {.name = "what follows a reduce",
       .lateness = {.kind = CollectiveKind::kReduceScatter, .after_ms = 1}},
      {.name = "a gather of one rank",
       .lateness = {.kind = CollectiveKind::kAllGather, .before_ms = 1, .only_rank = 1}}};
  return delays;
}

const std::vector<Delays>& all_reduce_delays() {
  static const std::vector<Delays> delays = {
      {.name = "an all-reduce", .lateness = {.kind = CollectiveKind::kAllReduce, .before_ms = 1}},
      {.name = "what follows an all-reduce",
       .lateness = {.kind = CollectiveKind::kAllReduce, .after_ms = 1}}};
  return delays;
}

/// One way to shard and to train.
struct Mode {
  const char* name;
  int replicas = 1;  ///< more than 1: HSDP
  bool replicate = false;
  fsdp::FullyShardOptions options = {.mesh = {}};  ///< the mesh is filled in later
  fsdp::PrefetchOptions prefetch = {};
  int reduce_buffers = 1;
  bool separate_reduces = false;
  int passes = 1;                     ///< per step; only the last one reduces
  bool late_all_reduce_only = false;  ///< the other passes reduce-scatter
  bool in_backward = false;           ///< the optimizer steps in backward
  bool optimizer_event = false;
  bool penalty = false;  ///< a penalty on local()
};

/// Blocks with a delay before and after each, then a layer of the root.
class LateChain final : public nn::Layer<LateChain> {
 public:
  explicit LateChain(double ms)
      : chain_({.widths = {7, 5, 6, 9, 3}, .classes = 0}),
        head_({.in = 3, .out = 5, .dtype = DType::kF64}),
        ms_(ms) {
    register_module("chain", chain_);
    register_module("head", head_);
  }
  Variable forward(Variable x) {
    for (const auto& block : chain_.blocks()) {
      x = late((*block)(late(x, ms_, ms_)), ms_, ms_);
    }
    return head_(x);
  }
  void shard(const Mode& mode, const distributed::DeviceMesh& mesh) {
    fsdp::FullyShardOptions options = mode.options;
    options.mesh = mesh;
    const auto wrap = [&](nn::Module& module) {
      if (!mode.replicate) return fsdp::fully_shard(module, options);
      return fsdp::replicate(
          module,
          {.mesh = mesh, .mixed_precision = options.mixed_precision, .offload = options.offload});
    };
    for (const auto& block : chain_.blocks()) wrap(*block);
    const fsdp::Handle root = wrap(*this);
    if (!mode.replicate) root.set_prefetch(mode.prefetch);
    root.set_reduce_scatter_max_input_buffers(mode.reduce_buffers);
    if (mode.separate_reduces) root.set_separate_reduce_scatter_group(true);
  }

 private:
  Chain chain_;
  nn::Linear head_;
  double ms_;
};

distributed::DeviceMesh late_mesh(RankTest& t, const Mode& mode, const Lateness& lateness) {
  const auto group = std::make_shared<LateGroup>(t.world().group(), lateness);
  if (mode.replicas == 1) return t.world().mesh().with_group("data", group);
  return distributed::DeviceMesh({"replicate", "shard"}, {mode.replicas, t.size() / mode.replicas},
                                 group, t.world().device());
}

/// The passes of a step, each with gradients of its own.
void run_passes(RankTest& t, const Mode& mode, LateChain& model, std::uint64_t step) {
  const fsdp::Handle root = fsdp::of(model);
  for (int pass = 0; pass < mode.passes; ++pass) {
    const bool last = pass + 1 == mode.passes;
    if (mode.late_all_reduce_only) {
      root.set_requires_all_reduce(last);
    } else {
      root.set_requires_gradient_sync(last);
    }
    const Tensor x =
        random_rows(2 * t.size(), 7, DType::kF64, 10 * step + static_cast<std::uint64_t>(pass));
    // Recorded first, so its gradients come last, when reductions are in flight.
    Variable penalty(Tensor::scalar(0, {.dtype = DType::kF64}));
    if (mode.penalty) {
      for (const nn::Parameter& parameter : model.parameters())
        penalty = add(penalty, mul(sum(square(parameter.local())), 0.1));
    }
    const Variable loss = sharded_loss(model(Variable(my_rows(x, t.world()))), t.world());
    backward(add(loss, penalty));
  }
}

/// Every local() after three steps, in f64.
std::vector<double> train(RankTest& t, const Mode& mode, const Delays& delays) {
  LateChain model(delays.compute_ms);
  model.shard(mode, late_mesh(t, mode, delays.lateness));
  nn::initialize(model, {.seed = 1});
  nn::optim::SGD sgd(model.parameters(), kSgd);
  std::optional<nn::optim::StepInBackward> in_backward;
  if (mode.in_backward) in_backward.emplace(sgd);
  for (std::uint64_t step = 0; step < 3; ++step) {
    run_passes(t, mode, model, step);
    if (mode.in_backward) continue;
    sgd.step();
    if (mode.optimizer_event)
      fsdp::of(model).set_post_optim_event(current_stream(default_device()).record("optimizer"));
    sgd.zero_grad();
  }
  std::vector<double> out;
  for (const nn::Parameter& parameter : model.parameters()) {
    for (const double value : cast(parameter.local().tensor(), DType::kF64).to_vector<double>())
      out.push_back(value);
  }
  return out;
}

/// Compares the bits without delays and with inline compute with those of all delays and queued
/// compute.
void check_delays(RankTest& t, const Mode& mode) {
  std::vector<double> expected;
  {
    const StreamGuard compute(
        DeviceStream::create(default_device(), StreamKind::kInline, "inline"));
    expected = train(t, mode, {.name = "nothing"});
  }
  const auto check = [&](const std::vector<Delays>& delays) {
    for (const Delays& each : delays)
      t.check(train(t, mode, each) == expected, "{}: bits change when {} is late", mode.name,
              each.name);
  };
  if (!mode.replicate) check(shard_delays());
  if (mode.replicate) check({{.name = "compute", .compute_ms = 1}});
  if (mode.replicate || mode.replicas > 1) check(all_reduce_delays());
}

TESSERA_RANK_TEST_WITH("fsdp: late streams change no bit, compute inline", "[fsdp]",
                       {.worlds = {3}}) {
  check_delays(t, {.name = "fsdp"});
  check_delays(t, {.name = "replicate", .replicate = true});
}

TESSERA_RANK_TEST_WITH("fsdp: late streams change no bit, compute queued", "[fsdp]",
                       ({.worlds = {3}, .cpu_compute = StreamKind::kQueued})) {
  check_delays(t, {.name = "fsdp"});
  check_delays(t, {.name = "kept", .options = {.mesh = {}, .reshard_after_forward = false}});
  check_delays(t, {.name = "two ahead", .prefetch = {.forward = 2}, .reduce_buffers = 2});
  check_delays(t, {.name = "nothing ahead",
                   .prefetch = {.forward = 0, .backward = fsdp::BackwardPrefetch::kNone},
                   .reduce_buffers = 0});
  check_delays(t, {.name = "reduces in a group of their own", .separate_reduces = true});
  check_delays(t, {.name = "accumulated", .passes = 2});
  check_delays(t, {.name = "term over local()", .penalty = true});
}

TESSERA_RANK_TEST_WITH("fsdp: late streams change no bit with casts, offload and hooks", "[fsdp]",
                       ({.worlds = {3}, .cpu_compute = StreamKind::kQueued})) {
  const fsdp::MixedPrecision f32 = {.param_dtype = DType::kF32};
  check_delays(t, {.name = "f32 values", .options = {.mesh = {}, .mixed_precision = f32}});
  check_delays(t, {.name = "offload", .options = {.mesh = {}, .offload = fsdp::CpuOffload{}}});
  check_delays(t, {.name = "offload, accumulated",
                   .options = {.mesh = {}, .offload = fsdp::CpuOffload{}},
                   .passes = 2});
  check_delays(t, {.name = "optimizer in backward", .in_backward = true});
  check_delays(t, {.name = "optimizer's event", .optimizer_event = true});
}

TESSERA_RANK_TEST_WITH("replicate: late streams change no bit", "[fsdp]",
                       ({.worlds = {3}, .cpu_compute = StreamKind::kQueued})) {
  check_delays(t, {.name = "replicate", .replicate = true});
  check_delays(t, {.name = "replicate, accumulated", .replicate = true, .passes = 2});
  check_delays(t, {.name = "replicate, f32 values",
                   .replicate = true,
                   .options = {.mesh = {}, .mixed_precision = {.param_dtype = DType::kF32}}});
  check_delays(t, {.name = "replicate, offload",
                   .replicate = true,
                   .options = {.mesh = {}, .offload = fsdp::CpuOffload{}}});
}

TESSERA_RANK_TEST_WITH("fsdp: late streams change no bit over two axes and smaller groups",
                       "[fsdp]", ({.worlds = {4}, .cpu_compute = StreamKind::kQueued})) {
  check_delays(t, {.name = "1/2 kept", .options = {.mesh = {}, .reshard_after_forward = 2}});
  check_delays(t, {.name = "HSDP", .replicas = 2});
  check_delays(t, {.name = "HSDP, accumulated", .replicas = 2, .passes = 2});
  check_delays(
      t,
      {.name = "HSDP, one all-reduce", .replicas = 2, .passes = 2, .late_all_reduce_only = true});
  check_delays(t, {.name = "HSDP, optimizer over the replicas",
                   .replicas = 2,
                   .options = {.mesh = {}, .shard_optimizer_over_replicas = true}});
  check_delays(t, {.name = "HSDP, offload",
                   .replicas = 2,
                   .options = {.mesh = {}, .offload = fsdp::CpuOffload{}}});
}

}  // namespace
}  // namespace tessera::testing
