// The pieces below the collectives, without ranks: arithmetic, plans, records, texts.
#include <catch2/catch.hpp>

#include <cmath>
#include <map>
#include <numeric>
#include <thread>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/flight_recorder.h"
#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/distributed/nccl/process_group_nccl.h"
#include "tessera/distributed/transports/exchange_plan.h"
#include "tessera/distributed/transports/process_group_local.h"
#include "tessera/distributed/transports/reduce_in_order.h"
#include "tessera/tests/support/close.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;

template <class T>
std::vector<T> reduced(ReduceOp op, const std::vector<std::vector<T>>& sources) {
  std::vector<const void*> pointers;
  for (const std::vector<T>& source : sources) pointers.push_back(source.data());
  std::vector<T> out(sources[0].size());
  reduce_in_order(dtype_of<T>, op, pointers, out.data(), static_cast<std::int64_t>(out.size()));
  return out;
}

// A collective of one rank whose members have these elements of f32 in (and out).
ResolvedCollective call_of(CollectiveKind kind, int rank,
                           const std::vector<std::pair<std::int64_t, std::int64_t>>& members,
                           std::byte* memory) {
  ResolvedCollective call{.kind = kind};
  call.site.rank = rank;
  for (const auto& [in, out] : members) {
    call.members.push_back({.input = memory, .output = memory, .count_in = in, .count_out = out});
  }
  return call;
}

std::vector<int> first_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// One rank without peers, which plans its collectives and counts the bytes it would send.
class PlanningGroup : public ProcessGroup {
 public:
  PlanningGroup(int rank, int size)
      : ProcessGroup({.name = "planning", .rank = rank, .ranks = first_ranks(size)}) {}
  std::string backend() const override { return "planning"; }
  std::shared_ptr<ProcessGroup> make_subgroup(const SubgroupRequest&) override { return nullptr; }
  void run(const Collective& call) override {
    const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kInline, "plan");
    for (const Transfer& t : plan_exchange(resolve(*this, call), size(), stream).plan.sends)
      planned += static_cast<std::int64_t>(t.bytes);
  }
  void abort(const std::string&) noexcept override {}

  std::int64_t planned = 0;
};

std::vector<Tensor> zeros(const std::vector<std::int64_t>& counts, std::int64_t factor,
                          DType dtype) {
  std::vector<Tensor> tensors;
  for (const std::int64_t count : counts) {
    tensors.push_back(
        dtype == DType::kF32
            ? Tensor::from_vector<float>(
                  std::vector<float>(static_cast<std::size_t>(count * factor)), {count * factor})
            : Tensor::from_vector<double>(
                  std::vector<double>(static_cast<std::size_t>(count * factor)), {count * factor}));
  }
  return tensors;
}

}  // namespace

TEST_CASE("reductions add in rank order, from the first rank on", "[reduce]") {
  for (std::size_t count : {0, 1, 7, 1023, 1024, 1025, 5000}) {
    std::vector<std::vector<float>> sources(5, std::vector<float>(count));
    std::vector<float> expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t r = 0; r < sources.size(); ++r)
        sources[r][i] =
            std::ldexp(std::sin(static_cast<float>(i + 31 * r)), static_cast<int>(r % 3) * 12);
      expected[i] = sources[0][i];
      for (std::size_t r = 1; r < sources.size(); ++r) expected[i] += sources[r][i];
    }
    CHECK(reduced(ReduceOp::kSum, sources) == expected);
  }
  CHECK(reduced<double>(ReduceOp::kSum, {{1e16, 1}, {1, 2}, {-1e16, 3}}) ==
        std::vector<double>{0, 6});
  CHECK(reduced<std::int64_t>(ReduceOp::kSum, {{1, -4}, {5, 2}}) ==
        std::vector<std::int64_t>{6, -2});
  CHECK(std::signbit(reduced<float>(ReduceOp::kSum, {{-0.0f}})[0]));
}

