// MixtureOfExperts of PyTorch's FSDP tests: each rank's own expert, over a mesh of this rank alone,
// beside layers over all ranks. Experts have different values under one name; each group divides by
// its own size.

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/ops/ops.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/testing.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/fsdp/seeds/seed_models.h"
#include "tessera/tests/support/fsdp/reference_training.h"
#include "tessera/tests/support/models/nested.h"
#include "tessera/tests/support/ranks.h"
#include "tessera/tests/support/subtests.h"

namespace tessera::testing {
namespace {

const auto strategies = axis(
    "strategy", {value("full", ShardingStrategy::kFull), value("grad", ShardingStrategy::kGrad),
                 value("replicate", ShardingStrategy::kReplicate)});

TESSERA_RANK_TEST("seeds: MixtureOfExperts trains like its reference", "[fsdp][seeds]") {
  run_subtests(
      t,
      [&](ShardingStrategy strategy, bool offload) {
        ReferenceTrainingOptions options{
            .strategy = strategy, .steps = 3, .tolerance = 1e-12, .mesh_of_group = expert_mesh(t)};
        if (offload) options.offload = fsdp::CpuOffload{};
        train_against_reference(t, make<MixtureOfExperts>(experts_of(t)), options);
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
              Late::Options{.model = experts_of(t, request.dtype),
                            .delay_after_loss_ms = request.sharded ? 2.0 : 0.0});
        };
        train_against_reference(
            t, make,
            {.late = kind, .late_ms = 2, .tolerance = 1e-12, .mesh_of_group = expert_mesh(t)});
      },
      axis("late", {value("gather", CollectiveKind::kAllGather),
                    value("reduce", CollectiveKind::kReduceScatter)}));
}

/// Three of these models in sequence: "0", "1", "2". Their shared layers have equal sizes but
/// different values.
class Tower final : public nn::Layer<Tower>, public TestModel {
 public:
  explicit Tower(const MixtureOfExpertsOptions& options) {
    for (int i = 0; i < 3; ++i) {
      floors_.push_back(std::make_unique<MixtureOfExperts>(options));
      register_module(std::to_string(i), *floors_.back());
    }
  }
  Variable forward(Variable x) {
    for (const auto& floor : floors_) x = (*floor)(x);
    return x;
  }
  MixtureOfExperts& floor(std::size_t i) { return *floors_.at(i); }

  nn::Module& root() override { return *this; }
  std::vector<Variable> get_input(Device device, int rank) const override {
    return floors_.front()->get_input(device, rank);
  }
  Variable call(const std::vector<Variable>& input) override { return (*this)(input.at(0)); }
  Variable get_loss(const std::vector<Variable>&, const Variable& output) override {
    return sum(output);
  }
  void run_backward(const Variable& loss) override {
    backward(loss);
    for (const auto& floor : floors_) floor->average_gradients();
  }
  std::vector<nn::Module*> groups() override {
    std::vector<nn::Module*> out;
    for (const auto& floor : floors_) {
      for (nn::Module* group : floor->groups()) out.push_back(group);
    }
    return out;
  }

 private:
  std::vector<std::unique_ptr<MixtureOfExperts>> floors_;
};

// PyTorch's delay_before_free, on layers that are gathered (an expert on a mesh of one rank has
// nothing to release). A layer's values are read late, after the host released them. The next
// gather into their memory is of another layer of the same size, so reusing the memory too early
// changes the numbers.
TESSERA_RANK_TEST_WITH("seeds: MixtureOfExperts, late before a layer is released", "[fsdp][seeds]",
                       {.worlds = {2}, .cpu_compute = StreamKind::kQueued}) {
  run_subtests(
      t,
      [&](int late) {
        const MakeModel make = [&t, late](const ModelRequest& request) {
          auto model = std::make_unique<Tower>(experts_of(t, request.dtype));
          if (request.sharded) {
            // FSDP's own hook, which waits for the values, runs before this one.
            model->floor(static_cast<std::size_t>(late))
                .shared()
                .register_forward_pre_hook([](nn::Module&, const nn::VisitVariables&) {
                  stream_sleep(current_stream(default_device()), 10);
                });
          }
          return model;
        };
        train_against_reference(t, make,
                                {.steps = 3, .tolerance = 1e-12, .mesh_of_group = expert_mesh(t)});
      },
      axis("late", {0, 1}));
}

TESSERA_RANK_TEST_WITH("seeds: experts differ under one name, and checks know it", "[fsdp][seeds]",
                       {.worlds = {2, 3}}) {
  MixtureOfExperts model(experts_of(t));
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

// No byte of the expert is sent; its gradient is neither summed nor divided.
TESSERA_RANK_TEST_WITH("seeds: an expert is reduced over its own group only", "[fsdp][seeds]",
                       {.worlds = {3}}) {
  MixtureOfExperts model(experts_of(t)), reference(experts_of(t));
  shard_model(model, {.mesh = t.world().mesh(), .mesh_of_group = expert_mesh(t)});
  model.initialize({.seed = 0});
  reference.initialize({.seed = 0});
  const std::vector<Variable> input = model.get_input(t.world().device(), t.rank());
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    model.run_backward(model.get_loss(input, model.call(input)));
  }
  for (const CollectiveRecord& record : trace.all<CollectiveRecord>()) {
    t.check(record.group_size == t.size() || record.bytes_sent == 0, "{} over {} sends {} bytes",
            record.op, record.group, record.bytes_sent);
  }
  backward(reference.get_loss(input, reference.call(input)));  // not reduced
  for (const char* name : {"weight", "bias"}) {
    t.check_close(model.expert().get_parameter(name).grad(),
                  reference.expert().get_parameter(name).grad(), name);
  }
}

}  // namespace
}  // namespace tessera::testing
