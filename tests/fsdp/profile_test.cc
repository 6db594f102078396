// A profile of a sharded step: gathers and reductions by parameter group, with their bytes, and
// threads whose rows add up to the steps.

#include "tessera/tensor/profile/profile.h"

#include <catch2/catch.hpp>

#include <cstdint>
#include <string>

#include "tessera/distributed/collectives.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/recompute.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

struct Collective {
  std::int64_t calls = 0;
  std::int64_t bytes_sent = 0;
};

Collective collective(const Profile& profile, const std::string& name, const std::string& module,
                      ProfilePhase phase) {
  Collective out;
  for (const ProfileRow& row : profile.rows()) {
    if (row.kind != ProfileKind::kCollective || row.name != name) continue;
    if (row.module != module || row.phase != phase) continue;
    out.calls += row.figures.calls;
    out.bytes_sent += row.figures.bytes_sent;
  }
  return out;
}

void check_sums(RankTest& t, const Profile& profile) {
  for (const std::string& thread : profile.threads()) {
    std::int64_t sum = 0;
    for (const ProfileRow& row : profile.rows()) {
      if (row.thread == thread) sum += row.figures.self_ns;
    }
    t.check(sum == profile.wall_ns(), "{}: rows of {} ns, steps of {} ns", thread, sum,
            profile.wall_ns());
  }
}

TESSERA_RANK_TEST("profile: gathers and reductions belong to the modules of their group",
                  "[fsdp]") {
  for (const bool recomputed : {false, true}) {
    Chain model({.widths = {7, 5, 9}, .classes = 4});
    if (recomputed) {
      for (const auto& block : model.blocks()) nn::recompute(*block);
    }
    shard_chain(model, {.mesh = t.world().mesh()});
    nn::initialize(model, {.seed = 1});
    nn::optim::SGD optimizer(model.parameters(), {.lr = 0.1});
    Profile profile;
    distributed::CollectiveCounters sent;
    constexpr int kSteps = 2;
    for (int step = 0; step < kSteps; ++step) {
      const auto before = distributed::collective_counters();
      const Profile::Scope measured(profile);
      backward(sharded_loss(model(Variable(random_rows(4, 7, DType::kF64, 1))), t.world()));
      optimizer.step();
      optimizer.zero_grad();
      const auto after = distributed::collective_counters();
      sent.bytes_sent += after.bytes_sent - before.bytes_sent;
    }
    const std::int64_t others = t.world().size() - 1;
    // The gather of block1 is issued ahead, in block0 or in the root. W [9, 5] and b [9], by rows.
    const std::int64_t rows = (9 + others) / (others + 1), bytes = rows * others * (5 + 1) * 8;
    // One rank alone holds every value: nothing is gathered or reduced, on no other thread.
    const std::int64_t calls = others > 0 ? kSteps : 0;
    const Collective gather = collective(profile, "all_gather", "block1", ProfilePhase::kForward);
    t.check(gather.calls == calls, "{} gathers of block1", gather.calls);
    t.check(gather.bytes_sent == kSteps * bytes, "{} bytes gathered, not {}", gather.bytes_sent,
            kSteps * bytes);
    const Collective reduction =
        collective(profile, "reduce_scatter", "block1", ProfilePhase::kBackward);
    t.check(reduction.calls == calls, "{} reductions of block1", reduction.calls);
    t.check(reduction.bytes_sent == kSteps * bytes, "{} bytes reduced, not {}",
            reduction.bytes_sent, kSteps * bytes);
    std::int64_t all = 0, again = 0;
    for (const ProfileRow& row : profile.rows()) {
      all += row.figures.bytes_sent;
      if (row.phase == ProfilePhase::kRecompute) again += row.figures.flops;
    }
    t.check(all == sent.bytes_sent, "{} bytes sent, the counters have {}", all, sent.bytes_sent);
    const std::int64_t forward = kSteps * 2 * 4 * (7 * 5 + 5 * 9);
    t.check(again == (recomputed ? forward : 0), "{} FLOPs again", again);
    check_sums(t, profile);
    if (default_device().is_cpu() && others > 0)
      t.check(profile.threads().size() >= 3, "{} threads", profile.threads().size());
  }
}

}  // namespace
}  // namespace tessera::testing
