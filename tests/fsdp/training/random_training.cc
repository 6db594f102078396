// Trains a Program sharded and unsharded side by side.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "tessera/distributed/launch/launch.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/step_in_backward.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/training/random_model.h"
#include "tessera/tests/fsdp/training/random_program.h"
#include "tessera/tests/support/fsdp/kept_values.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

/// A rank's part of a full tensor.
Tensor box_of(const Tensor& whole, const nn::Parameter& parameter) {
  const nn::ShardBox& box = parameter.spec().boxes.front();
  Tensor out = whole;
  for (int d = 0; d < whole.ndim(); ++d) out = out.narrow(d, box.offset[d], box.extent[d]);
  return out;
}

/// One rank's two models. A difference is thrown as text, which ends the run on all ranks.
class SideBySide {
 public:
  SideBySide(const Program& program, distributed::World& world)
      : program_(program),
        world_(world),
        tolerance_(program.precision == Precision::kStored ? 1e-11 : 2e-3),
        model_(program),
        reference_(program) {
    shard_random_model(model_, program, mesh(), world.mesh());
    set_options();
    nn::initialize(model_, {.seed = 3});
    nn::initialize(reference_, {.seed = 3});
    sgd_.emplace(model_.parameters(), kSgd);
    reference_sgd_.emplace(reference_.parameters(), kSgd);
    if (program.in_backward) in_backward_.emplace(*sgd_);
  }

  void run() {
    compare("initial values", false);
    for (std::size_t i = 0; i < program_.steps.size(); ++i) step(static_cast<int>(i));
  }

 private:
  distributed::DeviceMesh mesh() const {
    if (program_.replicas == 1) return world_.mesh();
    return distributed::DeviceMesh({"replicate", "shard"},
                                   {program_.replicas, program_.world / program_.replicas},
                                   world_.group(), world_.device());
  }

  void set_options() {
    has_shards_ = has_sharded_group(model_);
    const fsdp::Handle root = fsdp::of(model_);
    root.set_reduce_scatter_max_input_buffers(program_.reduce_buffers);
    if (!has_shards_) return;
    root.set_prefetch({.forward = program_.forward_prefetch,
                       .backward = program_.backward_prefetch ? fsdp::BackwardPrefetch::kPre
                                                              : fsdp::BackwardPrefetch::kNone});
    set_lists();
    if (program_.reduce_unused) root.set_reduce_scatter_unused_params(true);
    if (program_.separate_reduces) root.set_separate_reduce_scatter_group(true);
  }

  // Each sharded module's lists hold the modules after and before it in the tree.
  void set_lists() {
    std::vector<nn::Module*> modules = fsdp::sharded_modules(model_);
    std::erase_if(modules, [](const nn::Module* module) {
      const fsdp::Handle handle = fsdp::of(*module);
      return handle.kind() != fsdp::Kind::kFullyShard || !handle.has_group();
    });
    const auto listed = static_cast<std::ptrdiff_t>(program_.listed);
    if (listed == 0) return;
    for (auto at = modules.begin(); at != modules.end(); ++at) {
      const auto first = at - std::min(listed, at - modules.begin());
      const auto last = at + 1 + std::min(listed, modules.end() - at - 1);
      fsdp::of(**at).set_modules_to_forward_prefetch({at + 1, last});
      fsdp::of(**at).set_modules_to_backward_prefetch({first, at});
    }
  }

  void step(int number) {
    const StepPlan& plan = program_.steps[static_cast<std::size_t>(number)];
    const std::string where = fmt::format("step {}", number);
    model_.set_step(number);
    reference_.set_step(number);
    if (plan.give_up_before) give_up();
    if (plan.open_before) open_by_hand();
    if (plan.evaluate_before) evaluate(where);
    for (std::size_t i = 0; i < plan.micros.size(); ++i) {
      pass(plan.micros[i], static_cast<std::uint64_t>(number) * 10 + i);
    }
    if (!program_.in_backward) compare(where, true);
    if (plan.clip) clip(where);
    if (!program_.in_backward) sgd_->step();
    reference_sgd_->step();
    if (program_.optimizer_event)
      fsdp::of(model_).set_post_optim_event(current_stream(default_device()).record("optimizer"));
    sgd_->zero_grad();
    reference_sgd_->zero_grad();
    compare(where + ", stepped", false);
  }

  void give_up() {
    const fsdp::Handle root = fsdp::of(model_);
    root.set_requires_gradient_sync(false);
    backward(sharded_loss(model_(Variable(random_rows(3, kRandomWidth, DType::kF64, 77))), world_));
    root.reset_iter_state();
  }

  void open_by_hand() {
    bool open = true;
    for (nn::Module* module : fsdp::sharded_modules(model_)) {
      if (open) fsdp::of(*module).unshard({.async = fsdp::of(*module).has_group()});
      open = !open;
    }
  }

