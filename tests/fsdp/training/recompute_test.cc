// Recomputation inside sharded modules and around them: the gradients of the unsharded reference,
// and the number of gathers.

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "tessera/autograd/recompute.h"
#include "tessera/nn/recompute.h"
#include "tessera/tensor/memory/allocator.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/training/side_by_side.h"

namespace tessera::testing {
namespace {

constexpr std::int64_t kWidth = 5;
constexpr int kBlocks = 4;

/// Which calls are recomputed in backward.
enum class Again {
  kNever,
  kInside,       ///< a function inside the sharded module
  kInner,        ///< a module inside the sharded module, by its recompute property
  kModule,       ///< the sharded module, by its property: inside its hooks
  kModuleLater,  ///< the same, with the property set after the module was sharded
  kAround,       ///< a function that calls the sharded module
  kAroundTwo,    ///< a function that calls two of them
  kBoth,         ///< around each, and inside
  kNested,       ///< around two of them, and around each
  kShardedInner  ///< as kInner, but the inner module is the sharded one
};
constexpr Again kAll[] = {
    Again::kNever,  Again::kInside,    Again::kInner, Again::kModule, Again::kModuleLater,
    Again::kAround, Again::kAroundTwo, Again::kBoth,  Again::kNested, Again::kShardedInner};

// A block whose forward may be recomputed.
class Forgetful final : public nn::Layer<Forgetful> {
 public:
  explicit Forgetful(Again again) : again_(again), inner_(kWidth, kWidth, DType::kF64) {
    register_module("inner", inner_);
    if (again == Again::kInner) nn::recompute(inner_);
    if (again == Again::kModule || again == Again::kShardedInner) nn::recompute(*this);
  }
  Variable forward(const Variable& x) {
    ++runs;
    const auto twice = [this](const Variable& h) { return add(inner_(inner_(h)), h); };
    const bool here = again_ == Again::kInside || again_ == Again::kBoth;
    return here ? recompute(twice, x) : twice(x);
  }
  nn::Module& inner() { return inner_; }
  int runs = 0;  ///< number of forwards

 private:
  Again again_;
  Block inner_;
};

class Model final : public nn::Layer<Model> {
 public:
  explicit Model(Again again) : again_(again) {
    for (int i = 0; i < kBlocks; ++i) {
      blocks_.push_back(std::make_unique<Forgetful>(again));
      register_module("block" + std::to_string(i), *blocks_.back());
    }
  }
  Variable forward(Variable x) {
    for (std::size_t i = 0; i < blocks_.size(); i += 2) {
      const auto pair = [this, i](const Variable& h) { return call(i + 1, call(i, h)); };
      const bool here = again_ == Again::kAroundTwo || again_ == Again::kNested;
      x = here ? recompute(pair, x) : pair(x);
    }
    return x;
  }
  void shard(const fsdp::FullyShardOptions& options) {
    for (const auto& block : blocks_) {
      fsdp::fully_shard(again_ == Again::kShardedInner ? block->inner() : *block, options);
      if (again_ == Again::kModuleLater) nn::recompute(*block);
    }
    fsdp::fully_shard(*this, {.mesh = options.mesh});
  }
  /// Number of forwards of a block.
  int runs(std::size_t i) const { return blocks_[i]->runs; }

 private:
  Variable call(std::size_t i, const Variable& x) {
    Forgetful& block = *blocks_[i];
    const bool here =
        again_ == Again::kAround || again_ == Again::kBoth || again_ == Again::kNested;
    return here ? recompute([&block](const Variable& h) { return block(h); }, x) : block(x);
  }