TEST_CASE("maxima keep a NaN of any rank", "[reduce]") {
  const double nan = std::nan("");
  const std::vector<double> out =
      reduced<double>(ReduceOp::kMax, {{1, nan, 3}, {2, 5, nan}, {0, 9, 9}});
  CHECK(out[0] == 2);
  CHECK(std::isnan(out[1]));
  CHECK(std::isnan(out[2]));
  CHECK(reduced<std::int64_t>(ReduceOp::kMax, {{-3}, {-1}, {-2}}) == std::vector<std::int64_t>{-1});
}

TEST_CASE("a reduction may write over one of its sources", "[reduce]") {
  std::vector<float> a(3000, 1), b(3000, 2), c(3000, 4);
  reduce_in_order(DType::kF32, ReduceOp::kSum,
                  std::vector<const void*>{a.data(), b.data(), c.data()}, b.data(), 3000);
  CHECK(b == std::vector<float>(3000, 7));
}

TEST_CASE("integers have no averages", "[reduce]") {
  std::uint8_t x = 1;
  const std::vector<const void*> sources{&x};
  for (const ReduceOp& op : {ReduceOp::kAverage, ReduceOp::premul_sum(0.5)}) {
    CHECK_THROWS_AS(reduce_in_order(DType::kU8, op, sources, &x, 1), InvalidArgument);
    CHECK_THROWS_AS(reduce_in_order(DType::kBool, op, sources, &x, 1), InvalidArgument);
  }
}

TEST_CASE("small members of a plan travel together, large ones by themselves", "[plan]") {
  std::vector<std::byte> memory(1 << 20);
  const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kInline, "plan");
  const std::int64_t large = 5000, small = 10;  // 20,000 and 40 bytes
  const PlannedExchange planned = plan_exchange(
      call_of(CollectiveKind::kAllGather, 1,
              {{large, 3 * large}, {small, 3 * small}, {0, 0}, {small, 3 * small}}, memory.data()),
      3, stream);
  std::map<int, std::vector<std::size_t>> sent, received;
  for (const Transfer& t : planned.plan.sends) sent[t.peer].push_back(t.bytes);
  for (const Transfer& t : planned.plan.receives) received[t.peer].push_back(t.bytes);
  const std::map<int, std::vector<std::size_t>> expected = {{0, {20000, 80}}, {2, {20000, 80}}};
  CHECK(sent == expected);
  CHECK(received == expected);
  CHECK(planned.staging.bytes() == 3 * 128);  // one pack out, two in, each rounded up to 64 bytes
  CHECK(planned.plan.sends[1].data ==
        planned.plan.sends[3].data);  // the pack is made once for all peers
}

TEST_CASE("a single small member is not packed, and nothing at all is still a message", "[plan]") {
  std::vector<std::byte> memory(4096);
  const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kInline, "plan");
  const PlannedExchange one =
      plan_exchange(call_of(CollectiveKind::kAllGather, 0, {{10, 20}}, memory.data()), 2, stream);
  CHECK(one.staging.empty());
  REQUIRE(one.plan.sends.size() == 1);
  CHECK(one.plan.sends[0].data == memory.data());
  for (CollectiveKind kind : {CollectiveKind::kBarrier, CollectiveKind::kAllGather,
                              CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce}) {
    const PlannedExchange none = plan_exchange(call_of(kind, 0, {}, memory.data()), 3, stream);
    CHECK(none.plan.sends.size() == 2);
    CHECK(none.plan.receives.size() == 2);
  }
}

TEST_CASE("plans of all ranks fit together", "[plan]") {
  std::vector<std::byte> memory(1 << 22);
  const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kInline, "plan");
  const int size = 4;
  for (CollectiveKind kind :
       {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce,
        CollectiveKind::kBroadcast, CollectiveKind::kReduce, CollectiveKind::kGather,
        CollectiveKind::kScatter, CollectiveKind::kBarrier}) {
    std::map<std::pair<int, int>, std::vector<std::size_t>> sent, received;
    for (int rank = 0; rank < size; ++rank) {
      std::vector<std::pair<std::int64_t, std::int64_t>> members;
      for (std::int64_t count : {3, 9000, 0, 4096, 4095}) {
        const bool gather = kind == CollectiveKind::kAllGather,
                   scatter = kind == CollectiveKind::kReduceScatter;
        members.emplace_back(scatter ? count * size : count, gather ? count * size : count);
      }
      ResolvedCollective call = call_of(kind, rank, members, memory.data());
      call.root = 2;
      const PlannedExchange planned = plan_exchange(call, size, stream);
      for (const Transfer& t : planned.plan.sends) sent[{rank, t.peer}].push_back(t.bytes);
      for (const Transfer& t : planned.plan.receives) received[{t.peer, rank}].push_back(t.bytes);
    }
    CHECK(sent == received);
    CHECK_FALSE(sent.empty());
  }
}

