// Every collective on every transport: values by formula, odd and empty extents, lists, what is
// counted and traced.
#include "tessera/distributed/collectives.h"

#include <catch2/catch.hpp>

#include "tessera/distributed/collective_counts.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/distributed/values.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::CollectiveCounts;
using distributed::CollectiveFilter;
using distributed::ReduceOp;

// Elements of each rank's part: one, odd, none, small ones (packed between processes) and large
// ones (sent by themselves).
const std::vector<std::vector<std::int64_t>> kLists = {
    {1}, {}, {0}, {7}, {5000}, {3, 0, 17}, {9, 4097, 2, 5001, 0}, {0, 0}};

// Calls f.template operator()<T>() for the dtypes that all collectives carry.
template <class F>
void for_dtypes(F f) {
  f.template operator()<float>();
  f.template operator()<double>();
  f.template operator()<std::int64_t>();
}

template <class T>
Tensor empty_of(std::int64_t count) {
  return Tensor::from_vector<T>(std::vector<T>(static_cast<std::size_t>(count), T(77)), {count});
}

template <class T>
void gather_list(RankTest& t, const std::vector<std::int64_t>& counts) {
  std::vector<Tensor> inputs, outputs, expected;
  for (std::size_t m = 0; m < counts.size(); ++m) {
    inputs.push_back(rank_tensor<T>(t.rank(), m, counts[m]));
    outputs.push_back(empty_of<T>(counts[m] * t.size()));
    std::vector<T> values;
    for (int r = 0; r < t.size(); ++r) {
      for (std::int64_t i = 0; i < counts[m]; ++i) values.push_back(rank_value<T>(r, m, i));
    }
    expected.push_back(Tensor::from_vector<T>(values, {counts[m] * t.size()}));
  }
  all_gather(t.group(), inputs, outputs, "list");
  for (std::size_t m = 0; m < counts.size(); ++m)
    t.check_equal(outputs[m], expected[m], fmt::format("member {}", m));
}

template <class T>
void scatter_list(RankTest& t, const std::vector<std::int64_t>& counts, ReduceOp op) {
  std::vector<Tensor> inputs, outputs, expected;
  for (std::size_t m = 0; m < counts.size(); ++m) {
    inputs.push_back(rank_tensor<T>(t.rank(), m, counts[m] * t.size()));
    outputs.push_back(empty_of<T>(counts[m]));
    std::vector<T> values;
    for (std::int64_t i = 0; i < counts[m]; ++i)
      values.push_back(reduced_value<T>(t.size(), op, m, t.rank() * counts[m] + i));
    expected.push_back(Tensor::from_vector<T>(values, {counts[m]}));
  }
  reduce_scatter(t.group(), inputs, outputs, op, "list");
  for (std::size_t m = 0; m < counts.size(); ++m)
    t.check_equal(outputs[m], expected[m], fmt::format("member {}", m));
}

template <class T>
void reduce_list(RankTest& t, const std::vector<std::int64_t>& counts, ReduceOp op) {
  std::vector<Tensor> tensors, expected;
  for (std::size_t m = 0; m < counts.size(); ++m) {
    tensors.push_back(rank_tensor<T>(t.rank(), m, counts[m]));
    std::vector<T> values;
    for (std::int64_t i = 0; i < counts[m]; ++i)
      values.push_back(reduced_value<T>(t.size(), op, m, i));
    expected.push_back(Tensor::from_vector<T>(values, {counts[m]}));
  }
  all_reduce(t.group(), tensors, op, "list");
  for (std::size_t m = 0; m < counts.size(); ++m)
    t.check_equal(tensors[m], expected[m], fmt::format("member {}", m));
}

template <class T>
void broadcast_list(RankTest& t, const std::vector<std::int64_t>& counts, int root) {
  std::vector<Tensor> tensors;
  for (std::size_t m = 0; m < counts.size(); ++m)
    tensors.push_back(rank_tensor<T>(t.rank(), m, counts[m]));
  broadcast(t.group(), tensors, root, "list");
  for (std::size_t m = 0; m < counts.size(); ++m)
    t.check_equal(tensors[m], rank_tensor<T>(root, m, counts[m]), fmt::format("member {}", m));
}

void run_all(RankTest& t) {
  for (const std::vector<std::int64_t>& counts : kLists) {
    for_dtypes([&]<class T>() {
      gather_list<T>(t, counts);
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
        scatter_list<T>(t, counts, op);
        reduce_list<T>(t, counts, op);
      }
      broadcast_list<T>(t, counts, t.size() - 1);
    });
    gather_list<std::uint8_t>(t, counts);
    broadcast_list<std::uint8_t>(t, counts, 0);
    barrier(t.group());
  }
}

}  // namespace

