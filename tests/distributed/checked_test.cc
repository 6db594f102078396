// Checked groups: each way in which ranks can mean different collectives is found out on all of
// them, before the deadline, with both values and places.
#include "tessera/distributed/checked.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/decorators.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::ProcessGroup;
using distributed::ReduceOp;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDeadline = std::chrono::seconds(60);

struct Outcome {
  std::vector<std::string> texts;  // of each rank's exception
  double seconds = 0;
};

// Every rank thread of a checked world runs `body`; rank `odd` is the one that deviates.
Outcome run_checked(int world, const std::function<void(distributed::World&)>& body,
                    StreamKind compute = StreamKind::kInline) {
  const auto begin = Clock::now();
  Outcome out;
  const auto on_host = [&body](distributed::World& w) {  // GPUs' ranks meet when they issue
    const DefaultDeviceScope host(kCpu);
    body(w);
  };
  out.texts =
      exception_texts(run_ranks(world, on_host, {.cpu_compute = compute, .timeout = kDeadline}));
  out.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return out;
}

Tensor some(std::int64_t count, DType dtype = DType::kF32) {
  return full({count}, 1, {.dtype = dtype});
}

// All ranks fail within two seconds, one of them (at least) with this text.
void check_found(const Outcome& outcome, const std::string& text) {
  bool found = false;
  for (const std::string& each : outcome.texts) {
    INFO(each);
    CHECK_FALSE(each.empty());
    found = found || each.find(text) != std::string::npos;
  }
  CAPTURE(outcome.texts, text);
  CHECK(found);
  CHECK(outcome.seconds < 2);
}

}  // namespace

TEST_CASE("another kind of collective", "[checked]") {
  const StreamKind compute = GENERATE(StreamKind::kInline, StreamKind::kQueued);
  for (int world : {2, 3, 5}) {
    check_found(run_checked(
                    world,
                    [&](distributed::World& w) {
                      const Tensor x = some(3);
                      if (w.rank() == world - 1) {
                        broadcast(*w.group(), std::vector{x}, 0, "layer");
                      } else {
                        all_reduce(*w.group(), std::vector{x}, ReduceOp::kSum, "layer");
                      }
                    },
                    compute),
                "differs between ranks in its kind: ");
  }
}

TEST_CASE("both values and both places are named", "[checked]") {
  const Outcome outcome = run_checked(2, [](distributed::World& w) {
    const Tensor x = some(3, w.rank() == 0 ? DType::kF32 : DType::kF64);
    all_reduce(*w.group(), std::vector{x}, ReduceOp::kSum, "layers.1");
  });
  const int line = __LINE__ - 2;
  const std::string place = fmt::format("(tests/distributed/checked_test.cc:{})", line);
  const std::string mine = fmt::format("dtype: f32 on rank 0 {0}, f64 on rank 1 {0}", place);
  const std::string theirs = fmt::format("dtype: f64 on rank 1 {0}, f32 on rank 0 {0}", place);
  CAPTURE(outcome.texts);
  CHECK((outcome.texts[0].find(mine) != std::string::npos ||
         outcome.texts[1].find(theirs) != std::string::npos));
  check_found(outcome, "all_reduce #1 (layers.1) of group \"world\" differs");
}

TEST_CASE("other extents of a member", "[checked]") {
  check_found(run_checked(3,
                          [](distributed::World& w) {
                            const std::int64_t count = w.rank() == 1 ? 8 : 7;
                            all_gather(*w.group(), std::vector{some(2), some(count)},
                                       std::vector{some(6), some(3 * count)});
                          }),
              "2 members of 2, 7 elements on rank");  // first, or behind those of rank 1
}

TEST_CASE("another number of members, also beyond those that are shown", "[checked]") {
  check_found(run_checked(2,
                          [](distributed::World& w) {
                            std::vector<Tensor> many;
                            for (int i = 0; i < 9; ++i) many.push_back(some(2));
                            many.push_back(some(w.rank() == 0 ? 3 : 4));
                            all_reduce(*w.group(), many);
                          }),
              "counts behind those shown: 10 members of 2, 2, 2, 2, 2, 2, 2, 2, ... elements on "
              "rank");
}

TEST_CASE("a collective of another group", "[checked]") {
  check_found(run_checked(3,
                          [](distributed::World& w) {
                            const auto pair = split(*w.group(), w.rank() < 2 ? 0 : 1);
                            all_reduce(w.rank() == 1 ? *pair : *w.group(), std::vector{some(3)});
                          }),
              "\"world\" on rank 0");
}

TEST_CASE("a collective that one rank left out", "[checked]") {
  check_found(run_checked(2,
                          [](distributed::World& w) {
                            const auto skipping = distributed::call(
                                w.group(), {.instead = [](const distributed::Collective& call) {
                                  return call.label.text == "b";
                                }});
                            ProcessGroup& group = w.rank() == 0 ? *skipping : *w.group();
                            for (const char* unit : {"a", "b", "c"})
                              all_reduce(group, std::vector{some(3)}, ReduceOp::kSum, unit);
                          }),
              "\"c\" on rank 0");
  check_found(run_checked(2,
                          [](distributed::World& w) {
                            if (w.rank() == 0) w.group()->next_sequence();
                            all_reduce(*w.group(), std::vector{some(3)});
                          }),
              "2 on rank 0");
}

