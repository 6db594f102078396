// Tied parameters: one parameter with two uses, in one group.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tessera/autograd/grad_mode.h"
#include "tessera/nn/freeze.h"
#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/training/side_by_side.h"
#include "tessera/tests/fsdp/training/tokens.h"
#include "tessera/tests/fsdp/training/tower.h"
#include "tessera/tests/support/fsdp/kept_values.h"

namespace tessera::testing {
namespace {

struct TiedCase {
  bool recompute = false;
  fsdp::ReshardAfterForward reshard = true;
  bool ends_together = false;  ///< both users of the tied weight are a group of their own
};

void shard_tied(models::Transformer& model, const fsdp::FullyShardOptions& options,
                bool ends_together) {
  if (ends_together) {
    fsdp::fully_shard({&model.get_submodule("tok_embeddings"), &model.get_submodule("output")},
                      options);
  }
  shard_transformer(model, options);
}

void train_tied(RankTest& t, const TiedCase& c) {
  models::ModelArgs args = small_transformer(3);
  models::Transformer reference(args);
  args.checkpoint_activations = c.recompute;
  models::Transformer sharded(args);
  shard_tied(sharded, {.mesh = t.world().mesh(), .reshard_after_forward = c.reshard},
             c.ends_together);
  initialize_both(sharded, reference);
  SideBySide run =
      over_tokens(fmt::format("recompute {}, ends together {}", c.recompute, c.ends_together),
                  sharded, reference, {.ranks = data_rank(t.group())});
  run.steps = 4;
  train_side_by_side(t, run);
  const nn::Parameter in = sharded.get_parameter("tok_embeddings.weight");
  t.check(in.same_as(sharded.get_parameter("output.weight")), "the tie was cut");
}

TESSERA_RANK_TEST("tied weights train like the reference's, recomputed and not", "[fsdp]") {
  for (const bool recompute : {false, true}) {
    for (const bool reshard : {false, true}) {
      for (const bool together : {false, true}) train_tied(t, {recompute, reshard, together});
    }
  }
}

TESSERA_RANK_TEST_WITH("tied weights with queued compute", "[fsdp]",
                       {.worlds = {2, 3}, .cpu_compute = StreamKind::kQueued}) {
  train_tied(t, {.recompute = true, .ends_together = true});
}

TESSERA_RANK_TEST_WITH("a tied weight is gathered and reduced once", "[fsdp]", {.worlds = {2, 3}}) {
  models::Transformer model(small_transformer(2));
  const std::int64_t before = static_cast<std::int64_t>(model.parameters().size());
  shard_transformer(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 3});
  const TokenBatch batch = {.ranks = data_rank(t.group())};
  const StepTrace trace = StepTrace::of(t, [&] {
    backward(token_loss(model(rows_of_rank(batch.tokens(0, 0), batch.ranks)),
                        rows_of_rank(batch.targets(0, 0), batch.ranks), batch.count()));
  });
  // Of the root: token and position embeddings, weight and bias of the norm.
  std::int64_t members = 0;
  for (const CollectiveRecord& record : trace.collectives("reduce_scatter")) {
    members += static_cast<std::int64_t>(record.members.size());
    t.check(record.label != "root" || record.members.size() == 4, "{} members in the root's reduce",
            record.members.size());
  }
  t.check(members == before, "{} parameters reduced, expected {}", members, before);
}

}  // namespace

