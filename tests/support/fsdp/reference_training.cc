#include "tessera/tests/support/fsdp/reference_training.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/autograd/ops/autocast.h"
#include "tessera/distributed/decorators.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/fsdp/testing.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/support/fsdp/kept_values.h"

namespace tessera::testing {
namespace {

constexpr nn::InitializeOptions start(Device device) { return {.seed = 0, .device = device}; }

double number(const Variable& loss) { return cast(loss.tensor(), DType::kF64).item<double>(); }

// One of the two models, with its optimizer.
struct Trainee {
  explicit Trainee(nn::Module& root, const ReferenceTrainingOptions& options)
      : sgd(root.parameters(), {.lr = 0.01, .momentum = 0.9}),
        scaler(options.scaler.value_or(nn::GradScalerOptions{.enabled = false})) {}
  nn::optim::SGD sgd;
  nn::GradScaler scaler;
};

class ReferenceTraining {
 public:
  ReferenceTraining(RankTest& t, const MakeModel& make, const ReferenceTrainingOptions& options)
      : t_(t),
        options_(options),
        tolerance_(options.tolerance.value_or(is_hybrid(options.strategy) ? 1e-12 : 0)),
        mesh_(mesh_of(options.strategy, t.world())),
        reference_(make_reference(make)),
        model_(make({.dtype = options.dtype, .sharded = true})) {
    if (options_.late) delay_mesh();
    shard();
    check_options();
    check_parity("at the start", /*gradients=*/false);
  }

  void run() {
    Trainee whole(reference_.root(), options_), sharded(model_->root(), options_);
    for (int step = 0; step < options_.steps; ++step) {
      const RankTest::NamedCase named(t_, fmt::format("step {}", step));
      step_ = static_cast<std::uint64_t>(step);
      train_step(whole, sharded);
      check_parity("after the step", /*gradients=*/false);
      save_and_load();
      if (options_.buffers_of_rank) check_buffers();
    }
    check_full_params();
    const fsdp::ModuleStatesOptions equal{.except_tags = {"expert"},
                                          .buffers = !options_.buffers_of_rank};
    fsdp::assert_module_states_equal(reference_.root(), t_.group(), equal);
    fsdp::assert_module_states_equal(model_->root(), t_.group(), equal);
  }

 private:
  UnshardedReference make_reference(const MakeModel& make) {
    const fsdp::MixedPrecision& mixed = options_.mixed_precision;
    const Device device = t_.world().device();
    std::unique_ptr<TestModel> stored = make({.dtype = options_.dtype});
    stored->initialize(start(device));
    if (options_.pure) stored->root().to(*options_.pure);
    std::unique_ptr<TestModel> computing;
    if (mixed.param_dtype) {
      computing = make({.dtype = *mixed.param_dtype});
      computing->initialize(start(device));
    }
    return {std::move(stored),
            std::move(computing),
            {.group = t_.world().group(),
             .param_dtype = mixed.param_dtype,
             .reduce_dtype = mixed.reduce_dtype,
             .output_dtype = mixed.output_dtype,
             .reduces_by_itself = static_cast<bool>(options_.mesh_of_group)}};
  }

  void delay_mesh() {
    const std::vector<std::string> axes = mesh_.axes();  // axes of the mesh that is replaced
    for (const std::string& axis : axes) {
      mesh_ = mesh_.with_group(
          axis, distributed::delay(mesh_.group(axis), *options_.late, options_.late_ms));
    }
  }

  void shard() {
    const Device device = t_.world().device();
    if (options_.init == InitMode::kBefore) model_->initialize(start(device));
    if (options_.init == InitMode::kAfter) model_->initialize(start(kCpu));
    shard_model(*model_, {.strategy = options_.strategy,
                          .mesh = mesh_,
                          .offload = options_.offload,
                          .mixed_precision = options_.mixed_precision,
                          .mesh_of_group = options_.mesh_of_group});
    if (options_.init == InitMode::kAfter) model_->root().to(device);
    if (options_.init == InitMode::kDeferred) model_->initialize(start(device));
    if (options_.pure) model_->root().to(*options_.pure);
    fsdp::of(model_->root()).set_prefetch(options_.prefetch);
  }

  // The options of every group can be read back.
  void check_options() {
    for (nn::Module* module : fsdp::sharded_modules(model_->root())) {
      const fsdp::Handle handle = fsdp::of(*module);
      const bool replicated = options_.strategy == ShardingStrategy::kReplicate;
      t_.check(handle.kind() == (replicated ? fsdp::Kind::kReplicate : fsdp::Kind::kFullyShard),
               "{} is of kind {}", handle.group_name(), fsdp::kind_name(handle.kind()));
      t_.check(handle.options().offload == options_.offload, "{}: another offload",
               handle.group_name());
      t_.check(handle.options().mixed_precision.param_dtype == options_.mixed_precision.param_dtype,
               "{}: another param_dtype", handle.group_name());
    }
  }

  void train_step(Trainee& whole, Trainee& sharded) {
    whole.sgd.zero_grad();
    sharded.sgd.zero_grad();
    const auto [expected, actual] = forward(whole, sharded);
    check_loss(actual, expected);
    check_homes("after forward");
    reference_.run_backward(expected);
    model_->run_backward(actual);
    check_idle();
    check_homes("after backward");
    check_parity("after backward", /*gradients=*/true);
    clip(whole, sharded);
    const bool stepped = whole.scaler.step(whole.sgd);
    t_.check(sharded.scaler.step(sharded.sgd) == stepped, "one of both skipped the step");
    whole.scaler.update();
    sharded.scaler.update();
    t_.check(sharded.scaler.get_scale() == whole.scaler.get_scale(), "scales {} and {}",
             sharded.scaler.get_scale(), whole.scaler.get_scale());
  }

