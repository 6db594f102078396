// Several backwards per step: the number of gathers and reductions for each way of postponing
// reductions; gradients equal those of one whole batch.

#include <catch2/catch.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/models/mlp.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

constexpr int kMlps = 3;
constexpr int kMicroBatches = 3;
constexpr int kQuiet = 2;  ///< MLPs whose reductions are postponed in mode kSome
constexpr std::int64_t kDim = 9;

/// A layer of the root, then MLPs.
class Accumulator final : public nn::Layer<Accumulator> {
 public:
  Accumulator() : first_({.in = kDim, .out = kDim, .dtype = DType::kF64}) {
    register_module("first", first_);
    for (int i = 0; i < kMlps; ++i) {
      mlps_.push_back(std::make_unique<MLP>(MLPOptions{.dim = kDim, .dtype = DType::kF64}));
      register_module("mlp" + std::to_string(i), *mlps_.back());
    }
  }
  Variable forward(const Variable& x) {
    Variable h = first_(x);
    for (const auto& mlp : mlps_) h = add(h, (*mlp)(h));
    return h;
  }
  nn::Module& mlp(int i) { return *mlps_[static_cast<std::size_t>(i)]; }

 private:
  nn::Linear first_;
  std::vector<std::unique_ptr<MLP>> mlps_;
};

/// The modules that postpone their reductions until the last microbatch.
enum class Mode { kAll, kRoot, kSome };
const char* name_of(Mode mode) {
  return mode == Mode::kAll ? "all" : mode == Mode::kRoot ? "root only" : "some MLPs";
}

struct Case {
  Mode mode = Mode::kAll;
  fsdp::ReshardAfterForward after_forward = true;
  bool after_backward = true;
  bool scatter_only = false;  ///< reduce-scatter in each microbatch, all-reduce in the last
  int kept_by = 0;            ///< after forward each rank keeps 1 / kept_by; 0: all or nothing

  bool gathers_again() const { return after_forward != fsdp::ReshardAfterForward(false); }
  std::string str() const {
    return fmt::format("mode {}, reshard {} and {}, scatter only {}, kept by {}", name_of(mode),
                       gathers_again(), after_backward, scatter_only, kept_by);
  }
};

/// Collectives of one iteration for each setting, for one axis and for two.
Counts expected_counts(const Case& c, bool hybrid) {
  const int groups = kMlps + 1, more = kMicroBatches - 1;
  Counts out;
  const int reduces = groups + (c.mode == Mode::kAll    ? 0
                                : c.mode == Mode::kRoot ? kMlps * more
                                                        : (groups - kQuiet) * more);
  out.reduce_scatter = c.scatter_only ? groups * kMicroBatches : reduces;
  out.all_reduce = hybrid ? reduces : 0;
  out.all_gather = c.gathers_again()      ? 2 * groups * kMicroBatches
                   : c.after_backward     ? groups * kMicroBatches
                   : c.mode == Mode::kAll ? groups
                                          : groups + kMlps * more;
  return out;
}

void set_flags(Accumulator& model, const Case& c, bool is_last) {
  const auto put_off = [&](nn::Module& module, bool recurse) {
    const fsdp::Handle handle = fsdp::of(module);
    if (c.scatter_only) {
      handle.set_requires_all_reduce(is_last, {.recurse = recurse});
    } else {
      handle.set_requires_gradient_sync(is_last, {.recurse = recurse});
    }
    if (!c.after_backward) handle.set_reshard_after_backward(is_last, {.recurse = recurse});
  };
  if (c.mode == Mode::kSome) {
    for (int i = 0; i < kQuiet; ++i) put_off(model.mlp(i), true);
  } else {
    put_off(model, c.mode == Mode::kAll);
  }
}

