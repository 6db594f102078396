// All-to-all on every transport: equal and uneven parts, empty ones, lists, wrong counts; and what
// nn's mesh makes of it.
#include <catch2/catch.hpp>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/decorators.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/distributed/values.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::RowCounts;

// Rows that rank `from` sends to rank `to`: all numbers from 0 on, in no order.
std::int64_t rows_between(int from, int to, int scale) { return (3 * from + 5 * to) % 4 * scale; }

RowCounts counts_of(const RankTest& t, int rank, int scale) {
  RowCounts rows;
  for (int peer = 0; peer < t.size(); ++peer) {
    rows.sent.push_back(rows_between(rank, peer, scale));
    rows.received.push_back(rows_between(peer, rank, scale));
  }
  return rows;
}

std::int64_t total(const std::vector<std::int64_t>& counts) {
  std::int64_t sum = 0;
  for (std::int64_t count : counts) sum += count;
  return sum;
}

template <class T>
Tensor rows_of(int rank, std::size_t member, std::int64_t rows, std::int64_t width) {
  return rank_tensor<T>(rank, member, rows * width).view({rows, width});
}

// What this rank has after an uneven exchange of rows_of(), one row after another.
template <class T>
Tensor expected_rows(const RankTest& t, std::size_t member, std::int64_t width, int scale) {
  std::vector<T> values;
  for (int from = 0; from < t.size(); ++from) {
    std::int64_t first = 0;
    for (int to = 0; to < t.rank(); ++to) first += rows_between(from, to, scale);
    const std::int64_t count = rows_between(from, t.rank(), scale);
    for (std::int64_t i = first * width; i < (first + count) * width; ++i)
      values.push_back(rank_value<T>(from, member, i));
  }
  const auto elements = static_cast<std::int64_t>(values.size());
  return Tensor::from_vector<T>(values, {width == 0 ? 0 : elements / width, width});
}

template <class T>
void exchange_uneven(RankTest& t, const std::vector<std::int64_t>& widths, int scale) {
  const RowCounts rows = counts_of(t, t.rank(), scale);
  std::vector<Tensor> inputs, outputs;
  for (std::size_t m = 0; m < widths.size(); ++m) {
    inputs.push_back(rows_of<T>(t.rank(), m, total(rows.sent), widths[m]));
    outputs.push_back(rows_of<T>(99, m, total(rows.received), widths[m]));
  }
  all_to_all(t.group(), inputs, outputs, rows, "list");
  for (std::size_t m = 0; m < widths.size(); ++m) {
    if (widths[m] == 0) continue;
    t.check_equal(outputs[m], expected_rows<T>(t, m, widths[m], scale),
                  fmt::format("member {}", m));
  }
}

template <class T>
void exchange_even(RankTest& t, const std::vector<std::int64_t>& parts) {
  std::vector<Tensor> inputs, outputs;
  for (std::size_t m = 0; m < parts.size(); ++m) {
    inputs.push_back(rank_tensor<T>(t.rank(), m, parts[m] * t.size()));
    outputs.push_back(rank_tensor<T>(99, m, parts[m] * t.size()));
  }
  all_to_all(t.group(), inputs, outputs, "list");
  for (std::size_t m = 0; m < parts.size(); ++m) {
    std::vector<T> values;
    for (int from = 0; from < t.size(); ++from) {
      for (std::int64_t i = 0; i < parts[m]; ++i)
        values.push_back(rank_value<T>(from, m, t.rank() * parts[m] + i));
    }
    t.check_equal(outputs[m], Tensor::from_vector<T>(values, {parts[m] * t.size()}),
                  fmt::format("member {}", m));
  }
}

template <class T>
void run_all(RankTest& t) {
  for (const std::vector<std::int64_t>& parts : std::vector<std::vector<std::int64_t>>{
           {1}, {}, {0}, {7}, {5000}, {3, 0, 17}, {9, 4097, 2, 5001, 0}})
    exchange_even<T>(t, parts);
  for (const std::vector<std::int64_t>& widths :
       std::vector<std::vector<std::int64_t>>{{1}, {}, {0}, {3}, {3, 0, 5000, 1, 2}})
    exchange_uneven<T>(t, widths, 1);
  exchange_uneven<T>(t, {3, 1}, 0);  // no rank sends anything
  exchange_uneven<T>(t, {700}, 11);
}

}  // namespace

TESSERA_RANK_TEST("all_to_all gives each rank its part of every rank", "[all_to_all]") {
  run_all<float>(t);
  run_all<double>(t);
  run_all<std::int64_t>(t);
  run_all<std::uint8_t>(t);
}

TESSERA_RANK_TEST_WITH("all_to_all on a queued stream", "[all_to_all]",
                       {.cpu_compute = StreamKind::kQueued}) {
  run_all<float>(t);
}