TESSERA_RANK_TEST("collectives give the values of their formulas", "[collectives]") { run_all(t); }

TESSERA_RANK_TEST_WITH("collectives on a queued stream give the same values", "[collectives]",
                       {.cpu_compute = StreamKind::kQueued}) {
  run_all(t);
}

TESSERA_RANK_TEST_WITH("a world of eight", "[collectives]", {.worlds = {8}}) {
  gather_list<double>(t, {5, 2048});
  scatter_list<float>(t, {5, 4096}, ReduceOp::kSum);
  reduce_list<double>(t, {3, 5001}, ReduceOp::kSum);
}

TESSERA_RANK_TEST("an all_gather may work in place and fills a storage that is filling",
                  "[collectives]") {
  const DefaultDeviceScope host(kCpu);  // whose streams this is about
  const std::int64_t part = 3;
  TensorStorage storage = TensorStorage::create(kCpu, static_cast<std::size_t>(part * t.size()) * 8,
                                                MemoryCategory::kGathered, "whole");
  storage.materialize();
  const Tensor whole = Tensor::over(storage, {part * t.size()}, {1}, 0, DType::kF64);
  const Tensor mine = rank_tensor<double>(t.rank(), 0, part);
  const std::uint64_t version = whole.version();
  storage.begin_fill();
  all_gather(t.group(), std::vector{mine}, std::vector{whole});
  storage.end_fill();
  t.check(whole.version() == version, "a refill counted as an overwrite");
  const Tensor in_place = whole.slice(0, t.rank() * part, (t.rank() + 1) * part);
  t.check_equal(in_place, mine);
  all_gather(t.group(), std::vector{in_place}, std::vector{whole});
  t.check_equal(in_place, mine, "in place");
  t.check(whole.version() > version, "an overwrite was not counted");
}

TESSERA_RANK_TEST("a reduce_scatter may write over its own part", "[collectives]") {
  const std::int64_t part = 5;
  const Tensor whole = rank_tensor<float>(t.rank(), 0, part * t.size());
  const Tensor mine = whole.slice(0, t.rank() * part, (t.rank() + 1) * part);
  reduce_scatter(t.group(), std::vector{whole}, std::vector{mine});
  const std::vector<float> values = mine.to_vector<float>();
  for (std::int64_t i = 0; i < part; ++i)
    t.check(values[static_cast<std::size_t>(i)] ==
                reduced_value<float>(t.size(), ReduceOp::kSum, 0, t.rank() * part + i),
            "element {}", i);
}

TESSERA_RANK_TEST("collectives count a version of what they write", "[collectives]") {
  const Tensor x = rank_tensor<float>(t.rank(), 0, 4);
  const std::uint64_t before = x.version();
  all_reduce(t.group(), std::vector{x});
  t.check(x.version() == before + 1, "all_reduce: version {} after {}", x.version(), before);
  broadcast(t.group(), std::vector{x}, 0);
  t.check(x.version() == before + (t.rank() == 0 ? 1u : 2u), "broadcast: version {}", x.version());
}

TESSERA_RANK_TEST("a NaN wins a maximum", "[collectives]") {
  const float mine = t.rank() == t.size() / 2 ? std::nanf("") : 1.0f;
  const Tensor x = Tensor::from_vector<float>({mine, float(t.rank())}, {2});
  all_reduce(t.group(), std::vector{x}, ReduceOp::kMax);
  t.check(std::isnan(x.to_vector<float>()[0]), "the NaN was lost");
  t.check(x.to_vector<float>()[1] == float(t.size() - 1), "the maximum is wrong");
}