TEST_CASE("plans of an uneven all_to_all fit together, and know their rows", "[plan]") {
  std::vector<std::byte> memory(1 << 22);
  const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kInline, "plan");
  const int size = 4;
  using Message = std::pair<std::size_t, std::uint64_t>;
  std::map<std::pair<int, int>, std::vector<Message>> sent, received;
  for (int rank = 0; rank < size; ++rank) {
    ResolvedCollective call = call_of(CollectiveKind::kAllToAll, rank, {}, memory.data());
    for (int peer = 0; peer < size; ++peer) {
      call.rows_sent.push_back((rank + 2 * peer) % 3);
      call.rows_received.push_back((peer + 2 * rank) % 3);
    }
    for (std::int64_t row : {3, 9000, 0, 1000}) {
      call.members.push_back(
          {.input = memory.data(), .output = memory.data(), .row_elements = row});
    }
    const PlannedExchange planned = plan_exchange(call, size, stream);
    for (const Transfer& t : planned.plan.sends) sent[{rank, t.peer}].push_back({t.bytes, t.terms});
    for (const Transfer& t : planned.plan.receives)
      received[{t.peer, rank}].push_back({t.bytes, t.terms});
  }
  CHECK(sent == received);
  CHECK(sent.size() == 12);
  REQUIRE(sent[{0, 3}].size() == 1);  // nothing is still a message
  REQUIRE(sent[{0, 1}].size() == 2);
  CHECK(sent[{0, 3}][0].first == 0);
  CHECK(sent[{0, 1}][0].first == 72000);
  CHECK(sent[{0, 1}][1].first == 8024);
  CHECK(sent[{0, 1}][0].second == sent[{0, 1}][1].second);
  CHECK(sent[{0, 1}][0].second != sent[{0, 3}][0].second);  // other rows
}

TEST_CASE("the bytes that are counted are the bytes of the plan", "[plan]") {
  for (int size = 1; size <= 5; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      for (const DType dtype : {DType::kF32, DType::kF64}) {
        for (const std::vector<std::int64_t>& counts :
             {std::vector<std::int64_t>{3, 9000, 0, 4096, 4095, 1}, {7}, {0}, {}}) {
          CAPTURE(size, rank, dtype_name(dtype), counts.size());
          PlanningGroup group(rank, size);
          const auto small = zeros(counts, 1, dtype), large = zeros(counts, size, dtype);
          const auto check = [&](const char* op, const auto& issue) {
            CAPTURE(op);
            group.planned = 0;
            const std::int64_t before = collective_counters().bytes_sent;
            issue();
            CHECK(collective_counters().bytes_sent - before == group.planned);
          };
          check("all_gather", [&] { all_gather(group, small, large); });
          check("reduce_scatter", [&] { reduce_scatter(group, large, small); });
          check("all_reduce", [&] { all_reduce(group, small); });
          for (int root = 0; root < size; ++root) {
            const bool is_root = rank == root;
            check("reduce", [&] { reduce(group, small, root); });
            check("gather",
                  [&] { gather(group, small, is_root ? large : std::vector<Tensor>(), root); });
            check("scatter",
                  [&] { scatter(group, is_root ? large : std::vector<Tensor>(), small, root); });
          }
          check("all_to_all", [&] { all_to_all(group, large, zeros(counts, size, dtype)); });
          RowCounts rows;  // rank r gets r rows, and sends as many to each
          for (int peer = 0; peer < size; ++peer) {
            rows.sent.push_back(peer);
            rows.received.push_back(rank);
          }
          check("uneven all_to_all", [&] {
            const std::int64_t sent = size * (size - 1) / 2, received = size * rank;
            std::vector<Tensor> inputs, outputs;
            for (const std::int64_t count : counts) {
              inputs.push_back(zeros({count}, sent, dtype)[0].view({sent, count}));
              outputs.push_back(zeros({count}, received, dtype)[0].view({received, count}));
            }
            all_to_all(group, inputs, outputs, rows);
          });
          for (int root = 0; root < size; ++root)
            check("broadcast", [&] { broadcast(group, small, root); });
          check("barrier", [&] { barrier(group); });
        }
      }
    }
  }
}