TESSERA_RANK_TEST_WITH("all_to_all in a world of eight", "[all_to_all]", {.worlds = {8}}) {
  exchange_even<double>(t, {5, 2048});
  exchange_uneven<float>(t, {5, 2048}, 2);
}

TESSERA_RANK_TEST("an exchange there and back is the identity", "[all_to_all]") {
  const RowCounts rows = counts_of(t, t.rank(), 3);
  const Tensor x = rows_of<double>(t.rank(), 0, total(rows.sent), 5);
  const Tensor there = rows_of<double>(9, 0, total(rows.received), 5), back = clone(x);
  fill_(back, 0);
  all_to_all(t.group(), std::vector{x}, std::vector{there}, rows);
  all_to_all(t.group(), std::vector{there}, std::vector{back},
             {.sent = rows.received, .received = rows.sent});
  t.check_equal(back, x);
}

TESSERA_RANK_TEST("all_to_all is counted, traced and remembered", "[all_to_all]") {
  ExecutionTrace trace;
  const distributed::CollectiveCounters before = distributed::collective_counters();
  {
    const TraceScope recording(trace);
    exchange_even<float>(t, {3, 10});
    exchange_uneven<double>(t, {3}, 2);
  }
  const RowCounts rows = counts_of(t, t.rank(), 2);
  const std::int64_t own = rows.sent[static_cast<std::size_t>(t.rank())];
  const std::vector<std::int64_t> bytes = {(t.size() - 1) * 13 * 4, (total(rows.sent) - own) * 24};
  const std::vector<CollectiveRecord> records = trace.all<CollectiveRecord>();
  if (!t.check(records.size() == 2, "{} records", records.size())) return;
  for (std::size_t i = 0; i < 2; ++i) {
    t.check(records[i].op == "all_to_all" && records[i].reduction.empty() &&
                records[i].label == "list" && records[i].group == "world",
            "record {}: {}", i, records[i].op);
    t.check(records[i].bytes_sent == bytes[i], "sent {} bytes, expected {}", records[i].bytes_sent,
            bytes[i]);
  }
  t.check(records[1].members.size() == 1 && records[1].dtype == DType::kF64 &&
              records[1].members[0].elements_in == total(rows.sent) * 3 &&
              records[1].members[0].elements_out == total(rows.received) * 3,
          "members of record 1");
  const distributed::CollectiveCounters after = distributed::collective_counters();
  t.check(after.collectives - before.collectives == (t.size() > 1 ? 2 : 0) &&
              after.bytes_sent - before.bytes_sent == bytes[0] + bytes[1],
          "counters");
  const distributed::FlightEntry flight = distributed::recent_collectives().back();
  t.check(flight.op == "all_to_all" && flight.label == "list" && flight.bytes_sent == bytes[1] &&
              flight.state == distributed::FlightState::kDone,
          "flight {}", flight.str());
}

TESSERA_RANK_TEST("decorators and the null device know all_to_all", "[all_to_all]") {
  std::vector<std::int64_t> seen;
  const auto watched =
      distributed::call(t.world().group(), {.before = [&](const distributed::Collective& call) {
                          t.check(call.kind == distributed::CollectiveKind::kAllToAll, "kind");
                          seen = call.rows_sent;
                        }});
  const auto slow = distributed::delay(watched, distributed::CollectiveKind::kAllToAll, 1);
  const RowCounts rows = counts_of(t, t.rank(), 1);
  const Tensor x = rows_of<float>(t.rank(), 0, total(rows.sent), 2);
  all_to_all(*slow, std::vector{x}, std::vector{rows_of<float>(9, 0, total(rows.received), 2)},
             rows);
  t.check(seen == rows.sent, "the counts did not reach the decorator");
  const Tensor null = Tensor::empty({t.size(), 3}, {.device = kNull});
  all_to_all(t.group(), std::vector{null},
             std::vector{Tensor::empty({t.size(), 3}, {.device = kNull})});
}

TESSERA_RANK_TEST("all_to_all counts a version of what it writes, not of what it reads",
                  "[all_to_all]") {
  const Tensor x = rank_tensor<float>(t.rank(), 0, t.size()), y = clone(x);
  const std::uint64_t read = x.version(), written = y.version();
  all_to_all(t.group(), std::vector{x}, std::vector{y});
  t.check(x.version() == read && y.version() == written + 1, "versions {} and {}", x.version(),
          y.version());
}

