// The trace of an iteration: order, number and bytes of gathers and reductions.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/autograd/grad_mode.h"
#include "tessera/distributed/collective_counts.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/runtime/annotations.h"
#include "tessera/nn/init.h"
#include "tessera/nn/recompute.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/fsdp/schedule/events.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using Events = std::vector<std::string>;

/// Short forms: "U block0" (unshard), "R block0" (reshard), "P block0" (post-backward).
Events phases_of(const ExecutionTrace& trace, bool with_reshard = false) {
  Events out;
  for (const TraceAnnotation& a : trace.all<TraceAnnotation>()) {
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

void check_order(RankTest& t, const char* what, const ExecutionTrace& trace,
                 const Events& expected) {
  const Events seen = phases_of(trace);
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
  const ExecutionTrace trace = traced(t, [&] { loss = f.forward(); });
  const Events expected = {"U root",   "U block0", "U block1", "R block0",
                           "U block2", "R block1", "R block2"};
  t.check(phases_of(trace, /*with_reshard=*/true) == expected, "expected {} got {}",
          joined(expected), joined(phases_of(trace, true)));
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

/// (W - 1) / W of the padded bytes of a group, computed from the chunk rule only.
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
      const ExecutionTrace trace = traced(t, [&] { backward(f.forward()); });
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
        // On one rank the value is the shard: nothing is gathered.
        const std::int64_t expected = world == 1 ? 0 : twice ? 2 : 1;
        t.check(gathers[group] == expected, "{} gathers of {}, expected {}", gathers[group], group,
                expected);
        // On one rank the gradient equals its sum.
        const std::int64_t sums = world == 1 ? 0 : 1;
        t.check(reduces[group] == sums, "{} reduces of {}, expected {}", reduces[group], group,
                sums);
      }
    }
  }
}

TESSERA_RANK_TEST("fsdp: a trace has the phases that are declared, and no other", "[fsdp]") {
  Fixture f(t, {.mesh = t.world().mesh()}, {});
  const ExecutionTrace trace = traced(t, [&] { backward(f.forward()); });
  std::set<std::string> phases;
  for (const TraceAnnotation& a : trace.all<TraceAnnotation>()) {
    if (a.domain == fsdp::kAnnotationDomain) phases.insert(a.phase);
  }
  const std::set<std::string> expected = {fsdp::kUnshardPhase, fsdp::kReshardPhase,
                                          fsdp::kPostBackwardPhase};
  t.check(phases == expected, "{} phases", phases.size());
}

/// Has no parameters of its own and is not sharded: each of its children becomes a root.
class Plain final : public nn::Layer<Plain> {
 public:
  Plain() : first_({}), second_({.classes = 0}) {
    register_module("first", first_);
    register_module("second", second_);
  }
  Variable forward(const Variable& x) { return add(sum(first_(x)), sum(second_(x))); }
  Chain& first() { return first_; }
  Chain& second() { return second_; }

 private:
  Chain first_, second_;
};

TESSERA_RANK_TEST("fsdp: groups are named by their modules, also without a sharded outermost one",
                  "[fsdp]") {
  Plain model;
  shard_chain(model.first(), {.mesh = t.world().mesh()});
  for (const auto& block : model.second().blocks())
    fsdp::fully_shard(*block, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  const Variable x(random_rows(2, 7, DType::kF64, 1));
  std::set<std::string> events, labels;
  const ExecutionTrace trace = traced(t, [&] { backward(model(x)); });
  for (const std::string& event : trace.annotations(fsdp::kAnnotationDomain)) events.insert(event);
  for (const auto& row : distributed::CollectiveCounts(trace).rows()) labels.insert(row.label);
  const std::set<std::string> names = {"first",        "first.block0",  "first.block1",
                                       "first.block2", "second.block0", "second.block1",
                                       "second.block2"};
  std::set<std::string> expected;
  for (const std::string& name : names) {
    for (const char* phase : {fsdp::kUnshardPhase, fsdp::kReshardPhase, fsdp::kPostBackwardPhase})
      expected.insert(std::string(phase) + " " + name);
  }
  t.check(events == expected, "events: {}", joined({events.begin(), events.end()}));
  if (t.size() > 1) t.check(labels == names, "labels: {}", joined({labels.begin(), labels.end()}));
  const fsdp::Handle block = fsdp::of(*model.second().blocks()[1]);
  t.check(block.group_name() == "second.block1", "name {}", block.group_name());
  t.check(block.parameter_names().front() == "second.block1.linear.weight", "parameter {}",
          block.parameter_names().front());
  t.check_throws<StateError>("group second.block1", [&] {
    for (const auto& [name, parameter] : model.second().named_parameters())
      if (name.starts_with("block1")) parameter.value();
  });
}

// Only the first step walks the tree of modules.
TESSERA_RANK_TEST("fsdp: no step after the first walks the tree of modules", "[fsdp]") {
  for (const bool recompute : {false, true}) {
    Fixture f(t, {.mesh = t.world().mesh()}, {});
    if (recompute) nn::recompute(*f.model.blocks()[1]);
    nn::optim::SGD sgd(f.model.parameters(), kSgd);
    for (int step = 0; step < 3; ++step) {
      const ExecutionTrace trace = traced(t, [&] {
        backward(f.forward());
        sgd.step();
        sgd.zero_grad();
        const NoGradGuard no_grad;
        f.forward();
      });
      const std::size_t walks = trace.annotations("nn").size();
      t.check(step == 0 ? walks > 0 : walks == 0, "recompute {}, step {}: {} walks", recompute,
              step, walks);
    }
  }
}

TESSERA_RANK_TEST_WITH("fsdp: the recorded reduction is a sum", "[fsdp]", {.worlds = {2, 3, 5}}) {
  Fixture f(t, {.mesh = t.world().mesh()}, {});
  const ExecutionTrace trace = traced(t, [&] { backward(f.forward()); });
  int sums = 0;
  for (const CollectiveRecord& record : trace.all<CollectiveRecord>()) {
    if (record.op == "reduce_scatter") sums += record.reduction == "sum" ? 1 : -100;
  }
  t.check(sums == 4, "{} reduces by a sum, expected one for each of 4 groups", sums);
}

}  // namespace
}  // namespace tessera::testing
