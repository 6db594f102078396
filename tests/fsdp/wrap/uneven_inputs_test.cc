// Ranks whose data run out at different steps: the effect of each policy, and that padding leaves
// the gradient exactly that of the existing rows.

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/uneven_inputs.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/training/loss.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using fsdp::UnevenPolicy;

constexpr UnevenPolicy kPolicies[] = {UnevenPolicy::kStopTogether, UnevenPolicy::kPadWithZeroWeight,
                                      UnevenPolicy::kRefuse};

/// Number of batches of a rank: 2, 0, 3, 1, 4 ...
int batches_of(int rank) { return std::vector{2, 0, 3, 1, 4}[static_cast<std::size_t>(rank % 5)]; }

/// A rank's rows in a step; their number differs between ranks.
Tensor batch_of(int rank, std::int64_t step) {
  return random_rows(rank + 1, 7, DType::kF64, static_cast<std::uint64_t>(100 * step + rank));
}

/// The rows of all ranks in a step.
Tensor union_of(int ranks, std::int64_t step) {
  std::vector<Tensor> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    if (step <= batches_of(rank)) parts.push_back(batch_of(rank, step));
  }
  return cat(parts, 0);
}

Variable loss_sum(const Variable& y) { return mul(sum(square(y)), 0.5); }

TESSERA_RANK_TEST("fsdp uneven inputs: padding trains on exactly the rows there are", "[fsdp]") {
  // A rank without data runs no rows, or an earlier batch again: the result is the same.
  for (const bool run_again : {false, true}) {
    Chain model({}), reference({});
    shard_chain(model, {.mesh = t.world().mesh()});
    nn::initialize(model, {.seed = 1});
    nn::initialize(reference, {.seed = 1});
    nn::optim::SGD optimizer(model.parameters(), kSgd),
        reference_optimizer(reference.parameters(), kSgd);
    const auto mesh = distributed::make_mesh(t.world().mesh());

    const int mine = batches_of(t.rank());
    Tensor last = random_rows(run_again ? 3 : 0, 7, DType::kF64, 9);
    fsdp::UnevenInputs inputs(t.world().mesh(), UnevenPolicy::kPadWithZeroWeight);
    std::int64_t steps = 0;
    while (const auto turn = inputs.next(steps < mine)) {
      ++steps;
      if (turn->has_batch) last = batch_of(t.rank(), turn->step);
      if (!turn->has_batch && !run_again) last = last.slice(0, 0, 0);
      const Variable loss = mul(loss_sum(model(Variable(last))), turn->weight);
      backward(nn::global_mean(loss, turn->has_batch ? last.dim(0) : 0, mesh));
      const Variable plain = reference(Variable(union_of(t.size(), turn->step)));
      backward(plain_loss(plain));
      const std::string gradients =
          compare_with_reference(model, reference, 1e-12, /*gradients=*/true);
      t.check(gradients.empty(), "step {}: {}", turn->step, gradients);
      optimizer.step();
      reference_optimizer.step();
      optimizer.zero_grad();
      reference_optimizer.zero_grad();
    }
    int longest = 0;
    for (int rank = 0; rank < t.size(); ++rank) longest = std::max(longest, batches_of(rank));
    t.check(steps == longest, "{} steps, expected {}", steps, longest);
    const std::string values = compare_with_reference(model, reference, 1e-12);
    t.check(values.empty(), "at the end: {}", values);
  }
}

/// Steps until the epoch ends.
int steps_of(fsdp::UnevenInputs& inputs, int batches) {
  int steps = 0;
  while (inputs.next(steps < batches)) ++steps;
  return steps;
}

TESSERA_RANK_TEST("fsdp uneven inputs: how long each policy goes on", "[fsdp]") {
  const int mine = 3 + t.rank();
  fsdp::UnevenInputs stop(t.world().mesh(), UnevenPolicy::kStopTogether);
  t.check(steps_of(stop, mine) == 3, "stop_together did not stop with the first");
  fsdp::UnevenInputs pad(t.world().mesh(), UnevenPolicy::kPadWithZeroWeight);
  t.check(steps_of(pad, mine) == 2 + t.size(), "pad_with_zero_weight did not stop with the last");
  for (const UnevenPolicy policy : kPolicies) {
    fsdp::UnevenInputs even(t.world().mesh(), policy);
    t.check(steps_of(even, 2) == 2, "{}: equal numbers of batches",
            fsdp::uneven_policy_name(policy));
    fsdp::UnevenInputs none(t.world().mesh(), policy);
    t.check(steps_of(none, 0) == 0, "{}: no batches", fsdp::uneven_policy_name(policy));
  }
}