TESSERA_RANK_TEST("wrong all_to_alls are named, and the group stays usable", "[all_to_all]") {
  distributed::ProcessGroup& group = t.group();
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(t.size()), 1);
  const Tensor x = rows_of<float>(0, 0, t.size(), 2), y = clone(x);
  const RowCounts even{.sent = ones, .received = ones};
  const auto refuses = [&](const std::string& part, const Tensor& in, const Tensor& out,
                           const RowCounts& rows) {
    t.check_throws<InvalidArgument>(
        "[all_to_all]", [&] { all_to_all(group, std::vector{in}, std::vector{out}, rows); });
    t.check_throws<InvalidArgument>(
        part, [&] { all_to_all(group, std::vector{in}, std::vector{out}, rows); });
  };
  refuses(fmt::format("0 counts of rows to; pass one for each of {} ranks", t.size()), x, y,
          {.sent = {}, .received = ones});
  refuses(fmt::format("0 counts of rows from; pass one for each of {} ranks", t.size()), x, y,
          {.sent = ones, .received = {}});
  std::vector<std::int64_t> negative = ones;
  negative.back() = -1;
  refuses(fmt::format("-1 rows to rank {}; a count is at least 0", t.size() - 1), x, y,
          {.sent = negative, .received = ones});
  refuses(fmt::format("input 0 of shape [{}, 2] must have {} rows, the sum of the counts",
                      t.size() + 1, t.size()),
          rows_of<float>(0, 0, t.size() + 1, 2), y, even);
  refuses(fmt::format("output 0 of shape [{}, 2] must have {} rows", t.size() + 1, t.size()), x,
          rows_of<float>(0, 0, t.size() + 1, 2), even);
  refuses("must agree in all dims but the first", x, rows_of<float>(0, 0, t.size(), 3), even);
  refuses("input 0 is a 0-d tensor; view it as [1]", Tensor::scalar(1), y, even);
  refuses("input 0 and output 0 share memory; pass another tensor", x, x, even);
  refuses("output 0 is f64, the first tensor is f32", x, rows_of<double>(0, 0, t.size(), 2), even);
  refuses("undefined tensor", Tensor(), y, even);
  t.check_throws<InvalidArgument>("1 inputs but 0 outputs; pass one for each",
                                  [&] { all_to_all(group, std::vector{x}, {}, even); });
  t.check_throws<InvalidArgument>("share memory",
                                  [&] { all_to_all(group, std::vector{x}, std::vector{x}); });
  t.check_throws<InvalidArgument>(
      fmt::format("output 0 of shape [{}] must have 1 times the elements", t.size()),
      [&] { all_to_all(group, std::vector{x}, std::vector{rank_tensor<float>(0, 0, t.size())}); });
  if (t.size() > 1) {
    const Tensor odd = rank_tensor<float>(0, 0, t.size() + 1);
    t.check_throws<InvalidArgument>(
        fmt::format("input 0 of shape [{}] cannot be cut in {} equal parts", t.size() + 1,
                    t.size()),
        [&] { all_to_all(group, std::vector{odd}, std::vector{clone(odd)}); });
  }
  exchange_uneven<float>(t, {3}, 1);
}

TESSERA_RANK_TEST("nn's mesh exchanges rows and reduces parts", "[all_to_all]") {
  const std::shared_ptr<const nn::Mesh> mesh = distributed::make_mesh(t.world().mesh());
  const RowCounts rows = counts_of(t, t.rank(), 1);
  const Tensor x = rows_of<double>(t.rank(), 0, total(rows.sent), 3);
  const Tensor y = mesh->all_to_all(x, "data", {.sent = rows.sent, .received = rows.received});
  t.check_equal(y, expected_rows<double>(t, 0, 3, 1));

  const Tensor even = rows_of<float>(t.rank(), 1, 2 * t.size(), 3);
  const std::vector<std::int64_t> twos(static_cast<std::size_t>(t.size()), 2);
  t.check_equal(mesh->all_to_all(even, "data"),
                mesh->all_to_all(even, "data", {.sent = twos, .received = twos}), "equal parts");

  const Tensor part = mesh->reduce_scatter(even, "data"), all = clone(even);
  mesh->all_reduce(all, "data", nn::MeshReduce::kSum);
  t.check_equal(part, contiguous(all.slice(0, 2 * t.rank(), 2 * t.rank() + 2)), "reduce_scatter");

  const Tensor scalar = Tensor::scalar(1);
  t.check_throws<InvalidArgument>("a tensor of shape [] has no",
                                  [&] { (void)mesh->all_to_all(scalar, "data"); });
  t.check_throws<InvalidArgument>("a 0-d tensor has no dim 0 to exchange", [&] {
    (void)mesh->all_to_all(scalar, "data", {.sent = twos, .received = twos});
  });
  t.check_throws<InvalidArgument>("a tensor of shape [] has no",
                                  [&] { (void)mesh->reduce_scatter(scalar, "data"); });
  if (t.size() == 1) return;
  const Tensor odd = rows_of<float>(0, 0, t.size() + 1, 1);
  t.check_throws<InvalidArgument>("equal parts along dim 0; pass counts of rows",
                                  [&] { (void)mesh->all_to_all(odd, "data"); });
  t.check_throws<InvalidArgument>("equal parts along dim 0; pad it",
                                  [&] { (void)mesh->reduce_scatter(odd, "data"); });
}

}  // namespace tessera::testing
