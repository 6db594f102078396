// The dtypes that travel under mixed precision, as the trace has them, and when casts are counted.

#include <catch2/catch.hpp>

#include <set>
#include <string>
#include <vector>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/precision_twin.h"
#include "tessera/tests/fsdp/twin.h"
#include "tessera/tests/support/collective_records.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using fsdp::MixedPrecision;

std::vector<nn::Module*> groups_of(Chain& chain) {
  std::vector<nn::Module*> groups;
  for (const auto& block : chain.blocks()) groups.push_back(block.get());
  groups.push_back(&chain);
  return groups;
}

struct Travel {
  MixedPrecision mixed;
  DType gathered, reduced;
  bool casts;
};

TESSERA_RANK_TEST("mixed precision: what travels has the dtypes asked for", "[fsdp]") {
  const std::vector<Travel> cases = {
      {{}, DType::kF32, DType::kF32, false},
      {{.param_dtype = DType::kF32}, DType::kF32, DType::kF32, false},
      {{.param_dtype = DType::kBF16}, DType::kBF16, DType::kBF16, true},
      {{.param_dtype = DType::kF16}, DType::kF16, DType::kF16, true},
      {{.param_dtype = DType::kBF16, .reduce_dtype = DType::kF32}, DType::kBF16, DType::kF32, true},
      {{.reduce_dtype = DType::kBF16}, DType::kF32, DType::kBF16, false}};
  for (const Travel& travel : cases) {
    for (const bool replicate : {false, true}) {
      Chain model({.stem = true, .dtype = DType::kF32});
      for (nn::Module* group : groups_of(model)) {
        if (replicate) {
          fsdp::replicate(*group, {.mesh = t.world().mesh(), .mixed_precision = travel.mixed});
        } else {
          fsdp::fully_shard(*group, {.mesh = t.world().mesh(), .mixed_precision = travel.mixed});
        }
      }
      nn::initialize(model, {.seed = 3});
      const Variable x(my_rows(random_rows(5, 7, DType::kF32, 1), t.world()));
      const auto records = collectives_of([&] { backward(row_loss(model(x))); });
      const std::string reduce = replicate ? "all_reduce" : "reduce_scatter";
      t.check(dtypes_of(records, reduce) == std::set{travel.reduced}, "not reduced in {}",
              dtype_name(travel.reduced));
      t.check(count_of(records, reduce) == 4, "{} reduces", count_of(records, reduce));
      for (const CollectiveRecord& record : records)
        t.check(record.op != reduce || record.reduction == "sum", "{}", record.reduction);
      // One rank's value is its shard, unless it is cast.
      const bool gathers = !replicate && (t.size() > 1 || travel.casts);
      t.check(dtypes_of(records, "all_gather") ==
                  (gathers ? std::set{travel.gathered} : std::set<DType>()),
              "not gathered in {}", dtype_name(travel.gathered));
      t.check((fsdp::of(model).copies().cast > 0) == travel.casts, "{} bytes were cast",
              fsdp::of(model).copies().cast);
    }
  }
}

}  // namespace
}  // namespace tessera::testing
