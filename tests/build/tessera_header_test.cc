// An external program can use, with this one header, fake worlds for planning, and the memory kept
// for reuse.

#include "tessera/tessera.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

TEST_CASE("the header of everything has fake groups, counts of collectives and the allocator") {
  const auto group = distributed::make_fake_group("planned", {.rank = 3, .size = 8});
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    const Tensor x = zeros({5});
    distributed::all_reduce(*group, std::vector{x}, distributed::ReduceOp::kSum);
  }
  const distributed::CollectiveCounts counts(trace);
  CHECK(counts.of({.op = "all_reduce", .group = "planned"}).collectives == 1);
  CHECK(std::string(fsdp::kUnshardPhase) == "unshard");
  empty_cpu_cache();
  CHECK(cached_cpu_bytes() == 0);
}

}  // namespace
}  // namespace tessera