  Again again_;
  std::vector<std::unique_ptr<Forgetful>> blocks_;
};

void train_again(RankTest& t, Again again, const fsdp::ReshardAfterForward& reshard) {
  Model sharded(again), reference(Again::kNever);
  sharded.shard({.mesh = t.world().mesh(), .reshard_after_forward = reshard});
  initialize_both(sharded, reference);
  train_side_by_side(t, over_rows(fmt::format("case {}", static_cast<int>(again)), sharded,
                                  reference, {.width = kWidth, .ranks = data_rank(t.group())}));
}

TESSERA_RANK_TEST_WITH("recompute in sharded models: inside modules and around them", "[fsdp]",
                       {.worlds = {1, 2, 3, 4, 5, 6}}) {
  for (const Again again : kAll) {
    for (const bool reshard : {true, false}) train_again(t, again, reshard);
    if (t.size() % 2 == 0) train_again(t, again, 2);
  }
}

TESSERA_RANK_TEST_WITH("recompute in sharded models with queued compute", "[fsdp]",
                       {.worlds = {2, 3}, .cpu_compute = StreamKind::kQueued}) {
  for (const Again again : kAll) train_again(t, again, true);
}

struct Counted {
  Again again;
  bool reshard;
  int gathers;
  int runs = 0;  ///< number of a block's forwards in each step; 0: not checked
};

/// Gathers and reductions of every block in one step, after the first step, which has no order to
/// follow.
void check_counts(RankTest& t, const Counted& c) {
  Model model(c.again);
  model.shard({.mesh = t.world().mesh(), .reshard_after_forward = c.reshard});
  nn::initialize(model, {.seed = 3});
  const RowBatch batch = {.width = kWidth, .ranks = data_rank(t.group())};
  for (int step = 0; step < 3; ++step) {
    const StepTrace trace =
        StepTrace::of(t, [&] { backward(half_squares(model(batch.mine(step, 0)), batch.rows)); });
    auto gathers = trace.by_group("all_gather"), reduces = trace.by_group("reduce_scatter");
    for (int i = 0; i < kBlocks; ++i) {
      const std::string group =
          "block" + std::to_string(i) + (c.again == Again::kShardedInner ? ".inner" : "");
      t.check(gathers[group] == c.gathers && reduces[group] == 1,
              "case {}, reshard {}, step {}: {} has {} gathers and {} reduces, expected {} and 1",
              static_cast<int>(c.again), c.reshard, step, group, gathers[group], reduces[group],
              c.gathers);
      const int runs = model.runs(static_cast<std::size_t>(i));
      t.check(c.runs == 0 || runs == c.runs * (step + 1), "case {}, step {}: {} ran {} times",
              static_cast<int>(c.again), step, group, runs);
    }
  }
}

TESSERA_RANK_TEST_WITH("recompute: two gathers a group and step, one where kept, one reduce",
                       "[fsdp]", {.worlds = {2, 3, 5}}) {
  for (const Again again : {Again::kNever, Again::kInside, Again::kInner, Again::kModule,
                            Again::kAround, Again::kAroundTwo, Again::kBoth}) {
    check_counts(t, {.again = again, .reshard = true, .gathers = 2});
    check_counts(t, {.again = again, .reshard = false, .gathers = 1});
  }
}

/// Phases of groups and collectives of the second step, in order.
std::string second_step(RankTest& t, Again again, bool reshard) {
  Model model(again);
  model.shard({.mesh = t.world().mesh(), .reshard_after_forward = reshard});
  nn::initialize(model, {.seed = 3});
  const RowBatch batch = {.width = kWidth, .ranks = data_rank(t.group())};
  const auto step = [&] { backward(half_squares(model(batch.mine(0, 0)), batch.rows)); };
  step();
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    step();
  }
  std::string out;
  for (const TraceRecord& record : trace.records()) {
    const auto* event = std::get_if<TraceAnnotation>(&record);
    if (event != nullptr && event->domain == fsdp::kAnnotationDomain)
      out += event->phase + " " + event->name + "; ";
    const auto* collective = std::get_if<CollectiveRecord>(&record);
    if (collective != nullptr) out += collective->op + " " + collective->label + "; ";
  }
  return out;
}

// The order of recompute() and fully_shard() makes no difference.
TESSERA_RANK_TEST_WITH("recompute: a module runs twice, made so before or after it was sharded",
                       "[fsdp]", {.worlds = {2, 3}}) {
  for (const bool reshard : {true, false}) {
    const int gathers = reshard ? 2 : 1;
    check_counts(t, {.again = Again::kNever, .reshard = reshard, .gathers = gathers, .runs = 1});
    const std::string expected = second_step(t, Again::kNever, reshard);
    for (const Again again : {Again::kModule, Again::kModuleLater}) {
      check_counts(t, {.again = again, .reshard = reshard, .gathers = gathers, .runs = 2});
      const std::string events = second_step(t, again, reshard);
      t.check(events == expected, "case {}, reshard {}: \"{}\", expected \"{}\"",
              static_cast<int>(again), reshard, events, expected);
    }
  }
}

// Three forwards each: the first, the second run of the outer recomputation, which keeps the
// values, and that of the inner one, which finds them gathered.
TESSERA_RANK_TEST_WITH("recompute: nested recomputations gather twice too", "[fsdp]",
                       {.worlds = {2, 3}}) {
  check_counts(t, {.again = Again::kNested, .reshard = true, .gathers = 2});
  check_counts(t, {.again = Again::kNested, .reshard = false, .gathers = 1});
}

// The backward of the later use releases the values, recomputed or not: the earlier use gathers
// them again.
TESSERA_RANK_TEST_WITH("recompute: gathers of a module that runs twice in what is recomputed",
                       "[fsdp]", {.worlds = {2, 3}}) {
  check_counts(t, {.again = Again::kShardedInner, .reshard = false, .gathers = 2});
}

TESSERA_RANK_TEST_WITH("recompute: gathered memory stays bounded", "[fsdp]",
                       {.worlds = {2, 3, 5}}) {
  MemoryCounters& memory = t.world().context()->memory();
  for (const Again again : kAll) {
    Model model(again);
    model.shard({.mesh = t.world().mesh(), .reshard_after_forward = true});
    nn::initialize(model, {.seed = 3});
    const std::int64_t bytes = fsdp::of(*fsdp::sharded_modules(model).back()).gathered_bytes();
    const std::int64_t block =
        counted_bytes(default_device().type, static_cast<std::size_t>(bytes));
    const RowBatch batch = {.width = kWidth, .ranks = data_rank(t.group())};
    for (int step = 0; step < 3; ++step) {
      memory.reset_peak();
      backward(half_squares(model(batch.mine(step, 0)), batch.rows));
      const std::int64_t peak = memory.peak()[MemoryCategory::kGathered];
      t.check(block > 0 && peak <= 2 * block, "case {}: {} gathered bytes, {} a block",
              static_cast<int>(again), peak, block);
      t.check(memory.current()[MemoryCategory::kGathered] == 0, "gathered bytes remain");
    }
  }
}

}  // namespace
}  // namespace tessera::testing