namespace {

// Frozen parameters, in a group or as whole groups: they are gathered, have no gradient, and are
// not reduced.
struct FrozenCase {
  fsdp::ReshardAfterForward reshard = true;
  bool recompute = false;
  bool before_sharding = false;
};

struct FrozenTowers {
  FrozenTowers(RankTest& t, const FrozenCase& c)
      : sharded({.dim = 5, .recompute = c.recompute}), reference({.dim = 5}) {
    const auto freeze = [](Tower& tower) { nn::freeze(tower, "**.weight"); };
    if (c.before_sharding) freeze(sharded);
    shard_tower(sharded, {.mesh = t.world().mesh(), .reshard_after_forward = c.reshard});
    if (!c.before_sharding) freeze(sharded);
    freeze(reference);
    initialize_both(sharded, reference);
  }
  Tower sharded, reference;
};

std::vector<FrozenCase> frozen_cases(int ranks) {
  std::vector<FrozenCase> out;
  for (const bool recompute : {false, true}) {
    for (const bool before : {false, true}) {
      for (const bool reshard : {false, true}) out.push_back({reshard, recompute, before});
      if (ranks % 2 == 0) out.push_back({2, recompute, before});
    }
  }
  return out;
}

TESSERA_RANK_TEST_WITH("weights frozen, biases trained", "[fsdp]", {.worlds = {1, 2, 3, 4}}) {
  for (const FrozenCase& c : frozen_cases(t.size())) {
    FrozenTowers towers(t, c);
    train_side_by_side(
        t,
        over_rows(fmt::format("recompute {}, before {}", c.recompute, c.before_sharding),
                  towers.sharded, towers.reference, {.width = 5, .ranks = data_rank(t.group())}));
  }
}

/// Padded rows per rank of a parameter of n rows.
std::int64_t padded(std::int64_t n, int ranks) { return (n + ranks - 1) / ranks; }

// With dim 5 the biases are 15, 5; 20, 5; 15, 5.
TESSERA_RANK_TEST_WITH("only what is trained is reduced", "[fsdp]", {.worlds = {2, 3, 5}}) {
  for (const FrozenCase& c : frozen_cases(t.size())) {
    FrozenTowers towers(t, c);
    const RowBatch batch = {.width = 5, .ranks = data_rank(t.group())};
    const StepTrace trace = StepTrace::of(
        t, [&] { backward(half_squares(towers.sharded(batch.mine(0, 0)), batch.rows)); });
    const auto reduces = trace.collectives("reduce_scatter");
    t.check(reduces.size() == 3, "{} reduces, expected those of 3 groups", reduces.size());
    for (const CollectiveRecord& record : reduces) {
      const std::int64_t wide = record.label == "mlp1" ? 20 : 15;
      std::int64_t elements = 0;
      for (const CollectiveMember& member : record.members) elements += member.elements_out;
      const std::int64_t expected = padded(wide, t.size()) + padded(5, t.size());
      t.check(elements == expected, "{} reduces {} elements to this rank, expected {}",
              record.label, elements, expected);
    }
  }
}

// Each group's gradients are reduced when its own backward is done, not at the end of the pass.
TESSERA_RANK_TEST_WITH("groups with frozen weights are reduced one after the other", "[fsdp]",
                       {.worlds = {2, 3}}) {
  for (const bool recompute : {false, true}) {
    FrozenTowers towers(t, {.recompute = recompute});
    fsdp::of(towers.sharded)
        .set_prefetch({.forward = 0, .backward = fsdp::BackwardPrefetch::kNone});
    const RowBatch batch = {.width = 5, .ranks = data_rank(t.group())};
    const Variable loss = half_squares(towers.sharded(batch.mine(0, 0)), batch.rows);
    std::vector<std::string> events = StepTrace::of(t, [&] { backward(loss); }).events();
    std::erase_if(events, [](const std::string& event) { return event.ends_with(" root"); });
    const std::vector<std::string> expected = {"unshard mlp2", "post_backward mlp2",
                                               "unshard mlp1", "post_backward mlp1",
                                               "unshard mlp0", "post_backward mlp0"};
    t.check(events == expected, "recompute {}: {}", recompute, text_of(events));
  }
}

/// Six linear layers. Each is a group and, because nothing above is sharded, a root.
void fill_six(nn::Sequential& model) {
  for (const auto& [in, out] :
       {std::pair<std::int64_t, std::int64_t>{5, 7}, {7, 3}, {3, 9}, {9, 5}, {5, 5}, {5, 4}}) {
    model.add<nn::Linear>({.in = in, .out = out, .dtype = DType::kF64});
    model.add<nn::GELU>();
  }
}
void set_trained(nn::Sequential& model, const std::vector<int>& layers, bool value) {
  for (const int layer : layers) {
    for (nn::Parameter& parameter : model.at(2 * layer).parameters())
      parameter.set_requires_grad(value);
  }
}

TESSERA_RANK_TEST("every other group frozen, without a sharded root, and thawed at last",
                  "[fsdp]") {
  for (const bool thaw : {false, true}) {
    nn::Sequential sharded, reference;
    for (nn::Sequential* model : {&sharded, &reference}) {
      fill_six(*model);
      set_trained(*model, {0, 2, 4}, false);
    }
    for (int layer = 0; layer < 6; ++layer)
      fsdp::fully_shard(sharded.at(2 * layer), {.mesh = t.world().mesh()});
    initialize_both(sharded, reference);
    const RowBatch batch = {.width = 5, .ranks = data_rank(t.group())};
    SideBySide run = over_rows(fmt::format("thaw {}", thaw), sharded, reference, batch);
    run.steps = 5;
    int step = 0;
    run.before_pass = [&](int) {
      if (step == 2) {
        const NoGradGuard no_grad;
        const Tensor x = batch.all(77, 0);
        t.check_close(sharded(Variable(x)).tensor(), reference(Variable(x)).tensor(),
                      {1e-12, 1e-12}, "evaluation");
      }
      if (thaw && step == run.steps - 1) {
        for (nn::Sequential* model : {&sharded, &reference}) set_trained(*model, {0, 2, 4}, true);
      }
      ++step;
    };
    train_side_by_side(t, run);
  }
}

TESSERA_RANK_TEST_WITH("a group that is frozen whole is not reduced, and gathered for its input",
                       "[fsdp]", {.worlds = {2, 3}}) {
  Chain model({}), reference({});
  shard_chain(model, {.mesh = t.world().mesh()});
  for (Chain* chain : {&model, &reference}) nn::freeze(*chain, "block1.**");
  initialize_both(model, reference);
  const RowBatch batch = {.width = 7, .ranks = data_rank(t.group())};
  const auto step = [&] { backward(half_squares(model(batch.mine(0, 0)), batch.rows, t.size())); };
  const StepTrace trace = StepTrace::of(t, step);
  backward(half_squares(reference(Variable(batch.all(0, 0))), batch.rows));
  const std::string difference = first_difference(model, reference, 1e-12);
  t.check(difference.empty(), "{}", difference);
  t.check(trace.by_group("reduce_scatter").count("block1") == 0, "a frozen group was reduced");
  t.check(trace.by_group("all_gather")["block1"] == 2, "{} gathers of the frozen group",
          trace.by_group("all_gather")["block1"]);
}

// Nothing before it is trained: backward ends after it, and gathers nothing before it.
TESSERA_RANK_TEST_WITH("frozen groups that backward does not reach are gathered once", "[fsdp]",
                       {.worlds = {2, 3}}) {
  for (const bool ahead : {false, true}) {
    Chain model({}), reference({});
    shard_chain(model, {.mesh = t.world().mesh()});
    for (Chain* chain : {&model, &reference}) {
      nn::freeze(*chain, "block0.**");
      nn::freeze(*chain, "block1.**");
    }
    initialize_both(model, reference);
    fsdp::of(model).set_prefetch(prefetch_of(ahead, ahead));
    const RowBatch batch = {.width = 7, .ranks = data_rank(t.group())};
    const auto step = [&] {
      backward(half_squares(model(batch.mine(0, 0)), batch.rows, t.size()));
    };
    auto gathers = StepTrace::of(t, step).by_group("all_gather");
    t.check(gathers["block0"] == 1 && gathers["block1"] == 1, "ahead {}: {} and {} gathers", ahead,
            gathers["block0"], gathers["block1"]);
    backward(half_squares(reference(Variable(batch.all(0, 0))), batch.rows));
    const std::string difference = first_difference(model, reference, 1e-12);
    t.check(difference.empty(), "ahead {}: {}", ahead, difference);
  }
}

std::int64_t gathered_bytes(RankTest& t) {
  return t.world().context()->memory().current()[MemoryCategory::kGathered];
}

struct TeacherCase {
  const char* name;
  fsdp::FullyShardOptions options = {.mesh = {}};
  bool recompute = false;
};

std::vector<TeacherCase> teacher_cases(RankTest& t) {
  const distributed::DeviceMesh mesh = t.world().mesh();
  std::vector<TeacherCase> out = {
      {"by default", {.mesh = mesh}},
      {"released", {.mesh = mesh, .reshard_after_forward = true}},
      {"cast", {.mesh = mesh, .mixed_precision = {.param_dtype = DType::kF32}}}};
  if (t.size() != 4) return out;
  const distributed::DeviceMesh hybrid({"replicate", "shard"}, {2, 2}, t.world().group(),
                                       t.world().device());
  out.push_back({"a half kept", {.mesh = mesh, .reshard_after_forward = 2}});
  out.push_back(
      {"a half kept, recomputed", {.mesh = mesh, .reshard_after_forward = 2}, /*recompute=*/true});
  out.push_back({"cut twice", {.mesh = hybrid, .shard_optimizer_over_replicas = true}});
  return out;
}

// A teacher model: frozen, its own root, and run with gradients enabled. No backward follows that
// would release the values that forward gathered.
TESSERA_RANK_TEST_WITH("a frozen model keeps nothing gathered, though gradients are enabled",
                       "[fsdp]", {.worlds = {1, 2, 3, 4}}) {
  for (const TeacherCase& c : teacher_cases(t)) {
    Tower teacher({.dim = 5, .recompute = c.recompute}), plain({.dim = 5});
    for (Tower* tower : {&teacher, &plain}) nn::freeze(*tower, "**");
    // Inside a recomputed function, where results do not show yet whether they require gradients.
    for (std::size_t i = 0; c.recompute && i < 3; ++i)
      fsdp::fully_shard(teacher.mlp(i).in_proj(), c.options);
    shard_tower(teacher, c.options);
    initialize_both(teacher, plain);
    const double tolerance = c.options.mixed_precision.param_dtype ? 1e-5 : 1e-12;
    const RowBatch batch = {.width = 5, .ranks = data_rank(t.group())};
    for (int step = 0; step < 3; ++step) {
      const Variable y = teacher(batch.mine(step, 0));
      t.check(!y.requires_grad(), "{}: the result needs a gradient", c.name);
      t.check(gathered_bytes(t) == kept_value_bytes(teacher),
              "{}, step {}: {} gathered bytes remain", c.name, step, gathered_bytes(t));
      t.check(c.recompute || fsdp::of(teacher).copies().kept_part == 0,
              "{}, step {}: parts were kept", c.name, step);
      const Variable all = plain(Variable(batch.all(step, 0)));
      const Tensor expected = rows_of_rank(all.tensor(), batch.ranks);
      t.check(relative_error(cast(y.tensor(), DType::kF64), expected, expected) <= tolerance,
              "{}, step {}: another result", c.name, step);
    }
  }
}

TESSERA_RANK_TEST_WITH("a student learns from a frozen teacher", "[fsdp]", {.worlds = {1, 2, 3}}) {
  Chain teacher({}), plain_teacher({}), student({}), reference({});
  for (Chain* chain : {&teacher, &plain_teacher}) nn::freeze(*chain, "**");
  for (Chain* chain : {&teacher, &student}) shard_chain(*chain, {.mesh = t.world().mesh()});
  initialize_both(teacher, plain_teacher, 7);
  initialize_both(student, reference);
  const RowBatch batch = {.width = 7, .ranks = data_rank(t.group())};
  train_side_by_side(
      t, {.what = "student",
          .sharded = student,
          .reference = reference,
          .sharded_loss =
              [&](int step, int pass) {
                const Variable x = batch.mine(step, pass), wanted = teacher(x);
                t.check(gathered_bytes(t) == 0, "step {}: {} gathered bytes of the teacher remain",
                        step, gathered_bytes(t));
                return half_squares(student(x) - wanted, batch.rows, batch.ranks.size);
              },
          .reference_loss =
              [&](int step, int pass) {
                const Variable x(batch.all(step, pass));
                return half_squares(reference(x) - plain_teacher(x), batch.rows);
              }});
}

/// Keeps its loss in a member, so hooks see no result. The backward of the second layer reads its
/// weight.
class Secretive final : public nn::Layer<Secretive> {
 public:
  Secretive()
      : first_({.in = 5, .out = 4, .dtype = DType::kF64}),
        second_({.in = 4, .out = 3, .dtype = DType::kF64}) {
    register_module("first", first_);
    register_module("second", second_);
  }
  void forward(const Variable& x) { loss_ = sum(square(second_(first_(x)))); }
  Variable take_loss() { return std::exchange(loss_, {}); }

