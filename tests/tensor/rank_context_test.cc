#include "tessera/tensor/rank_context.h"

#include <catch2/catch.hpp>
#include <stdexcept>
#include <string>
#include <thread>

#include "tessera/tensor/check.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::thrown;

TEST_CASE("rank context: the default one, scopes and nesting") {
  const auto outside = current_rank_context();
  CHECK(outside->rank() == -1);
  CHECK(outside->world_size() == 1);
  CHECK(outside->threads() >= 1);
  const auto three = std::make_shared<RankContext>(3, 8, 2);
  const auto four = std::make_shared<RankContext>(4, 8, 0);
  CHECK(four->threads() == 1);
  {
    const RankScope scope(three);
    CHECK(current_rank_context() == three);
    {
      const RankScope inner(four);
      CHECK(current_rank_context() == four);
    }
    CHECK(current_rank_context() == three);
    int other_rank = 0;
    std::thread([&] { other_rank = current_rank_context()->rank(); }).join();
    CHECK(other_rank == -1);  // a context belongs to a thread
  }
  CHECK(current_rank_context() == outside);
}

TEST_CASE("check: tag, rank and text") {
  const auto fail = [] { TESSERA_CHECK(1 > 2, "matmul", "{} is not above {}", 1, 2); };
  CHECK(thrown<InvalidArgument>(fail) == "[matmul] 1 is not above 2");
  const RankScope scope(std::make_shared<RankContext>(5, 8, 1));
  CHECK(thrown<InvalidArgument>(fail) == "[matmul] rank 5: 1 is not above 2");
  CHECK(thrown<DataError>([] { throw_error<DataError>("reader", "short by {}", 3); }) ==
        "[reader] rank 5: short by 3");
  CHECK(thrown<StateError>([] { TESSERA_CHECK_AS(StateError, false, "x", "no"); }) ==
        "[x] rank 5: no");
}

TEST_CASE("check: arguments are evaluated only on failure") {
  int evaluated = 0;
  const auto count = [&] { return ++evaluated; };
  TESSERA_CHECK(true, "x", "{}", count());
  CHECK(evaluated == 0);
}

TEST_CASE("rank context: the failure handler is called once") {
  RankContext context(0, 1, 1);
  const auto error = std::make_exception_ptr(std::runtime_error("boom"));
  context.report_failure(error);  // no handler is set
  int calls = 0;
  context.set_failure_handler([&](std::exception_ptr seen) {
    ++calls;
    CHECK(seen == error);
  });
  context.report_failure(error);
  context.report_failure(error);
  CHECK(calls == 1);
  int later = 0;
  context.set_failure_handler([&](std::exception_ptr) {
    ++later;
    throw std::runtime_error("a handler that fails");
  });
  context.report_failure(error);
  CHECK(calls == 1);
  CHECK(later == 1);
}

TEST_CASE("trace: records, annotations, and nothing when off") {
  ExecutionTrace trace;
  annotate("fsdp", "layer1", "unshard");
  CHECK(trace.records().empty());
  const auto context = std::make_shared<RankContext>(0, 1, 1);
  const RankScope scope(context);
  context->set_trace(&trace);
  CHECK(active_trace() == &trace);
  annotate("fsdp", "layer1", "unshard");
  annotate("module", "layer1", "forward");
  annotate("fsdp", "layer1", "reshard");
  context->set_trace(nullptr);
  annotate("fsdp", "layer2", "unshard");
  CHECK(trace.annotations("fsdp") == std::vector<std::string>{"unshard layer1", "reshard layer1"});
  CHECK(trace.all<TraceAnnotation>().size() == 3);
  CHECK(trace.all<KernelRecord>().empty());
  trace.clear();
  CHECK(trace.records().empty());
}

}  // namespace
}  // namespace tessera
