// What the trace of an iteration must show: the order of gathers and reduces, their number and
// their bytes.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/autograd/grad_mode.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/twin.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using Events = std::vector<std::string>;

/// Short forms: "U block0" (unshard), "R block0" (reshard), "P block0" (post-backward).
Events events_of(const Trace& trace, bool with_reshard = false) {
  Events out;
  for (const Annotation& a : trace.all<Annotation>()) {
    if (a.domain != "fsdp" || (a.phase == "reshard" && !with_reshard)) continue;
    out.push_back((a.phase == "unshard" ? "U " : a.phase == "reshard" ? "R " : "P ") + a.name);
  }
  return out;
}

std::string joined(const Events& events) {
  std::string out;
  for (const std::string& event : events) out += event + "; ";
  return out;
}

/// Collects what `body` does on this rank.
template <class Body>
Trace traced(RankTest& t, Body&& body) {
  Trace trace;
  t.world().context()->set_trace(&trace);
  body();
  t.world().context()->set_trace(nullptr);
  return trace;
}

struct Fixture {
  Fixture(RankTest& test, const fsdp::FullyShardOptions& options,
          const fsdp::PrefetchOptions& prefetch, std::optional<bool> root_reshard = std::nullopt,
          bool stem = false)
      : t(test), model({.widths = {7, 5, 9, 3}, .classes = 4, .stem = stem}) {
    for (const auto& block : model.blocks()) fsdp::fully_shard(*block, options);
    fsdp::fully_shard(model, {.mesh = options.mesh, .reshard_after_forward = root_reshard});
    fsdp::of(model).set_prefetch(prefetch);
    nn::initialize(model, {.seed = 1});
  }
  Variable forward() {
    return sharded_loss(model(Variable(random_rows(4, 7, DType::kF64, 1))), t.world());
  }

  RankTest& t;
  Chain model;
};

void check_order(RankTest& t, const char* what, const Trace& trace, const Events& expected) {
  const Events seen = events_of(trace);
  t.check(seen == expected, "{}: expected {} got {}", what, joined(expected), joined(seen));
}

TESSERA_RANK_TEST("fsdp: event order of one iteration, gathers at their own place", "[fsdp]") {
  Fixture f(t, {.mesh = t.world().mesh()}, prefetch_of(false, false));
  for (int round = 0; round < 2; ++round) {
    Variable loss;
    check_order(t, "forward", traced(t, [&] { loss = f.forward(); }),
                {"U root", "U block0", "U block1", "U block2"});
    check_order(t, "backward", traced(t, [&] { backward(loss); }),
                {"U block2", "P block2", "U block1", "P block1", "U block0", "P block0", "P root"});
  }
}

TESSERA_RANK_TEST("fsdp: event order of one iteration with gathers ahead in backward", "[fsdp]") {
  for (const bool root : {false, true}) {
    Fixture f(t, {.mesh = t.world().mesh()}, {.forward = 0},
              root ? std::optional<bool>(true) : std::nullopt);
    Variable loss;
    check_order(t, "forward", traced(t, [&] { loss = f.forward(); }),
                {"U root", "U block0", "U block1", "U block2"});
    Events expected = {"U block2", "U block1", "P block2", "U block0",
                       "P block1", "P block0", "P root"};
    if (root) expected.insert(expected.begin(), "U root");
    check_order(t, "backward", traced(t, [&] { backward(loss); }), expected);
  }
}

TESSERA_RANK_TEST("fsdp: gathers ahead in forward follow the last iteration", "[fsdp]") {
  Fixture f(t, {.mesh = t.world().mesh()}, {});
  Variable loss;
  traced(t, [&] { backward(f.forward()); });
  const Trace trace = traced(t, [&] { loss = f.forward(); });
  const Events expected = {"U root",   "U block0", "U block1", "R block0",
                           "U block2", "R block1", "R block2"};
  t.check(events_of(trace, /*with_reshard=*/true) == expected, "expected {} got {}",
          joined(expected), joined(events_of(trace, true)));
  backward(loss);
}

