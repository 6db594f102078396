// Training with one group and with many, for every reshard_after_forward and every way of
// gathering, equals training the unsharded reference on the whole batch.

#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "tessera/autograd/grad_mode.h"
#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/training/tokens.h"

namespace tessera::testing {
namespace {

using fsdp::ReshardAfterForward;

struct Setting {
  const char* name;
  ReshardAfterForward reshard;
};
/// The legal settings for `ranks`: a number of ranks that keep a part must divide them.
std::vector<Setting> settings(int ranks) {
  std::vector<Setting> out = {{"unset", {}}, {"released", true}, {"kept", false}};
  if (ranks % 2 == 0) out.push_back({"halves kept", 2});
  if (ranks % 3 == 0) out.push_back({"thirds kept", 3});
  return out;
}

struct Widths {
  std::int64_t in, hidden, out;
};
void fill(nn::Sequential& model, const Widths& w) {
  model.add<nn::Linear>({.in = w.in, .out = w.hidden, .dtype = DType::kF64});
  model.add<nn::GELU>();
  model.add<nn::Linear>({.in = w.hidden, .out = w.out, .dtype = DType::kF64});
}

void train_one_group(RankTest& t, const Widths& w, const fsdp::ShardPlacement& placement = {}) {
  nn::Sequential sharded, reference;
  fill(sharded, w);
  fill(reference, w);
  fsdp::fully_shard(sharded, {.mesh = t.world().mesh(), .shard_placement = placement});
  initialize_both(sharded, reference);
  SideBySide run = over_rows(fmt::format("{}-{}-{}", w.in, w.hidden, w.out), sharded, reference,
                             {.width = w.in, .ranks = data_rank(t.group())});
  run.steps = 10;
  train_side_by_side(t, run);
}

TESSERA_RANK_TEST_WITH("training with one group of odd shapes", "[fsdp]",
                       {.worlds = {1, 2, 3, 5, 8}}) {
  for (const Widths& w : {Widths{15, 16, 8}, {15, 7, 3}, {17, 16, 8}}) train_one_group(t, w);
}

TESSERA_RANK_TEST_WITH("training with parameters cut along their largest dim", "[fsdp]",
                       {.worlds = {1, 2, 4}}) {
  const fsdp::ShardPlacement largest = [](const nn::Parameter& parameter) {
    const Shape& shape = parameter.shape();
    const auto longest = std::max_element(shape.begin(), shape.end());
    return distributed::Shard{static_cast<int>(longest - shape.begin())};
  };
  for (const Widths& w : {Widths{16, 32, 8}, {32, 16, 8}, {8, 12, 4}})
    train_one_group(t, w, largest);
}

/// How the values of the next step are gathered.
enum class Gathering { kByForward, kByHand, kByHandAhead };

void train_transformer(RankTest& t, const Setting& setting, Gathering gathering) {
  models::Transformer sharded(small_transformer(3)), reference(small_transformer(3));
  shard_transformer(sharded, {.mesh = t.world().mesh(), .reshard_after_forward = setting.reshard});
  initialize_both(sharded, reference);
  SideBySide run = over_tokens(fmt::format("{}, {}", setting.name, static_cast<int>(gathering)),
                               sharded, reference, {.ranks = data_rank(t.group())});
  if (gathering != Gathering::kByForward) {
    run.before_pass = [&](int) {
      for (nn::Module* module : fsdp::sharded_modules(sharded))
        fsdp::of(*module).unshard({.async = gathering == Gathering::kByHandAhead});
    };
  }
  train_side_by_side(t, run);
}

TESSERA_RANK_TEST_WITH("training a Transformer of several groups", "[fsdp]",
                       {.worlds = {1, 2, 3, 4}}) {
  for (const Setting& setting : settings(t.size())) {
    for (const Gathering how : {Gathering::kByForward, Gathering::kByHand, Gathering::kByHandAhead})
      train_transformer(t, setting, how);
  }
}

TESSERA_RANK_TEST_WITH("training a Transformer of several groups with queued compute", "[fsdp]",
                       {.worlds = {2, 3}, .cpu_compute = StreamKind::kQueued}) {
  for (const Setting& setting : settings(t.size()))
    train_transformer(t, setting, Gathering::kByHandAhead);
}

/// Eight blocks in sequence.
ChainOptions eight_blocks() { return {.widths = {5, 7, 3, 9, 5, 5, 8, 4, 6}, .classes = 0}; }

/// Sets lists that prefetch the next two blocks of `order`.
void prefetch_two(const std::vector<nn::Module*>& order, bool backward) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t end = std::min(order.size(), i + 3);
    const std::vector<nn::Module*> next(order.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                        order.begin() + static_cast<std::ptrdiff_t>(end));
    const fsdp::Handle handle = fsdp::of(*order[i]);
    if (backward) {
      handle.set_modules_to_backward_prefetch(next);
    } else {
      handle.set_modules_to_forward_prefetch(next);
    }
  }
}