TESSERA_RANK_TEST("fsdp uneven inputs: what a turn says", "[fsdp]") {
  fsdp::UnevenInputs inputs(t.world().group(), UnevenPolicy::kPadWithZeroWeight);
  for (int step = 0; step < t.size(); ++step) {
    const bool have = t.rank() >= step;  // one rank fewer at every step
    const auto turn = inputs.next(have);
    if (!t.check(turn.has_value(), "ended at step {}", step + 1)) return;
    t.check(turn->step == step + 1, "step {}, expected {}", turn->step, step + 1);
    t.check(turn->ranks == t.size() - step, "{} ranks at step {}", turn->ranks, step + 1);
    t.check(turn->has_batch == have && turn->weight == (have ? 1.0 : 0.0), "weight {} with {}",
            turn->weight, have);
  }
  t.check(!inputs.next(false).has_value(), "goes on although nobody has a batch");
}

TESSERA_RANK_TEST_WITH("fsdp uneven inputs: over both axes of hybrid sharding", "[fsdp]",
                       {.worlds = {4}}) {
  const distributed::DeviceMesh mesh({"replicate", "shard"}, {2, 2}, t.world().group(),
                                     default_device());
  for (int odd = 0; odd < 4; ++odd) {
    fsdp::UnevenInputs stop(mesh, UnevenPolicy::kStopTogether);
    t.check(steps_of(stop, t.rank() == odd ? 1 : 2) == 1, "rank {} had less", odd);
    fsdp::UnevenInputs pad(mesh, UnevenPolicy::kPadWithZeroWeight);
    const auto turn = pad.next(t.rank() == odd);
    t.check(turn.has_value() && turn->ranks == 1, "only rank {} had a batch", odd);
  }
}

TESSERA_RANK_TEST_WITH("fsdp uneven inputs: refused", "[fsdp]", {.worlds = {3, 5}}) {
  fsdp::UnevenInputs inputs(t.world().mesh(), UnevenPolicy::kRefuse);
  inputs.next(true);
  t.check_throws<StateError>(
      fmt::format("ranks 0, 2 have no batch for step 2, and the others of {} ranks have", t.size()),
      [&] { inputs.next(t.rank() != 0 && t.rank() != 2); });
  t.check_throws<StateError>("the epoch ended after 1 steps", [&] { inputs.next(true); });
}

TESSERA_RANK_TEST("fsdp uneven inputs: errors", "[fsdp]") {
  t.check_throws<InvalidArgument>("the group is null", [] {
    fsdp::UnevenInputs(std::shared_ptr<distributed::ProcessGroup>(), UnevenPolicy::kRefuse);
  });
  t.check_throws<InvalidArgument>(
      "mesh", [] { fsdp::UnevenInputs(distributed::DeviceMesh(), UnevenPolicy::kRefuse); });
  fsdp::UnevenInputs inputs(t.world().mesh(), UnevenPolicy::kStopTogether);
  inputs.next(false);
  t.check_throws<StateError>("make another UnevenInputs for the next one",
                             [&] { inputs.next(true); });
  std::string names;
  for (const UnevenPolicy policy : kPolicies)
    names += fsdp::uneven_policy_name(policy) + std::string(" ");
  t.check(names == "stop_together pad_with_zero_weight refuse ", "names: {}", names);
}

TESSERA_RANK_TEST_WITH("fsdp uneven inputs: the host does not wait for queued work", "[fsdp]",
                       {.cpu_compute = StreamKind::kQueued}) {
  std::promise<void> open;
  std::promise<bool> was_open;
  current_stream(default_device()).enqueue("gate", [&, gate = open.get_future().share()] {
    was_open.set_value(gate.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  });
  fsdp::UnevenInputs inputs(t.world().mesh(), UnevenPolicy::kStopTogether);
  t.check(inputs.next(true).has_value(), "ended");
  open.set_value();
  t.check(was_open.get_future().get(), "next() waited for work that was queued before");
  current_stream(default_device()).synchronize();
}

}  // namespace
}  // namespace tessera::testing
