// Several backwards per optimizer step: schedules with and without reductions, and the flags that
// pipelines set.

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "tessera/fsdp/replicate.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/training/side_by_side.h"

namespace tessera::testing {
namespace {

enum class Way { kReleased, kKept, kHalfKept, kReplicated };
/// Half of a value is kept if there are 4 or more ranks, an even number.
std::vector<Way> ways(int ranks) {
  std::vector<Way> out = {Way::kReleased, Way::kKept, Way::kReplicated};
  if (ranks > 2 && ranks % 2 == 0) out.push_back(Way::kHalfKept);
  return out;
}

void wrap(RankTest& t, Chain& model, Way way) {
  if (way != Way::kReplicated) {
    const fsdp::ReshardAfterForward reshard =
        way == Way::kHalfKept ? fsdp::ReshardAfterForward(2)
                              : fsdp::ReshardAfterForward(way == Way::kReleased);
    shard_chain(model, {.mesh = t.world().mesh(), .reshard_after_forward = reshard});
    return;
  }
  for (const auto& block : model.blocks()) fsdp::replicate(*block, {.mesh = t.world().mesh()});
  fsdp::replicate(model, {.mesh = t.world().mesh()});
}

/// Checks that the blocks' states between forward and backward match `way`.
void check_kept(RankTest& t, const Chain& model, Way way) {
  using fsdp::GroupState;
  const GroupState expected = way == Way::kReleased   ? GroupState::kSharded
                              : way == Way::kHalfKept ? GroupState::kPostForward
                                                      : GroupState::kFull;
  for (const auto& block : model.blocks()) {
    const GroupState state = fsdp::of(*block).state();
    t.check(state == expected, "way {}: after forward {} is {}", static_cast<int>(way),
            fsdp::of(*block).group_name(), fsdp::group_state_name(state));
  }
}

/// Whether each microbatch is reduced.
using Schedule = std::vector<bool>;
const Schedule kSchedules[] = {{false, false, false, true, true, true, false, false, true},
                               {true, true, true, false, false, false, true, true, true},
                               {false, true, false, true}};

/// Microbatches beside one batch of all of them: of rows 11, 12, 13 ...
struct Microbatches {
  explicit Microbatches(std::size_t count) : count(count) {}
  std::size_t count;
  std::int64_t rows(std::size_t i) const { return 11 + static_cast<std::int64_t>(i); }
  std::int64_t all_rows() const {
    std::int64_t out = 0;
    for (std::size_t i = 0; i < count; ++i) out += rows(i);
    return out;
  }
  Tensor batch(int step, std::size_t i) const {
    return random_rows(rows(i), 7, DType::kF64, static_cast<std::uint64_t>(step) * 16 + i);
  }
  Variable all(int step) const {
    std::vector<Variable> parts;
    for (std::size_t i = 0; i < count; ++i) parts.emplace_back(batch(step, i));
    return cat(parts, 0);
  }
};

void train_schedule(RankTest& t, Way way, const Schedule& schedule,
                    const fsdp::PrefetchOptions& prefetch) {
  Chain sharded({}), reference({});
  wrap(t, sharded, way);
  fsdp::of(sharded).set_prefetch(prefetch);
  initialize_both(sharded, reference);
  nn::optim::SGD sharded_sgd(sharded.parameters(), kSgd),
      reference_sgd(reference.parameters(), kSgd);
  const Microbatches batches(schedule.size());
  for (int step = 0; step < 2; ++step) {
    for (std::size_t i = 0; i < schedule.size(); ++i) {
      fsdp::of(sharded).set_requires_gradient_sync(schedule[i]);
      const Tensor mine = my_rows(batches.batch(step, i), t.world());
      const Variable loss = half_squares(sharded(Variable(mine)), batches.all_rows(), t.size());
      check_kept(t, sharded, way);
      backward(loss);
    }
    backward(half_squares(reference(batches.all(step)), batches.all_rows()));
    const std::string difference = first_difference(sharded, reference, 1e-12);
    t.check(difference.empty(), "way {}, {} microbatches, step {}: {}", static_cast<int>(way),
            schedule.size(), step, difference);
    sharded_sgd.step();
    reference_sgd.step();
    sharded_sgd.zero_grad();
    reference_sgd.zero_grad();
  }
}

TESSERA_RANK_TEST_WITH("accumulated microbatches are one pass over all of them", "[fsdp]",
                       {.worlds = {1, 2, 3, 4, 5, 6}}) {
  for (const Way way : ways(t.size())) {
    for (const Schedule& schedule : kSchedules) train_schedule(t, way, schedule, {});
    train_schedule(t, way, kSchedules[2],
                   {.forward = 0, .backward = fsdp::BackwardPrefetch::kNone});
  }
}

TESSERA_RANK_TEST_WITH("accumulated microbatches with queued compute", "[fsdp]",
                       {.worlds = {2, 3, 4}, .cpu_compute = StreamKind::kQueued}) {
  for (const Way way : ways(t.size())) train_schedule(t, way, kSchedules[0], {});
}

/// The order in which a pipeline stage processes its microbatches.
struct Move {
  bool forward;
  std::size_t batch;
};
const std::vector<Move> kInTurn = {{true, 0},  {false, 0}, {true, 1},
                                   {false, 1}, {true, 2},  {false, 2}};
const std::vector<Move> kOneAhead = {{true, 0}, {true, 1},  {false, 0},
                                     {true, 2}, {false, 1}, {false, 2}};
const std::vector<Move> kForwardsFirst = {{true, 0},  {true, 1},  {true, 2},
                                          {false, 0}, {false, 1}, {false, 2}};

/// Only the last backward ends the iteration.
void set_flags(Chain& model, bool last, Way way) {
  const fsdp::Handle root = fsdp::of(model);
  root.set_is_last_backward(last);
  root.set_requires_gradient_sync(last);
  if (way != Way::kReplicated) root.set_reshard_after_backward(last);
}

struct PipelineCase {
  Way way = Way::kKept;
  bool unshard_first = false;
  std::vector<Move> moves;
};

void train_pipeline(RankTest& t, const PipelineCase& c) {
  Chain sharded({}), reference({});
  wrap(t, sharded, c.way);
  initialize_both(sharded, reference);
  nn::optim::SGD sharded_sgd(sharded.parameters(), kSgd),
      reference_sgd(reference.parameters(), kSgd);
  const Microbatches batches(3);
  for (int step = 0; step < 3; ++step) {
    if (c.unshard_first) {
      for (nn::Module* module : fsdp::sharded_modules(sharded))
        fsdp::of(*module).unshard({.async = true});
    }
    std::vector<Variable> losses(3);
    int backwards = 0;
    for (const Move& move : c.moves) {
      if (move.forward) {
        const Tensor mine = my_rows(batches.batch(step, move.batch), t.world());
        losses[move.batch] = half_squares(sharded(Variable(mine)), batches.all_rows(), t.size());
        continue;
      }
      set_flags(sharded, ++backwards == 3, c.way);
      backward(losses[move.batch]);
    }
    backward(half_squares(reference(batches.all(step)), batches.all_rows()));
    const std::string difference = first_difference(sharded, reference, 1e-12);
    t.check(difference.empty(), "way {}, unshard first {}, {}, step {}: {}",
            static_cast<int>(c.way), c.unshard_first, c.moves[1].forward, step, difference);
    const auto left = t.world().context()->memory().current()[MemoryCategory::kGathered];
    t.check(left == 0, "step {}: {} gathered bytes remain", step, left);
    sharded_sgd.step();
    reference_sgd.step();
    sharded_sgd.zero_grad();
    reference_sgd.zero_grad();
  }
}

TESSERA_RANK_TEST_WITH("a stage of a pipeline concludes with its last backward", "[fsdp]",
                       {.worlds = {1, 2, 3, 4, 5, 6}}) {
  for (const Way way : ways(t.size())) {
    for (const bool unshard_first : {false, true}) {
      for (const auto& moves : {kInTurn, kOneAhead, kForwardsFirst})
        train_pipeline(t, {way, unshard_first, moves});
    }
  }
}

TESSERA_RANK_TEST_WITH("a stage of a pipeline with queued compute", "[fsdp]",
                       {.worlds = {2, 3}, .cpu_compute = StreamKind::kQueued}) {
  train_pipeline(t, {Way::kKept, true, kOneAhead});
}

}  // namespace
}  // namespace tessera::testing