void train_with_lists(RankTest& t, bool forward, bool backward) {
  Chain sharded(eight_blocks()), reference(eight_blocks());
  shard_chain(sharded, {.mesh = t.world().mesh()});
  std::vector<nn::Module*> blocks;
  for (const auto& block : sharded.blocks()) blocks.push_back(block.get());
  if (forward) prefetch_two(blocks, false);
  std::reverse(blocks.begin(), blocks.end());
  if (backward) prefetch_two(blocks, true);
  initialize_both(sharded, reference);
  SideBySide run = over_rows(fmt::format("lists forward {}, backward {}", forward, backward),
                             sharded, reference, {.width = 5, .ranks = data_rank(t.group())});
  run.steps = 4;
  train_side_by_side(t, run);
}

TESSERA_RANK_TEST("training with the next two gathered ahead by lists", "[fsdp]") {
  train_with_lists(t, true, false);
  train_with_lists(t, false, true);
  train_with_lists(t, true, true);
}

TESSERA_RANK_TEST_WITH("training with lists of gathers and queued compute", "[fsdp]",
                       {.worlds = {2, 3}, .cpu_compute = StreamKind::kQueued}) {
  train_with_lists(t, true, true);
}

/// One inner block that runs twice, inside and after another one.
class Again final : public nn::Layer<Again> {
 public:
  Again() : inner_(5, 5, DType::kF64), outer_(5, 5, DType::kF64) {
    register_module("inner", inner_);
    register_module("outer", outer_);
  }
  Variable forward(const Variable& x) { return inner_(outer_(inner_(x))); }
  nn::Module& inner() { return inner_; }

 private:
  Block inner_, outer_;
};

TESSERA_RANK_TEST_WITH("training a module that runs twice in a forward", "[fsdp]",
                       {.worlds = {1, 2, 3, 4}}) {
  for (const Setting& setting : settings(t.size())) {
    Again sharded, reference;
    const fsdp::FullyShardOptions options = {.mesh = t.world().mesh(),
                                             .reshard_after_forward = setting.reshard};
    fsdp::fully_shard(sharded.inner(), options);
    fsdp::fully_shard(sharded, options);
    initialize_both(sharded, reference);
    SideBySide run =
        over_rows(setting.name, sharded, reference, {.width = 5, .ranks = data_rank(t.group())});
    run.steps = 10;
    train_side_by_side(t, run);
  }
}

TESSERA_RANK_TEST_WITH("evaluation in the middle of training changes nothing", "[fsdp]",
                       {.worlds = {1, 2, 3}}) {
  Chain sharded({}), reference({});
  shard_chain(sharded, {.mesh = t.world().mesh()});
  initialize_both(sharded, reference);
  const RowBatch batch = {.width = 7, .ranks = data_rank(t.group())};
  SideBySide run = over_rows("with evaluation", sharded, reference, batch);
  run.before_pass = [&](int) {
    const NoGradGuard no_grad;
    const Tensor x = batch.all(99, 0);
    const Tensor seen = sharded(Variable(x)).tensor(), expected = reference(Variable(x)).tensor();
    t.check(relative_error(seen, expected, expected) <= 1e-12, "evaluation differs");
  };
  train_side_by_side(t, run);
}

}  // namespace
}  // namespace tessera::testing