TESSERA_RANK_TEST("wrong arguments are named, and the group stays usable", "[collectives]") {
  const Tensor x = rank_tensor<float>(0, 0, 4), y = rank_tensor<double>(0, 0, 4);
  const Tensor whole = rank_tensor<float>(0, 0, 4 * t.size());
  distributed::ProcessGroup& group = t.group();
  t.check_throws<InvalidArgument>("[all_gather]", [&] { all_gather(group, std::vector{x}, {}); });
  t.check_throws<InvalidArgument>("1 inputs but 0 outputs; pass one for each",
                                  [&] { all_gather(group, std::vector{x}, {}); });
  t.check_throws<InvalidArgument>(
      fmt::format("output 0 of shape [3] must have {} times the elements of input 0", t.size()),
      [&] { all_gather(group, std::vector{x}, std::vector{rank_tensor<float>(0, 0, 3)}); });
  t.check_throws<InvalidArgument>(
      fmt::format("input 0 of shape [5] must have {} times the elements of output 0", t.size()),
      [&] {
        reduce_scatter(group, std::vector{rank_tensor<float>(0, 0, 5)},
                       std::vector{rank_tensor<float>(0, 0, 4)});
      });
  t.check_throws<InvalidArgument>(
      "input 1 is f64, the first tensor is f32; one call takes one dtype", [&] {
        all_reduce(group, std::vector{x, y});
      });
  t.check_throws<InvalidArgument>("output 0 is f64", [&] {
    all_gather(group, std::vector{x}, std::vector{rank_tensor<double>(0, 0, 4 * t.size())});
  });
  t.check_throws<InvalidArgument>("is not contiguous", [&] {
    all_reduce(group,
               std::vector{Tensor::from_vector<float>({1, 2, 3, 4}, {2, 2}).transpose(0, 1)});
  });
  t.check_throws<InvalidArgument>("is on null", [&] {
    all_reduce(group, std::vector{x, Tensor::empty({4}, {.device = kNull})});
  });
  t.check_throws<InvalidArgument>("undefined tensor",
                                  [&] { all_reduce(group, std::vector{Tensor()}); });
  t.check_throws<InvalidArgument>("undefined tensor", [&] {
    all_reduce(group, std::vector{x, Tensor()});
  });
  t.check_throws<InvalidArgument>("average of i64 tensors makes fractions", [&] {
    all_reduce(group, std::vector{rank_tensor<std::int64_t>(0, 0, 2)}, ReduceOp::kAverage);
  });
  t.check_throws<InvalidArgument>(fmt::format("root {} is not a rank", t.size()),
                                  [&] { broadcast(group, std::vector{x}, t.size()); });
  TensorStorage released = TensorStorage::create(kCpu, 16, MemoryCategory::kGathered, "gone");
  t.check_throws<StateError>("gone", [&] {
    all_reduce(group, std::vector{Tensor::over(released, {4}, {1}, 0, DType::kF32)});
  });
  barrier(group);
  gather_list<float>(t, {3});
}

TESSERA_RANK_TEST("collectives of a trace are counted by kind, group and label", "[collectives]") {
  const Tensor x = full({3}, 1.0), z = full({3}, 1.0);
  const Tensor y = full({2 * t.size()}, 1.0), part = full({2}, 0.0);
  const auto alone = t.group().subgroup({t.rank()}, "alone");
  all_reduce(t.group(), std::vector{x}, ReduceOp::kSum, "before");  // not in the trace
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    all_reduce(t.group(), std::vector{x, z}, ReduceOp::kSum, "a");
    all_reduce(t.group(), std::vector{x}, ReduceOp::kSum, "b");
    all_reduce(t.group(), std::vector{x}, ReduceOp::kSum, "a");
    reduce_scatter(t.group(), std::vector{y}, std::vector{part}, ReduceOp::kSum, "a");
    all_reduce(*alone, std::vector{x}, ReduceOp::kSum, "a");
  }
  const CollectiveCounts counts(trace);
  const auto check = [&](const char* what, const CollectiveFilter& filter, std::int64_t collectives,
                         std::int64_t bytes) {
    const distributed::CollectiveCounters found = counts.of(filter);
    const std::int64_t expected = t.size() > 1 ? collectives : 0;
    t.check(found.collectives == expected, "{}: {} collectives, expected {}", what,
            found.collectives, expected);
    t.check(found.bytes_sent == bytes * (t.size() - 1), "{}: {} bytes", what, found.bytes_sent);
  };
  check("all", {}, 4, (6 + 3 + 3 + 2) * 4);
  check("of a kind", {.op = "all_reduce"}, 3, (6 + 3 + 3) * 4);
  check("of a group", {.group = "world"}, 4, (6 + 3 + 3 + 2) * 4);
  check("of another group", {.group = "alone"}, 0, 0);
  check("of a label", {.label = "a"}, 3, (6 + 3 + 2) * 4);
  check("of a kind and a label", {.op = "all_reduce", .label = "b"}, 1, 3 * 4);
  check("of none", {.op = "all_gather"}, 0, 0);
  t.check(counts.of({.alone = true}).collectives == 5, "groups of one rank are not counted");
  if (!t.check(counts.rows().size() == 4, "{} rows", counts.rows().size())) return;
  t.check(counts.rows()[0].label == "a" && counts.rows()[0].collectives == 2 &&
              counts.rows()[1].label == "b" && counts.rows()[3].group == "alone",
          "rows in another order: {}", counts.str());
  const std::string first =
      fmt::format("2 all_reduce of world (a): {} bytes\n", 36 * (t.size() - 1));
  t.check(counts.str().starts_with(t.size() > 1 ? first : ""), "text: {}", counts.str());
  t.check(counts.str().find("alone") == std::string::npos, "text: {}", counts.str());
}