  void pass(const MicroPlan& micro, std::uint64_t seed) {
    const fsdp::Handle root = fsdp::of(model_);
    root.set_requires_gradient_sync(micro.sync);
    if (has_shards_) {
      if (program_.replicas > 1) root.set_requires_all_reduce(micro.all_reduce);
      root.set_reshard_after_backward(micro.reshard_after_backward);
    }
    std::vector<Variable> losses, reference_losses;
    for (std::uint64_t forward = 0; forward < (micro.forwards == Forwards::kOne ? 1U : 2U);
         ++forward) {
      const Tensor x = random_rows(micro.rows, kRandomWidth, DType::kF64, 2 * seed + forward);
      const Variable mine(my_rows(x, world_), program_.input_gradients);
      const Variable term = penalty(model_);  // its gradients come last
      losses.push_back(add(term, sharded_loss(model_(mine), world_)));
      reference_losses.push_back(add(plain_loss(reference_(Variable(x))), penalty(reference_)));
    }
    if (micro.forwards == Forwards::kTwoReversed) {
      root.set_is_last_backward(false);
      backward(losses[1]);
      root.set_is_last_backward(true);
      backward(reference_losses[1]);
    }
    const bool summed = micro.forwards == Forwards::kTwoSummed;
    backward(summed ? add(losses[0], losses[1]) : losses[0]);
    backward(summed ? add(reference_losses[0], reference_losses[1]) : reference_losses[0]);
  }

  // Each rank's own rows: no averaging.
  Variable penalty(const nn::Module& model) const {
    Variable total(Tensor::scalar(0, {.dtype = DType::kF64}));
    if (!program_.penalty) return total;
    for (const nn::Parameter& parameter : model.parameters())
      total = add(total, mul(sum(square(parameter.local())), 0.01));
    return total;
  }

  void evaluate(const std::string& where) {
    const NoGradGuard no_grad;
    const Tensor x = random_rows(5, kRandomWidth, DType::kF64, 99);
    const double error =
        worst_error(model_(Variable(x)).tensor(), reference_(Variable(x)).tensor());
    if (error > tolerance_) throw Error(fmt::format("{}: outputs differ by {}", where, error));
  }

  void clip(const std::string& where) {
    const auto norm = nn::clip_grad_norm(model_.parameters(), 0.5).item<double>();
    const auto reference_norm = nn::clip_grad_norm(reference_.parameters(), 0.5).item<double>();
    if (!(std::abs(norm - reference_norm) <= tolerance_ * std::max(1.0, reference_norm)))
      throw Error(
          fmt::format("{}: the norm is {}, of the reference {}", where, norm, reference_norm));
  }

  void compare(const std::string& where, bool gradients) {
    const auto left = model_.named_parameters();
    const auto right = reference_.named_parameters();
    for (std::size_t i = 0; i < left.size(); ++i) {
      const nn::Parameter& a = left[i].parameter;
      const nn::Parameter& b = right[i].parameter;
      compare(where + ": " + left[i].name, a.local().tensor(), box_of(b.local().tensor(), a));
      if (!gradients) continue;
      if (a.grad().defined() != b.grad().defined())
        throw Error(fmt::format("{}: {}: only the {} has a gradient", where, left[i].name,
                                a.grad().defined() ? "sharded model" : "reference"));
      if (a.grad().defined())
        compare(where + ": gradient of " + left[i].name, a.grad(), box_of(b.grad(), a));
    }
    const auto gathered = world_.context()->memory().current()[MemoryCategory::kGathered];
    const std::int64_t kept = kept_value_bytes(model_);
    if (gradients && gathered != kept && resharded_at_the_end())
      throw Error(fmt::format("{}: {} gathered bytes remain after backward, {} are kept", where,
                              gathered, kept));
  }
  void compare(const std::string& what, const Tensor& a, const Tensor& b) const {
    const double error = worst_error(a, b);
    if (!(error <= tolerance_)) throw Error(fmt::format("{} differs by {}", what, error));
  }
  bool resharded_at_the_end() const {
    return std::all_of(program_.steps.begin(), program_.steps.end(), [](const StepPlan& step) {
      return std::all_of(step.micros.begin(), step.micros.end(),
                         [](const MicroPlan& micro) { return micro.reshard_after_backward; });
    });
  }

  const Program& program_;
  distributed::World& world_;
  double tolerance_;
  RandomModel model_, reference_;
  bool has_shards_ = false;
  std::optional<nn::optim::SGD> sgd_, reference_sgd_;
  std::optional<nn::optim::StepInBackward> in_backward_;
};

}  // namespace

std::string train_and_compare(const Program& program) {
  std::mutex mutex;
  std::string remains;
  const auto body = [&](distributed::World& world) {
    MemoryCounters& memory = world.context()->memory();
    const std::int64_t before = memory.current().total();
    { SideBySide(program, world).run(); }
    const std::int64_t left = memory.current().total() - before;
    if (left == 0) return;
    const std::lock_guard lock(mutex);
    remains = fmt::format("rank {}: {} bytes remain after the model is gone", world.rank(), left);
  };
  const distributed::LaunchOptions options = rank_launch_options(
      {.cpu_compute = program.queued ? StreamKind::kQueued : StreamKind::kInline,
       .timeout = std::chrono::seconds(20)},
      program.world);
  const std::string failure = distributed::launch(0, nullptr, options, body).failure;
  return failure.empty() ? remains : failure;
}

}  // namespace tessera::testing