 private:
  nn::Linear first_, second_;
  Variable loss_;
};

TESSERA_RANK_TEST("a loss that is no result of forward: by whether the root is trained", "[fsdp]") {
  for (const bool frozen : {false, true}) {
    Secretive model, reference;
    fsdp::fully_shard(model, {.mesh = t.world().mesh()});
    initialize_both(model, reference);
    const RowBatch batch = {.width = 5, .ranks = {}};
    for (Secretive* each : {&model, &reference}) {
      if (frozen) nn::freeze(*each, "**");
      (*each)(batch.mine(0, 0));
      const Variable loss = each->take_loss();
      if (!frozen) backward(loss);
    }
    t.check(gathered_bytes(t) == 0, "frozen {}: {} gathered bytes remain", frozen,
            gathered_bytes(t));
    const std::string difference = first_difference(model, reference, 1e-12);
    t.check(difference.empty(), "frozen {}: {}", frozen, difference);
  }
}

/// Two modules of one group, one of which never runs.
class HalfUsed final : public nn::Layer<HalfUsed> {
 public:
  HalfUsed() : used_(5, 7, DType::kF64), unused_(5, 7, DType::kF64) {
    register_module("used", used_);
    register_module("unused", unused_);
  }
  Variable forward(const Variable& x) { return used_(x); }
  std::vector<nn::Module*> both() { return {&used_, &unused_}; }