  void clip(Trainee& whole, Trainee& sharded) {
    if (!options_.max_norm) return;
    if (options_.scaler) {
      whole.scaler.unscale(whole.sgd);
      sharded.scaler.unscale(sharded.sgd);
    }
    const Tensor expected = nn::clip_grad_norm(whole.sgd.parameters(), *options_.max_norm);
    const Tensor actual = nn::clip_grad_norm(sharded.sgd.parameters(), *options_.max_norm);
    check_number("the norm", actual.item<double>(), expected.item<double>());
    check_parity("after clipping", /*gradients=*/true);
  }

  // The reference draws the same random numbers as the model: each rank those of its samples.
  template <class Run>
  Variable drawing(const Run& run) const {
    const random::StepScope scope({.seed = 5, .step = step_, .first_sample = 100 * t_.rank()});
    return run();
  }

  struct Losses {
    Variable expected, actual;
  };
  Losses forward(const Trainee& whole, const Trainee& sharded) {
    std::vector<Variable> input = model_->get_input(t_.world().device(), t_.rank());
    if (options_.pure) input = cast_floating(input, *options_.pure);
    const AutocastGuard autocast(options_.autocast);
    const Variable expected = drawing([&] { return reference_.loss(input); });
    const Variable actual = drawing([&] { return model_->get_loss(input, model_->call(input)); });
    return {whole.scaler.scale(expected), sharded.scaler.scale(actual)};
  }

  void check_number(const char* what, double actual, double expected) {
    t_.check(std::abs(actual - expected) <= tolerance_ * std::max(1.0, std::abs(expected)),
             "{} is {:.17g}, the reference's {:.17g}", what, actual, expected);
  }

  void check_loss(const Variable& actual, const Variable& expected) {
    check_number("the loss", number(actual), number(expected));
    t_.check(actual.dtype() == expected.dtype(), "the loss is {}, the reference's {}",
             dtype_name(actual.dtype()), dtype_name(expected.dtype()));
  }

  // Nothing is gathered, and nothing is in flight.
  void check_idle() {
    for (nn::Module* module : fsdp::sharded_modules(model_->root())) {
      const fsdp::Handle handle = fsdp::of(*module);
      t_.check(handle.phase() == fsdp::Phase::kIdle, "{} is in {}", handle.group_name(),
               fsdp::phase_name(handle.phase()));
      t_.check(options_.strategy == ShardingStrategy::kReplicate ||
                   handle.state() == fsdp::GroupState::kSharded,
               "{} is {}", handle.group_name(), fsdp::group_state_name(handle.state()));
    }
    const auto gathered = t_.world().context()->memory().current()[MemoryCategory::kGathered];
    const std::int64_t kept = kept_value_bytes(model_->root());
    t_.check(gathered == kept, "{} gathered bytes remain, {} are kept", gathered, kept);
  }

  // Checks the devices of shards and gradients, also between forward and backward.
  void check_homes(const char* when) {
    const Device home = options_.offload ? kCpu : t_.world().device();
    for (const nn::NamedParameter& named : model_->root().named_parameters()) {
      const nn::Parameter& parameter = named.parameter;
      t_.check(parameter.local().device() == home, "{}: {} is on {}", when, named.name,
               parameter.local().device().str());
      t_.check(!parameter.grad().defined() || parameter.grad().device() == home,
               "{}: the gradient of {} is elsewhere", when, named.name);
    }
  }

  void check_parity(const char* when, bool gradients) {
    const std::string report = fsdp::check_sharded_parity(
        reference_.root(), model_->root(), {.tolerance = tolerance_, .gradients = gradients});
    t_.check(report.empty(), "{}: {}", when, report);
  }

  void check_buffers() {
    const auto actual = model_->root().named_buffers(),
               expected = reference_.root().named_buffers();
    for (std::size_t i = 0; i < expected.size(); ++i)
      t_.check_equal(actual[i].buffer.tensor(), expected[i].buffer.tensor(), actual[i].name);
  }

  void save_and_load() {
    nn::Module& root = model_->root();
    if (options_.save_and_load == SaveAndLoad::kNone) return;
    if (options_.save_and_load == SaveAndLoad::kSharded) {
      const nn::StateDict state = nn::state_dict(root).clone();
      zero_model(root, {.zero_buffers = true, .summon_full = false});
      nn::load_state_dict(root, state);
    } else {
      const nn::StateDict state = fsdp::full_state_dict(root, {.rank0_only = true});
      t_.check(state.empty() == (t_.rank() != 0), "the whole state is elsewhere");
      zero_model(root, {.zero_buffers = true});
      fsdp::load_full_state_dict(root, state);
    }
    check_parity("after loading", /*gradients=*/false);
  }

  // Compares the gathered values with the reference's.
  void check_full_params() {
    const std::vector<Tensor> whole = get_full_params(model_->root());
    const std::vector<nn::Parameter> expected = reference_.root().parameters();
    if (!t_.check(whole.size() == expected.size(), "{} whole parameters", whole.size())) return;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      t_.check_close(whole[i], expected[i].local().tensor(), {tolerance_, tolerance_},
                     expected[i].name());
    }
  }

  RankTest& t_;
  const ReferenceTrainingOptions& options_;
  double tolerance_;
  distributed::DeviceMesh mesh_;
  UnshardedReference reference_;
  std::unique_ptr<TestModel> model_;
  std::uint64_t step_ = 0;
};

}  // namespace

void train_against_reference(RankTest& t, const MakeModel& make,
                             const ReferenceTrainingOptions& options) {
  ReferenceTraining(t, make, options).run();
}

}  // namespace tessera::testing
