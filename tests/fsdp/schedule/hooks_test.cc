// Post-accumulate hooks: once per parameter, after the reduction; also with an optimizer that steps
// in them.

#include <catch2/catch.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/optim/step_in_backward.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/models/mlp.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

/// Each layer of an MLP and its root are groups; no parameters are left for the root.
std::unique_ptr<MLP> sharded_mlp(RankTest& t, bool replicated) {
  auto model = std::make_unique<MLP>(MLPOptions{.dim = 8, .dtype = DType::kF64});
  for (const char* name : {"in_proj", "out_proj", ""}) {
    nn::Module& module = model->get_submodule(name);
    if (replicated) {
      fsdp::replicate(module, {.mesh = t.world().mesh()});
    } else {
      fsdp::fully_shard(module, {.mesh = t.world().mesh()});
    }
  }
  nn::initialize(*model, {.seed = 1});
  return model;
}

void check_hook_runs(RankTest& t, bool replicated) {
  const auto model = sharded_mlp(t, replicated);
  MLP reference({.dim = 8, .dtype = DType::kF64});
  nn::initialize(reference, {.seed = 1});
  const Tensor x = random_rows(2 * t.size(), 8, DType::kF64, 1);
  backward(plain_loss(reference(Variable(x))));
  std::map<std::string, int> runs;
  for (const nn::NamedParameter& named : model->named_parameters()) {
    Variable local = named.parameter.local();
    // By name: a parameter that its own hook holds is never freed.
    local.register_post_accumulate_hook([&, name = named.name](const Variable& hooked) {
      const nn::Parameter parameter = model->get_parameter(name),
                          whole = reference.get_parameter(name);
      ++runs[parameter.name()];
      t.check(hooked.same_as(parameter.local()), "the hook of {} got another variable",
              parameter.name());
      // Only after the reduction is the gradient the mean over all ranks.
      const double error = worst_error(parameter.grad(), box_rows(whole.grad(), parameter));
      t.check(error < 1e-13, "in the hook the gradient of {} differs by {}", parameter.name(),
              error);
    });
  }
  for (int round = 1; round <= 2; ++round) {
    backward(sharded_loss((*model)(Variable(my_rows(x, t.world()))), t.world()));
    for (const nn::NamedParameter& named : model->named_parameters())
      t.check(runs[named.name] == round, "the hook of {} ran {} times in {} backwards", named.name,
              runs[named.name], round);
    for (nn::Parameter parameter : model->parameters()) parameter.zero_grad();
  }
}

TESSERA_RANK_TEST("fsdp hooks: run once for each parameter and backward, after the reduction",
                  "[fsdp]") {
  check_hook_runs(t, /*replicated=*/false);
  check_hook_runs(t, /*replicated=*/true);
}

TESSERA_RANK_TEST("fsdp hooks: do not run in a backward that reduces nothing", "[fsdp]") {
  const auto model = sharded_mlp(t, false);
  int runs = 0;
  for (const nn::Parameter& parameter : model->parameters()) {
    Variable local = parameter.local();
    local.register_post_accumulate_hook([&runs](const Variable&) { ++runs; });
  }
  const fsdp::Handle root = fsdp::of(*model);
  const auto run = [&] {
    backward(local_loss((*model)(Variable(random_rows(2, 8, DType::kF64, 1)))));
  };
  root.set_requires_gradient_sync(false);
  run();
  run();
  t.check(runs == 0, "{} hooks ran before the reduction", runs);
  root.set_requires_gradient_sync(true);
  run();
  t.check(runs == 4, "{} hooks ran for 4 parameters", runs);
}

/// A model, and a copy that takes its optimizer steps inside backward. The bits of losses and
/// parameters are equal.
template <class Optimizer, class Options>
void check_step_in_backward(RankTest& t, const char* what, const Options& options) {
  models::Transformer model(transformer_args(2, DType::kF32)),
      doubled(transformer_args(2, DType::kF32));
  for (models::Transformer* each : {&model, &doubled}) {
    shard_transformer(*each, {.mesh = t.world().mesh()}, {.mesh = t.world().mesh()});
    nn::initialize(*each, {.seed = 1});
  }
  Optimizer after(model.parameters(), options), within(doubled.parameters(), options);
  const nn::optim::StepInBackward in_backward(within);
  for (std::int64_t step = 0; step < 5; ++step) {
    const Tensor tokens = my_rows(token_rows(2 * t.size(), 6, 8, step), t.world());
    const Variable loss = local_loss(model(tokens)), loss_again = local_loss(doubled(tokens));
    t.check_equal(loss_again.tensor(), loss.tensor(), "loss");
    backward(loss);
    backward(loss_again);
    after.step();
    after.zero_grad();
    const auto left = doubled.named_parameters(), right = model.named_parameters();
    for (std::size_t i = 0; i < left.size(); ++i) {
      t.check_equal(left[i].parameter.local().tensor(), right[i].parameter.local().tensor(),
                    fmt::format("{}, step {}, {}", what, step, left[i].name));
      t.check(!left[i].parameter.grad().defined(), "{} keeps its gradient", left[i].name);
    }
  }
}

TESSERA_RANK_TEST("fsdp hooks: the optimizer steps in backward, with the bits of a step after it",
                  "[fsdp]") {
  check_step_in_backward<nn::optim::SGD>(t, "SGD", kSgd);
  check_step_in_backward<nn::optim::AdamW>(t, "AdamW", nn::optim::AdamWOptions{.lr = 1e-2});
}

TESSERA_RANK_TEST_WITH("fsdp hooks: the optimizer steps in backward, compute queued", "[fsdp]",
                       ({.worlds = {2}, .cpu_compute = StreamKind::kQueued})) {
  check_step_in_backward<nn::optim::SGD>(t, "SGD", kSgd);
}

}  // namespace
}  // namespace tessera::testing