TEST_CASE("another unit, reduction, root, and rows of an all_to_all", "[checked]") {
  check_found(run_checked(2,
                          [](distributed::World& w) {
                            all_reduce(*w.group(), std::vector{some(3)}, ReduceOp::kSum,
                                       w.rank() == 0 ? "layers.0" : "layers.1");
                          }),
              "unit: \"layers.");
  check_found(run_checked(4,
                          [](distributed::World& w) {
                            all_reduce(*w.group(), std::vector{some(3)},
                                       ReduceOp::premul_sum(w.rank() == 2 ? 0.5 : 0.25));
                          }),
              "reduction: premul_sum(0.");
  check_found(
      run_checked(
          2, [](distributed::World& w) { broadcast(*w.group(), std::vector{some(3)}, w.rank()); }),
      "root: ");
  check_found(run_checked(2,
                          [](distributed::World& w) {
                            const bool first = w.rank() == 0;
                            const distributed::RowCounts rows =
                                first ? distributed::RowCounts{.sent = {1, 5}, .received = {1, 2}}
                                      : distributed::RowCounts{.sent = {2, 0}, .received = {3, 0}};
                            all_to_all(*w.group(), std::vector{some(first ? 6 : 2)},
                                       std::vector{some(3)}, rows);
                          }),
              "rows: ");
}

TEST_CASE("a failure that was found on one pair of many ranks ends all of them", "[checked]") {
  check_found(run_checked(16,
                          [](distributed::World& w) {
                            all_reduce(*w.group(), std::vector{some(w.rank() == 11 ? 4 : 3)});
                          }),
              "1 members of 4 elements on rank 11");
}

TESSERA_RANK_TEST("what agrees passes, on sub-groups too, neither counted nor traced",
                  "[checked]") {
  const auto before = distributed::collective_counters();
  const auto group = t.group().subgroup({t.rank()}, "alone");
  all_reduce(*group, std::vector{some(3)});
  const auto pairs = split(t.group(), t.rank() / 2);
  const Tensor x = full({2}, t.rank());
  all_reduce(*pairs, std::vector{x}, ReduceOp::kMax);
  const int last = std::min(t.size() - 1, t.rank() / 2 * 2 + 1);
  t.check_equal(x, full({2}, last));
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(t.size()), t.rank());
  std::vector<std::int64_t> received;
  for (int r = 0; r < t.size(); ++r) received.push_back(r);
  all_to_all(t.group(), std::vector{some(t.rank() * t.size())},
             std::vector{some(t.size() * (t.size() - 1) / 2)}, {counts, received});
  barrier(t.group());
  // The checks' own do not count, nor do those of one rank alone.
  const int expected = (t.size() > 1 ? 3 : 0) + (pairs->size() > 1 ? 1 : 0);
  const auto counted = distributed::collective_counters().collectives - before.collectives;
  t.check(counted == expected, "{} counted, expected {}", counted, expected);
  t.check_throws<InvalidArgument>("the group is null", [] { distributed::checked(nullptr); });
}

TESSERA_RANK_TEST_WITH("decorators inside a checked group see its collectives alone", "[checked]",
                       {.worlds = {1, 2}, .checked = false}) {
  const DefaultDeviceScope host(kCpu);  // whose streams this is about
  int seen = 0;
  const auto inner = distributed::call(t.world().group(),
                                       {.before = [&](const distributed::Collective&) { ++seen; }});
  const auto group = distributed::checked(distributed::fail_at(inner, 2));
  all_reduce(*group, std::vector{some(3)}, ReduceOp::premul_sum(std::nan("")));
  t.check(seen == 1, "{} seen", seen);
  t.check_throws<CollectiveError>("all_reduce #2 of group \"world\" failed as asked",
                                  [&] { all_reduce(*group, std::vector{some(3)}); });
}

TESSERA_RANK_TEST_WITH("between processes a difference is an error at once, not at the deadline",
                       "[checked]",
                       {.worlds = {2, 3},
                        .timeout = std::chrono::seconds(60),
                        .expect_failure = "differs between ranks in its counts: 1 members of"}) {
  all_reduce(t.group(), std::vector{some(t.rank() == 0 ? 10 : 5000)});
}

TEST_CASE("long names keep their ends", "[checked]") {
  const auto groups = run_ranks(1, [](distributed::World& w) {
    const std::string longname = std::string(200, 'x') + "end";
    distributed::Collective call{.label = {longname, "a/file.cc", 7}};
    const auto record = distributed::make_check_record(*w.group(), call, 0);
    const std::string label = record.label.data();
    if (label.size() != 63 || label.substr(60) != "end") throw std::runtime_error(label);
    if (!distributed::difference({record, 0}, {record, 1}).empty())
      throw std::runtime_error("differs");
  });
  CHECK(exception_texts(groups) == std::vector<std::string>{""});
}

}  // namespace tessera::testing
