// Random models, shardings and schedules: sharded training equals unsharded training.
//
// Every run tries the same programs, unless RC_PARAMS in the environment says otherwise, for
// instance RC_PARAMS='seed=7 max_success=1000'. A failure is shrunk, and printed with the program
// and the parameters that repeat it.

#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <string>

#include "tessera/tests/fsdp/training/random_program.h"

namespace tessera::testing {
namespace {

[[maybe_unused]] const int kConfigured =
    setenv("RC_PARAMS", "seed=20250301 max_success=50", /*overwrite=*/0);

/// In [low, high], all equally likely from the first program on.
int number(int low, int high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high + 1));
}
/// True once in `times` on average; shrinks to false.
bool once_in(int times) { return number(0, times - 1) == times - 1; }

NodeKind draw_kind(int depth) {
  // Shrinking prefers earlier elements.
  static constexpr NodeKind kLeaves[] = {NodeKind::kGelu,   NodeKind::kLinear,   NodeKind::kMlp,
                                         NodeKind::kNorm,   NodeKind::kTied,     NodeKind::kReuse,
                                         NodeKind::kUnused, NodeKind::kSometimes};
  static constexpr NodeKind kBranches[] = {NodeKind::kSequence, NodeKind::kResidual,
                                           NodeKind::kDetached};
  if (depth > 0 && once_in(2)) return kBranches[number(0, 2)];
  return kLeaves[number(0, 7)];
}

NodePlan draw_node(int depth) {
  NodePlan node;
  node.kind = draw_kind(depth);
  node.number = number(1, 9);
  node.frozen_weights = once_in(6);
  node.frozen_biases = once_in(6);
  if (once_in(2)) node.wrap = once_in(4) ? Wrap::kReplicate : Wrap::kShard;
  node.reshard = number(0, 5);
  node.list = once_in(4);
  node.recompute = once_in(5);
  if (node.kind != NodeKind::kSequence && node.kind != NodeKind::kResidual &&
      node.kind != NodeKind::kDetached)
    return node;
  const int children = number(1, 3);
  for (int i = 0; i < children; ++i) node.children.push_back(draw_node(depth - 1));
  return node;
}

StepPlan draw_step() {
  StepPlan step;
  step.micros.clear();
  const int passes = number(1, 3);
  for (int i = 0; i < passes; ++i) {
    step.micros.push_back({.sync = !once_in(3),
                           .all_reduce = !once_in(3),
                           .reshard_after_backward = !once_in(4),
                           .forwards = static_cast<Forwards>(once_in(3) ? number(1, 2) : 0),
                           .rows = number(1, 7)});
  }
  step.evaluate_before = once_in(4);
  step.clip = once_in(4);
  step.give_up_before = once_in(8);
  step.open_before = once_in(6);
  return step;
}

void draw_settings(Program& program) {
  program.world = number(1, 5);
  if (once_in(3)) program.replicas = number(1, program.world);
  program.over_replicas = once_in(3);
  program.queued = once_in(2);
  program.offload = once_in(5);
  program.cut_dim1 = once_in(5);
  program.precision = static_cast<Precision>(once_in(3) ? number(1, 2) : 0);
  program.exempt_norms = once_in(2);
  program.forward_prefetch = number(0, 2);
  program.backward_prefetch = !once_in(3);
  program.reduce_buffers = number(0, 2);
  program.reduce_unused = once_in(4);
  program.separate_reduces = once_in(4);
  program.in_backward = once_in(6);
  program.optimizer_event = once_in(5);
  program.penalty = !program.in_backward && once_in(5);
  program.listed = once_in(4) ? number(1, 2) : 0;
  program.input_gradients = once_in(4);
  program.root_replicated = once_in(6);
  program.root_reshard = number(0, 5);
}

Program draw_program() {
  Program program;
  draw_settings(program);
  const int children = number(1, 4);
  for (int i = 0; i < children; ++i) program.body.children.push_back(draw_node(2));
  program.steps.clear();
  const int steps = number(1, 3);
  for (int i = 0; i < steps; ++i) program.steps.push_back(draw_step());
  settle(program);
  return program;
}

TEST_CASE("fsdp: random programs train sharded as unsharded", "[fsdp][property]") {
  const bool holds = rc::check("sharded equals unsharded", [] {
    const Program program = draw_program();
    std::cout << describe(program) << std::endl;  // so that the program is printed even if the test
                                                  // crashes
    const std::string difference = train_and_compare(program);
    if (!difference.empty()) RC_FAIL(difference + "\n" + describe(program));
  });
  CHECK(holds);
}

}  // namespace
}  // namespace tessera::testing