 private:
  Block used_, unused_;
};

TESSERA_RANK_TEST("a frozen group of several modules that did not all run keeps nothing",
                  "[fsdp]") {
  HalfUsed model;
  nn::freeze(model, "**");
  fsdp::fully_shard(model.both(), {.mesh = t.world().mesh()});
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 3});
  for (int step = 0; step < 2; ++step) {
    model(Variable(random_rows(2, 5, DType::kF64, 1)));
    t.check(gathered_bytes(t) == 0, "step {}: {} gathered bytes remain", step, gathered_bytes(t));
  }
}

TESSERA_RANK_TEST("an input's gradient through a model that is frozen whole", "[fsdp]") {
  Chain model({}), reference({});
  shard_chain(model, {.mesh = t.world().mesh()});
  for (Chain* chain : {&model, &reference}) nn::freeze(*chain, "**");
  initialize_both(model, reference);
  const RowBatch batch = {.width = 7, .ranks = data_rank(t.group())};
  for (int step = 0; step < 2; ++step) {
    const Variable mine(rows_of_rank(batch.all(step, 0), batch.ranks), true);
    const Variable all(batch.all(step, 0), true);
    backward(half_squares(model(mine), batch.rows));
    backward(half_squares(reference(all), batch.rows));
    t.check_close(mine.grad(), rows_of_rank(all.grad(), batch.ranks), {1e-12, 1e-12}, "input");
    for (const nn::Parameter& parameter : model.parameters())
      t.check(!parameter.grad().defined(), "{} is frozen and has a gradient", parameter.name());
    t.check(gathered_bytes(t) == 0, "{} gathered bytes remain", gathered_bytes(t));
  }
}

