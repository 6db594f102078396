// What forward keeps of values for backward, 1/n on each rank: when it may be gathered, and that it
// is never used in place of newer shards.

#include <catch2/catch.hpp>

#include <string>
#include <variant>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

/// Blocks of which each rank keeps a half among two, without gathers ahead in forward.
void shard_in_halves(RankTest& t, Chain& chain) {
  shard_chain(chain, {.mesh = t.world().mesh(), .reshard_after_forward = 2});
  fsdp::of(chain).set_prefetch({.forward = 0});
  nn::initialize(chain, {.seed = 1});
}

TESSERA_RANK_TEST_WITH("fsdp kept parts: a gather of them waits until they are copied", "[fsdp]",
                       {.worlds = {4, 6}}) {
  Chain chain({});
  shard_in_halves(t, chain);
  const Variable loss = local_loss(chain(Variable(random_rows(2, 7, DType::kF64, 1))));
  const ExecutionTrace trace = traced(t, [&] { backward(loss); });
  int gathers = 0;
  std::uint64_t waited_on = 0;  // by this stream, since the last gather
  for (const TraceRecord& record : trace.records()) {
    const auto* event = std::get_if<EventRecord>(&record);
    if (event != nullptr && event->action == EventAction::kWait && event->name == "part kept")
      waited_on = event->stream;
    const auto* gather = std::get_if<CollectiveRecord>(&record);
    if (gather == nullptr || gather->op != "all_gather") continue;
    ++gathers;
    t.check(waited_on == gather->stream, "{} is gathered before its part is copied", gather->label);
    waited_on = 0;
  }
  t.check(gathers == 3, "{} gathers, expected one for each block", gathers);
}

TESSERA_RANK_TEST_WITH("fsdp kept parts: their bytes are counted", "[fsdp]", {.worlds = {4, 6}}) {
  Chain chain({});
  shard_in_halves(t, chain);
  const Variable loss = local_loss(chain(Variable(random_rows(2, 7, DType::kF64, 1))));
  // A half of all ranks' padded rows: the blocks have 5, 9 and 3, of 7, 5 and 9 columns, and a
  // bias.
  const auto half = [&](std::int64_t rows) {
    return (rows + t.size() - 1) / t.size() * t.size() / 2;
  };
  const std::int64_t expected = 8 * (half(5) * (7 + 1) + half(9) * (5 + 1) + half(3) * (9 + 1));
  const std::int64_t counted = fsdp::of(chain).copies().kept_part;
  t.check(counted == expected, "{} bytes, expected {}", counted, expected);
  backward(loss);
  t.check(fsdp::of(chain).copies().kept_part == expected, "backward keeps parts too");
}

/// What happens between a forward whose backward never comes and the next one.
enum class Between { kWritten, kLetGo, kLetGoAndWritten };

TESSERA_RANK_TEST_WITH(
    "fsdp kept parts: none is used after shards were written or it was let go of", "[fsdp]",
    {.worlds = {4, 6}}) {
  const Variable x(random_rows(2, 7, DType::kF64, 1));
  for (const Between between : {Between::kWritten, Between::kLetGo, Between::kLetGoAndWritten}) {
    const std::string what = fmt::format("case {}", static_cast<int>(between));
    Chain chain({}), reference({});
    shard_in_halves(t, chain);
    nn::initialize(reference, {.seed = 1});
    const Variable abandoned = chain(x);
    for (nn::Module* module : fsdp::sharded_modules(chain)) {
      const bool is_kept = fsdp::of(*module).state() == fsdp::GroupState::kPostForward;
      t.check(is_kept == (module != &chain), "{}: after forward {} is {}", what,
              module->type_name(), fsdp::group_state_name(fsdp::of(*module).state()));
      if (between != Between::kWritten) fsdp::of(*module).reshard();
    }
    if (between != Between::kLetGo) {
      for (Chain* each : {&chain, &reference})
        for (const nn::Parameter& parameter : each->parameters())
          mul_(parameter.local().tensor(), 1.5);
    }
    Variable loss;
    const ExecutionTrace forward = traced(t, [&] { loss = local_loss(chain(x)); });
    for (const CollectiveRecord& record : records_of(forward, "all_gather"))
      t.check(record.group_size == t.size(), "{}: {} is gathered among {}", what, record.label,
              record.group_size);
    const Variable expected = local_loss(reference(x));
    t.check_close(loss.tensor(), expected.tensor(), what);
    backward(loss);
    backward(expected);
    const std::string difference =
        compare_with_reference(chain, reference, 1e-12, /*gradients=*/true);
    t.check(difference.empty(), "{}: {}", what, difference);
  }
}

}  // namespace
}  // namespace tessera::testing
