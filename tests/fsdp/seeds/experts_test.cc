// The seeds' MixtureOfExperts: an expert of each rank's own, over a mesh of this rank alone, beside
// layers of all ranks. Different values under one name; each group divides by its own size.

#include <catch2/catch.hpp>

#include "tessera/distributed/mesh_impl.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/testing.h"
#include "tessera/tensor/ops_elementwise.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/stream.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/support/fsdp/twin_training.h"
#include "tessera/tests/support/models/mixture_of_experts.h"
#include "tessera/tests/support/models/module_with_delay.h"
#include "tessera/tests/support/ranks.h"
#include "tessera/tests/support/subtests.h"

namespace tessera::testing {
namespace {

using distributed::DeviceMesh;

const auto strategies = axis(
    "strategy", {value("full", ShardingStrategy::kFull), value("grad", ShardingStrategy::kGrad),
                 value("replicate", ShardingStrategy::kReplicate)});

MixtureOfExpertsOptions options_of(RankTest& t, DType dtype = DType::kF64) {
  return {.mesh = distributed::make_mesh(t.world().mesh()), .dtype = dtype};
}

// This rank alone: every rank makes a group of other members.
DeviceMesh own_mesh(RankTest& t) {
  return DeviceMesh("data", t.world().group()->subgroup({t.rank()}, "expert"), t.world().device());
}

auto expert_mesh(RankTest& t) {
  return [own = own_mesh(t)](const nn::Module& group) {
    return group.own_parameters().size() == 2 &&
                   group.own_parameters().front().parameter.has_tag("expert")
               ? own
               : DeviceMesh();
  };
}

TESSERA_RANK_TEST("seeds: MixtureOfExperts trains like its twin", "[fsdp][seeds]") {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, bool offload) {
        TwinTrainingOptions options{
            .strategy = strategy, .steps = 3, .tolerance = 1e-12, .mesh_of_group = expert_mesh(t)};
        if (offload) options.offload = fsdp::CpuOffload{};
        train_against_twin(t, make<MixtureOfExperts>(options_of(t)), options);
      },
      strategies, axis("offload", {false, true}));
}

TESSERA_RANK_TEST_WITH("seeds: MixtureOfExperts with late collectives and a late loss",
                       "[fsdp][seeds]", {.worlds = {3}, .cpu_compute = StreamKind::kQueued}) {
  using distributed::CollectiveKind;
  using Late = ModuleWithDelay<MixtureOfExperts>;
  run_subtests(
      t,
      [&](CollectiveKind kind) {
        const MakeModel make = [&t](const ModelRequest& request) {
          return std::make_unique<Late>(
              Late::Options{.model = options_of(t, request.dtype),
                            .delay_after_loss_ms = request.sharded ? 2.0 : 0.0});
        };
        train_against_twin(
            t, make,
            {.late = kind, .late_ms = 2, .tolerance = 1e-12, .mesh_of_group = expert_mesh(t)});
      },
      axis("late", {value("gather", CollectiveKind::kAllGather),
                    value("reduce", CollectiveKind::kReduceScatter)}));
}

// The seeds' delay_before_free, on the layer that is gathered (an expert on a
// mesh of one rank has nothing to release): the values are still read by a late kernel when they
// are released, so memory that is reused too early shows in the numbers.
TESSERA_RANK_TEST_WITH("seeds: MixtureOfExperts, late before a layer is released", "[fsdp][seeds]",
                       {.worlds = {2}, .cpu_compute = StreamKind::kQueued}) {
  const MakeModel make = [&t](const ModelRequest& request) {
    auto model = std::make_unique<MixtureOfExperts>(options_of(t, request.dtype));
    if (request.sharded) {
      model->shared().register_forward_hook([](nn::Module&, const nn::VisitVariables* results) {
        if (results != nullptr) stream_sleep(current_stream(default_device()), 3);
      });
    }
    return model;
  };
  train_against_twin(t, make, {.steps = 3, .tolerance = 1e-12, .mesh_of_group = expert_mesh(t)});
}

TESSERA_RANK_TEST_WITH("seeds: experts differ under one name, and checks know it", "[fsdp][seeds]",
                       {.worlds = {2, 3}}) {
  MixtureOfExperts model(options_of(t));
  shard_model(model, {.mesh = t.world().mesh(), .mesh_of_group = expert_mesh(t)});
  model.initialize({.seed = 0});
  fsdp::assert_module_states_equal(model, t.group(), {.except_tags = {"expert"}});
  t.check_throws<StateError>("\"module.2.weight\"",
                             [&] { fsdp::assert_module_states_equal(model, t.group()); });
  const std::int64_t elements = model.num_expert_params();
  std::int64_t held = 0;
  for (const nn::Parameter& parameter : model.expert().parameters())
    held += parameter.local().tensor().numel();
  t.check(held == elements, "this rank holds {} elements of its expert's {}", held, elements);
}

// No byte of the expert goes to another rank; its gradient is neither added nor divided.
TESSERA_RANK_TEST_WITH("seeds: an expert is reduced over its own group only", "[fsdp][seeds]",
                       {.worlds = {3}}) {
  MixtureOfExperts model(options_of(t)), twin(options_of(t));
  shard_model(model, {.mesh = t.world().mesh(), .mesh_of_group = expert_mesh(t)});
  model.initialize({.seed = 0});
  twin.initialize({.seed = 0});
  const std::vector<Variable> input = model.get_input(t.world().device(), t.rank());
  Trace trace;
  t.world().context()->set_trace(&trace);
  model.run_backward(model.get_loss(input, model.call(input)));
  t.world().context()->set_trace(nullptr);
  for (const CollectiveRecord& record : trace.all<CollectiveRecord>()) {
    t.check(record.group_size == t.size() || record.bytes_sent == 0, "{} over {} sends {} bytes",
            record.op, record.group, record.bytes_sent);
  }
  backward(twin.get_loss(input, twin.call(input)));  // unreduced
  for (const char* name : {"weight", "bias"}) {
    t.check_close(model.expert().get_parameter(name).grad(),
                  twin.expert().get_parameter(name).grad(), name);
  }
}

}  // namespace
}  // namespace tessera::testing