TEST_CASE("the flight recorder keeps the last 256 in fixed memory", "[flight]") {
  set_flight_log(std::make_shared<FlightLog>());
  CHECK(recent_collectives().empty());
  const FlightTicket first = record_flight({.group = "world", .op = "barrier", .sequence = 1});
  for (std::uint64_t i = 2; i <= 300; ++i)
    record_flight({.group = "world",
                   .op = "all_gather",
                   .label = std::string(100, 'x'),
                   .sequence = i,
                   .bytes_sent = 8});
  first.note(FlightState::kFailed);  // long overwritten: no harm
  const std::vector<FlightEntry> entries = recent_collectives();
  REQUIRE(entries.size() == 256);
  CHECK(entries.front().sequence == 45);
  CHECK(entries.back().sequence == 300);
  CHECK(entries.back().label == std::string(63, 'x'));
  for (const FlightEntry& entry : entries) CHECK(entry.state == FlightState::kIssued);
}

TEST_CASE("tickets update their entry from any thread", "[flight]") {
  set_flight_log(std::make_shared<FlightLog>());
  const FlightTicket a = record_flight({.op = "all_gather", .label = "layers.1", .sequence = 17});
  const FlightTicket b = record_flight({.op = "barrier", .sequence = 18});
  std::thread([a, b] {
    a.note(FlightState::kWaiting);
    b.note(FlightState::kWaiting);
    b.note(FlightState::kDone);
  }).join();
  const std::vector<FlightEntry> entries = recent_collectives();
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].str() == "all_gather #17 (layers.1)");
  note_step(0);
  record_flight({.group = "world", .op = "barrier", .sequence = 19});
  record_flight({.group = "dp", .op = "all_reduce", .label = "loss", .sequence = 1});
  const std::vector<FlightEntry> later = recent_collectives();
  CHECK(later[2].str() == "barrier #19 in step 0");
  CHECK(later[3].str() == "all_reduce #1 (loss) of group \"dp\" in step 0");
  CHECK_FALSE(later[1].step);
  CHECK(entries[0].state == FlightState::kWaiting);
  CHECK(entries[1].str() == "barrier #18");
  CHECK(entries[1].state == FlightState::kDone);
  CHECK(std::string(flight_state_name(FlightState::kIssued)) == "issued");
  FlightTicket().note(FlightState::kDone);
}

TEST_CASE("the failure told is the earliest that is no echo", "[failure]") {
  std::vector<RankFailure> failures = {{.rank = 0, .time_ns = 1, .echo = true},
                                       {.rank = 1, .time_ns = 9},
                                       {.rank = 2, .time_ns = 5},
                                       {.rank = 3, .time_ns = 0, .echo = true}};
  CHECK(first_failure(failures)->rank == 2);
  failures[1].echo = failures[2].echo = true;
  CHECK(first_failure(failures)->rank == 3);
  CHECK(first_failure({}) == nullptr);
}

TEST_CASE("failures describe nested and foreign exceptions", "[failure]") {
  std::exception_ptr nested;
  try {
    try {
      throw std::runtime_error("inner");
    } catch (...) {
      std::throw_with_nested(Error("outer"));
    }
  } catch (...) {
    nested = std::current_exception();
  }
  CHECK(describe_failure(1, nested).text == "outer: inner");
  CHECK(describe_failure(1, std::make_exception_ptr(3)).text == "an exception of unknown type");
  CHECK(describe_failure(1, std::make_exception_ptr(CollectiveAborted("x", {}))).echo);
  CHECK_FALSE(describe_failure(1, std::make_exception_ptr(CollectiveError("x", {}))).echo);
}