TESSERA_RANK_TEST("fsdp: two forwards, then one backward of the sum", "[fsdp]") {
  Fixture f(t, {.mesh = t.world().mesh()}, {.forward = 0}, std::nullopt, /*stem=*/true);
  Variable first, second;
  check_order(t, "first", traced(t, [&] { first = f.forward(); }),
              {"U root", "U block0", "U block1", "U block2"});
  check_order(t, "second", traced(t, [&] { second = f.forward(); }),
              {"U block0", "U block1", "U block2"});
  const Events half = {"U block2", "U block1", "P block2", "U block0", "P block1", "P block0"};
  Events expected = half;
  expected.insert(expected.end(), half.begin(), half.end());
  expected.push_back("P root");
  check_order(t, "backward", traced(t, [&] { backward(add(first, second)); }), expected);
}

TESSERA_RANK_TEST("fsdp: groups kept after forward are not gathered again", "[fsdp]") {
  Fixture f(t, {.mesh = t.world().mesh(), .reshard_after_forward = false}, {.forward = 0});
  Variable loss;
  check_order(t, "forward", traced(t, [&] { loss = f.forward(); }),
              {"U root", "U block0", "U block1", "U block2"});
  check_order(t, "backward", traced(t, [&] { backward(loss); }),
              {"P block2", "P block1", "P block0", "P root"});
}

/// (W - 1) / W of the padded bytes of a group, from the rule of the chunks alone.
std::int64_t padded_bytes_sent(const nn::Module& module, int world,
                               const std::vector<std::string>& skip) {
  std::int64_t total = 0;
  for (const nn::NamedParameter& named : module.named_parameters()) {
    const bool skipped = std::any_of(
        skip.begin(), skip.end(), [&](const std::string& s) { return named.name.starts_with(s); });
    if (skipped) continue;
    const Shape& shape = named.parameter.spec().global_shape;
    const std::int64_t rows = (shape[0] + world - 1) / world;
    total += rows * (world - 1) * (shape.numel() / shape[0]) * 8;
  }
  return total;
}

TESSERA_RANK_TEST("fsdp: number and bytes of gathers and reduces", "[fsdp]") {
  const int world = t.world().size();
  for (const std::optional<bool> reshard :
       {std::optional<bool>(), std::optional<bool>(true), std::optional<bool>(false)}) {
    Fixture f(t, {.mesh = t.world().mesh(), .reshard_after_forward = reshard}, {}, reshard);
    for (int round = 0; round < 3; ++round) {
      const Trace trace = traced(t, [&] { backward(f.forward()); });
      std::map<std::string, std::int64_t> gathers, reduces, bytes;
      for (const CollectiveRecord& record : trace.all<CollectiveRecord>()) {
        if (record.op != "all_gather" && record.op != "reduce_scatter") continue;
        ++(record.op == "all_gather" ? gathers : reduces)[record.label];
        const std::vector<std::string> blocks =
            record.label == "root" ? std::vector<std::string>{"block"} : std::vector<std::string>{};
        const nn::Module& module =
            record.label == "root"
                ? static_cast<const nn::Module&>(f.model)
                : *f.model.blocks()[static_cast<std::size_t>(record.label.back() - '0')];
        const std::int64_t expected = padded_bytes_sent(module, world, blocks);
        t.check(record.bytes_sent == expected, "{} of {} sent {} bytes, expected {}", record.op,
                record.label, record.bytes_sent, expected);
      }
      for (const std::string group : {"root", "block0", "block1", "block2"}) {
        const bool twice = reshard.value_or(group != "root");
        // On one rank the value is the shard: there is nothing to gather.
        const std::int64_t expected = world == 1 ? 0 : twice ? 2 : 1;
        t.check(gathers[group] == expected, "{} gathers of {}, expected {}", gathers[group], group,
                expected);
        t.check(reduces[group] == 1, "{} reduces of {}, expected 1", reduces[group], group);
      }
    }
  }
}

TESSERA_RANK_TEST("fsdp: the recorded reduction is a sum", "[fsdp]") {
  Fixture f(t, {.mesh = t.world().mesh()}, {});
  const Trace trace = traced(t, [&] { backward(f.forward()); });
  int sums = 0;
  for (const CollectiveRecord& record : trace.all<CollectiveRecord>()) {
    if (record.op == "reduce_scatter") sums += record.reduction == "sum" ? 1 : -100;
  }
  t.check(sums == 4, "{} reduces by a sum, expected one for each of 4 groups", sums);
}

}  // namespace
}  // namespace tessera::testing