/// Half of the gathers run in backward; values of which 1/n was kept are gathered among n ranks.
void check_neighbours(RankTest& t, const Case& c, const ExecutionTrace& trace, int shards) {
  if (c.kept_by == 0) return;
  int among_all = 0, among_neighbours = 0;
  for (const CollectiveRecord& record : records_of(trace, "all_gather")) {
    among_all += record.group_size == shards;
    among_neighbours += record.group_size == c.kept_by;
  }
  const int groups = kMlps + 1;
  t.check(among_all == groups && among_neighbours == groups,
          "{}: {} gathers among {} ranks and {} among {}, expected {} each", c.str(), among_all,
          shards, among_neighbours, c.kept_by, groups);
}

void run_case(RankTest& t, const distributed::DeviceMesh& mesh, const Case& c) {
  Accumulator model, reference;
  const fsdp::FullyShardOptions options = {.mesh = mesh, .reshard_after_forward = c.after_forward};
  for (int i = 0; i < kMlps; ++i) fsdp::fully_shard(model.mlp(i), options);
  fsdp::fully_shard(model, options);
  nn::initialize(model, {.seed = 1});
  nn::initialize(reference, {.seed = 1});
  nn::optim::SGD sgd(model.parameters(), kSgd), reference_sgd(reference.parameters(), kSgd);
  for (std::uint64_t iteration = 0; iteration < 2; ++iteration) {
    Counts seen;
    for (std::uint64_t micro = 0; micro < kMicroBatches; ++micro) {
      const Tensor x =
          random_rows(2 * t.size(), kDim, DType::kF64, iteration * kMicroBatches + micro);
      set_flags(model, c, micro + 1 == kMicroBatches);
      const ExecutionTrace trace = traced(t, [&] {
        const Variable y = model(Variable(my_rows(x, t.world())));
        backward(mul(sum(square(y)), 0.5 / static_cast<double>(y.dim(0))));
      });
      seen += counts_of(trace);
      check_neighbours(t, c, trace, mesh.size(mesh.axes().back()));
      backward(plain_loss(reference(Variable(x))));
    }
    check_counts(t, c.str(), seen, unless_alone(t, expected_counts(c, mesh.ndim() == 2)));
    const std::string difference =
        compare_with_reference(model, reference, 1e-12, /*gradients=*/true);
    t.check(difference.empty(), "{}, iteration {}: {}", c.str(), iteration, difference);
    for (auto* each : {&sgd, &reference_sgd}) {
      each->step();
      each->zero_grad();
    }
  }
}

/// `kept_by`: at least two, and fewer than the ranks of the shard axis; 0: no part is kept.
void run_cases(RankTest& t, const distributed::DeviceMesh& mesh, int kept_by) {
  for (const bool scatter_only : {false, true}) {
    if (scatter_only && mesh.ndim() == 1) continue;
    for (const Mode mode : {Mode::kAll, Mode::kRoot, Mode::kSome}) {
      const auto run = [&](Case c) {
        c.mode = mode;
        c.scatter_only = scatter_only;
        run_case(t, mesh, c);
      };
      if (kept_by > 0) {
        run({.after_forward = kept_by, .kept_by = kept_by});
        continue;
      }
      for (const bool reshard : {true, false}) run({.after_forward = reshard});
      if (mode != Mode::kSome) run({.after_forward = false, .after_backward = false});
    }
  }
}

/// 2 x 2, 2 x 3 (9 rows are 3, 3, 3 and 36 are 12 each), 2 x 4.
distributed::DeviceMesh two_replicas(RankTest& t) {
  return {{"replicate", "shard"}, {2, t.size() / 2}, t.world().group(), t.world().device()};
}

TESSERA_RANK_TEST("fsdp accumulation: counts and gradients, one axis", "[fsdp]") {
  run_cases(t, t.world().mesh(), 0);
}

TESSERA_RANK_TEST_WITH("fsdp accumulation: counts and gradients, one axis, 1/n is kept", "[fsdp]",
                       {.worlds = {4, 6}}) {
  run_cases(t, t.world().mesh(), 2);
}

TESSERA_RANK_TEST_WITH("fsdp accumulation: counts and gradients, two axes", "[fsdp]",
                       {.worlds = {4, 6}}) {
  run_cases(t, two_replicas(t), 0);
}