TEST_CASE("a failure does not name its own rank, which whoever reports it does", "[failure]") {
  const auto text = [](int rank, const char* what) {
    return describe_failure(rank, std::make_exception_ptr(Error(what))).text;
  };
  CHECK(text(1, "[idx_file] rank 1: a is damaged") == "[idx_file] a is damaged");
  CHECK(text(0, "[idx_file] rank 1: a is damaged") == "[idx_file] rank 1: a is damaged");
  CHECK(text(1, "[a] rank 1: b: [c] rank 1: d, rank 1: e") == "[a] b: [c] d, rank 1: e");
}

TEST_CASE("lists of ranks stay short", "[group]") {
  CHECK(ranks_text(std::vector{2}) == "rank 2");
  CHECK(ranks_text(std::vector{0, 1, 3}) == "ranks 0, 1, 3");
  std::vector<int> many(127);
  std::iota(many.begin(), many.end(), 0);
  CHECK_THAT(ranks_text(many), Contains(", 15 and 111 more"));
}

TEST_CASE("groups refuse impossible ranks and sizes", "[group]") {
  CHECK_THROWS_WITH(make_local_groups("g", 0), Contains("size must be at least 1, got 0"));
  class Bad : public ProcessGroup {
   public:
    Bad() : ProcessGroup({.name = "bad", .rank = 2, .ranks = {0, 1}}) {}
    std::string backend() const override { return "bad"; }
    std::shared_ptr<ProcessGroup> make_subgroup(const SubgroupRequest&) override { return nullptr; }
    void run(const Collective&) override {}
    void abort(const std::string&) noexcept override {}
  };
  CHECK_THROWS_WITH(Bad(), Contains("rank 2 of 2 in group \"bad\""));
  if (!has_nccl())
    CHECK_THROWS_WITH(make_nccl_group("g", {}),
                      Contains("group \"g\" cannot be made: this build has no NCCL"));
  CHECK(std::string(collective_name(CollectiveKind::kReduceScatter)) == "reduce_scatter");
  CHECK(std::string(collective_name(CollectiveKind::kAllToAll)) == "all_to_all");
  CHECK(ReduceOp::kMax.name() == "max");
  CHECK(ReduceOp::premul_sum(0.25).name() == "premul_sum(0.25)");
}

}  // namespace tessera::distributed

namespace tessera::testing {

TEST_CASE("comparisons of tensors name the worst element", "[support]") {
  const Tensor a = Tensor::from_vector<float>({1, 2, 3, 4}, {2, 2});
  const Tensor b = Tensor::from_vector<float>({1, 2.5f, 3, 40}, {2, 2});
  CHECK(all_close(a, a));
  CHECK(all_equal(a, a));
  CHECK(all_close(a, b).message == "2 of 4 elements differ; the worst: 4 at [1, 1] instead of 40");
  CHECK(all_equal(a, b).message == "2 of 4 elements differ; the first: 2 at [0, 1] instead of 2.5");
  CHECK(all_close(a, a.view({4})).message == "shape [2, 2] instead of [4]");
  CHECK(all_close(a, Tensor::from_vector<double>({1, 2, 3, 4}, {2, 2})).message ==
        "dtype f32 instead of f64");
  CHECK_FALSE(all_close(a, Tensor()));
  CHECK(all_close(Tensor::from_vector<float>({}, {0}), Tensor::from_vector<float>({}, {0})));
  const Tensor near = Tensor::from_vector<float>({1.00001f, 2, 3, 4}, {2, 2});
  CHECK(all_close(a, near));
  CHECK_FALSE(all_equal(a, near));
  CHECK_FALSE(all_close(a, near, {.rtol = 0, .atol = 1e-6}));
  const Tensor zero = Tensor::from_vector<double>({0.0, std::nan("")}, {2});
  const Tensor minus = Tensor::from_vector<double>({-0.0, std::nan("")}, {2});
  CHECK(all_close(zero, minus));
  CHECK_FALSE(all_equal(zero, minus));
  CHECK_FALSE(all_close(zero, Tensor::from_vector<double>({0.0, 1.0}, {2})));
  CHECK_FALSE(all_close(Tensor::from_vector<double>({HUGE_VAL}, {1}),
                        Tensor::from_vector<double>({1e300}, {1})));
}

}  // namespace tessera::testing