/// A layer, a frozen one, and a third that runs three times; in between, the frozen one runs
/// without a graph.
class Mixed final : public nn::Layer<Mixed> {
 public:
  Mixed() : a_(5, 5, DType::kF64), frozen_(5, 5, DType::kF64), b_(5, 5, DType::kF64) {
    register_module("a", a_);
    register_module("frozen", frozen_);
    register_module("b", b_);
    nn::freeze(frozen_, "**");
  }
  Variable forward(const Variable& x) {
    Variable h = frozen_(a_(x));
    for (int i = 0; i < 3; ++i) {
      Variable fixed;
      {
        const NoGradGuard no_grad;
        fixed = frozen_(h);
      }
      h = add(b_(h), mul(fixed, 0.1));
    }
    return h;
  }
  std::vector<nn::Module*> groups() { return {&a_, &frozen_, &b_}; }

 private:
  Block a_, frozen_, b_;
};

TESSERA_RANK_TEST_WITH("a frozen group with and without a graph beside one that runs three times",
                       "[fsdp]", {.worlds = {1, 2, 3, 4}}) {
  for (const int keep : {0, 1, 2}) {
    if (keep == 2 && t.size() % 2 != 0) continue;
    Mixed sharded, reference;
    fsdp::FullyShardOptions options = {.mesh = t.world().mesh(),
                                       .reshard_after_forward = keep == 1};
    if (keep == 2) options.reshard_after_forward = 2;
    for (nn::Module* group : sharded.groups()) fsdp::fully_shard(*group, options);
    fsdp::fully_shard(sharded, options);
    initialize_both(sharded, reference);
    SideBySide run = over_rows(fmt::format("setting {}", keep), sharded, reference,
                               {.width = 5, .ranks = data_rank(t.group())});
    run.steps = 5;
    train_side_by_side(t, run);
  }
}

}  // namespace
}  // namespace tessera::testing