TESSERA_RANK_TEST_WITH("fsdp accumulation: counts and gradients, two axes, 1/n is kept", "[fsdp]",
                       {.worlds = {8}}) {
  run_cases(t, two_replicas(t), 2);
}

TESSERA_RANK_TEST("fsdp accumulation: nothing is reduced until a backward may", "[fsdp]") {
  Accumulator model;
  for (int i = 0; i < kMlps; ++i) fsdp::fully_shard(model.mlp(i), {.mesh = t.world().mesh()});
  const fsdp::Handle root = fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  const auto run = [&] {
    backward(local_loss(model(Variable(random_rows(2, kDim, DType::kF64, 1)))));
  };
  root.set_requires_gradient_sync(false);
  run();
  for (const nn::NamedParameter& named : model.named_parameters()) {
    nn::Parameter parameter = named.parameter;
    t.check(!parameter.grad().defined(), "{} has a gradient before any reduction", named.name);
    t.check_throws<StateError>(named.name.starts_with("mlp0") ? "mlp0" : "",
                               [&] { parameter.zero_grad(); });
  }
  root.discard_pending_gradients();
  for (nn::Parameter parameter : model.parameters()) parameter.zero_grad();
  root.set_requires_gradient_sync(true);
  run();
  const std::vector<nn::Parameter> parameters = model.parameters();
  std::vector<Tensor> once;
  for (const nn::Parameter& parameter : parameters) once.push_back(clone(parameter.grad()));
  for (nn::Parameter parameter : parameters) parameter.zero_grad();
  run();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    t.check_equal(parameters[i].grad(), once[i], parameters[i].name() + " after discarding");
}

// A pipeline schedule: one forward and one backward at a time, with all flags set for the last
// only.
TESSERA_RANK_TEST("fsdp accumulation: flags of a pipeline, with and without gathers by hand",
                  "[fsdp]") {
  for (const bool by_hand : {false, true}) {
    Accumulator model, reference;
    const fsdp::FullyShardOptions options = {.mesh = t.world().mesh(),
                                             .reshard_after_forward = false};
    for (int i = 0; i < kMlps; ++i) fsdp::fully_shard(model.mlp(i), options);
    const fsdp::Handle root = fsdp::fully_shard(model, options);
    nn::initialize(model, {.seed = 1});
    nn::initialize(reference, {.seed = 1});
    nn::optim::SGD sgd(model.parameters(), kSgd), reference_sgd(reference.parameters(), kSgd);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const ExecutionTrace trace = traced(t, [&] {
        if (by_hand) {
          for (nn::Module* module : fsdp::sharded_modules(model))
            fsdp::of(*module).unshard({.async = true});
        }
        for (std::uint64_t micro = 0; micro < kMicroBatches; ++micro) {
          const bool is_last = micro + 1 == kMicroBatches;
          root.set_requires_gradient_sync(is_last);
          root.set_is_last_backward(is_last);
          root.set_reshard_after_backward(is_last);
          const Tensor x = random_rows(2 * t.size(), kDim, DType::kF64, step * 10 + micro);
          const Variable y = model(Variable(my_rows(x, t.world())));
          const Variable y_reference = reference(Variable(x));
          backward(mul(sum(square(y)), 0.5 / static_cast<double>(y.dim(0))));
          backward(plain_loss(y_reference));
        }
      });
      check_counts(t, fmt::format("by hand {}, step {}", by_hand, step), trace,
                   unless_alone(t, {.all_gather = kMlps + 1, .reduce_scatter = kMlps + 1}));
      const std::string difference =
          compare_with_reference(model, reference, 1e-12, /*gradients=*/true);
      t.check(difference.empty(), "by hand {}, step {}: {}", by_hand, step, difference);
      for (auto* each : {&sgd, &reference_sgd}) {
        each->step();
        each->zero_grad();
      }
      for (nn::Module* module : fsdp::sharded_modules(model)) {
        const auto state = fsdp::of(*module).state();
        t.check(state == fsdp::GroupState::kSharded, "after a step {} is {}", module->type_name(),
                fsdp::group_state_name(state));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