TESSERA_RANK_TEST("collectives are counted and traced alike on every transport", "[collectives]") {
  ExecutionTrace trace;
  const distributed::CollectiveCounters before = distributed::collective_counters();
  {
    const TraceScope recording(trace);
    gather_list<float>(t, {3, 10});
    scatter_list<double>(t, {2}, ReduceOp::kMax);
    reduce_list<std::int64_t>(t, {5}, ReduceOp::kSum);
    broadcast_list<float>(t, {6}, 0);
    barrier(t.group(), "end");
  }

  const std::int64_t peers = t.size() - 1;
  const std::vector<std::int64_t> bytes = {peers * 13 * 4, peers * 2 * 8, peers * 5 * 8,
                                           t.rank() == 0 ? peers * 6 * 4 : 0, 0};
  const std::vector<CollectiveRecord> records = trace.all<CollectiveRecord>();
  if (!t.check(records.size() == 5, "{} records", records.size())) return;
  for (std::size_t i = 0; i < records.size(); ++i) {
    t.check(records[i].bytes_sent == bytes[i], "{} sent {} bytes, expected {}", records[i].op,
            records[i].bytes_sent, bytes[i]);
    t.check(records[i].sequence == records[0].sequence + i, "sequence {}", records[i].sequence);
    t.check(records[i].group == "world" && records[i].group_size == t.size(), "group {}",
            records[i].group);
    const Device device = records[i].op == "barrier" ? kCpu : t.world().device();
    t.check(records[i].stream == current_stream(device).id(), "stream {}", records[i].stream);
  }
  t.check(
      records[0].op == "all_gather" && records[0].reduction.empty() && records[0].label == "list",
      "record 0");
  t.check(records[0].members.size() == 2 && records[0].members[1].elements_in == 10 &&
              records[0].members[1].elements_out == 10 * t.size(),
          "members of record 0");
  t.check(records[1].op == "reduce_scatter" && records[1].reduction == "max" &&
              records[1].dtype == DType::kF64,
          "record 1");
  t.check(records[2].op == "all_reduce" && records[2].reduction == "sum" &&
              records[2].dtype == DType::kI64,
          "record 2");
  t.check(records[3].op == "broadcast" && records[4].op == "barrier" && records[4].label == "end",
          "records 3 and 4");

  const distributed::CollectiveCounters after = distributed::collective_counters();
  std::int64_t total = 0;
  for (std::int64_t b : bytes) total += b;
  // One rank alone communicates nothing.
  t.check(after.collectives - before.collectives == (t.size() > 1 ? 5 : 0), "{} counted",
          after.collectives - before.collectives);
  t.check(after.bytes_sent - before.bytes_sent == total, "{} bytes counted",
          after.bytes_sent - before.bytes_sent);

  const std::vector<distributed::FlightEntry> flights = distributed::recent_collectives();
  if (!t.check(flights.size() >= 5, "{} flights", flights.size())) return;
  t.check(flights.back().op == "barrier" &&
              flights.back().state == distributed::FlightState::kDone &&
              flights.back().label == "end" && flights.back().sequence == records[4].sequence,
          "last flight {}, {}", flights.back().str(),
          distributed::flight_state_name(flights.back().state));
}

TESSERA_RANK_TEST("staging is counted as communication and goes back", "[collectives]") {
  MemoryCounters& memory = current_rank_context()->memory();
  const std::int64_t before = memory.current()[MemoryCategory::kCommunication];
  memory.reset_peak();
  const Tensor x = rank_tensor<float>(t.rank(), 0, 10000);
  all_reduce(t.group(), std::vector{x});
  const std::int64_t staged =
      test_transport() == "gloo" ? (t.size() - 1) * counted_bytes(DeviceType::kCpu, 40000) : 0;
  t.check(memory.peak()[MemoryCategory::kCommunication] - before == staged,
          "staged {} bytes, expected {}", memory.peak()[MemoryCategory::kCommunication] - before,
          staged);
  t.check(memory.current()[MemoryCategory::kCommunication] == before, "staging was kept");
}

TESSERA_RANK_TEST("on the null device collectives are counted and move nothing", "[collectives]") {
  const Tensor x = Tensor::empty({4}, {.device = kNull}),
               all = Tensor::empty({4 * t.size()}, {.device = kNull});
  const std::int64_t before = distributed::collective_counters().bytes_sent;
  all_gather(t.group(), std::vector{x}, std::vector{all});
  t.check(distributed::collective_counters().bytes_sent - before == (t.size() - 1) * 16, "bytes");
}

}  // namespace tessera::testing
