// Arguments and results of modules that are not one Variable: containers, unused results, modules
// that never run.

#include <catch2/catch.hpp>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/training/side_by_side.h"
#include "tessera/tests/support/models/small_models.h"

namespace tessera::testing {
namespace {

constexpr std::int64_t kWidth = 5;

/// The results of two branches, in a user-defined class.
struct Pair {
  Variable left, right;
  template <class F>
  void visit_tensors(F&& f) {
    f(left);
    f(right);
  }
};

// The four ways of passing two Variables.
using List = std::vector<Variable>;
using Tuple = std::tuple<Variable, Variable>;
using Map = std::map<std::string, Variable>;

Variable first(const List& x) { return x.at(0); }
Variable second(const List& x) { return x.at(1); }
Variable first(const Tuple& x) { return std::get<0>(x); }
Variable second(const Tuple& x) { return std::get<1>(x); }
Variable first(const Map& x) { return x.at("left"); }
Variable second(const Map& x) { return x.at("right"); }
Variable first(const Pair& x) { return x.left; }
Variable second(const Pair& x) { return x.right; }

void pack(List& out, const Variable& a, const Variable& b) { out = {a, b}; }
void pack(Tuple& out, const Variable& a, const Variable& b) { out = {a, b}; }
void pack(Map& out, const Variable& a, const Variable& b) { out = {{"left", a}, {"right", b}}; }
void pack(Pair& out, const Variable& a, const Variable& b) { out = {a, b}; }

/// Two layers side by side, with containers as argument and result.
template <class Container>
class Branches final : public nn::Layer<Branches<Container>> {
 public:
  Branches() : left_(kWidth, kWidth, DType::kF64), right_(kWidth, kWidth, DType::kF64) {
    this->register_module("left", left_);
    this->register_module("right", right_);
  }
  Container forward(const Container& x) {
    Container out;
    pack(out, left_(first(x)), right_(second(x)));
    return out;
  }

 private:
  Block left_, right_;
};

/// Three of them in sequence.
template <class Container>
class Row final : public nn::Layer<Row<Container>> {
 public:
  Row() {
    this->register_module("0", a_);
    this->register_module("1", b_);
    this->register_module("2", c_);
  }
  Variable forward(const Variable& x) {
    Container h;
    pack(h, x, mul(x, 0.5));
    h = c_(b_(a_(h)));
    return add(first(h), second(h));
  }
  std::vector<nn::Module*> groups() { return {&a_, &b_, &c_}; }

 private:
  Branches<Container> a_, b_, c_;
};

template <class Container>
void check_container(RankTest& t, const char* name) {
  for (const bool reshard : {true, false}) {
    Row<Container> sharded, reference;
    const fsdp::FullyShardOptions options = {.mesh = t.world().mesh(),
                                             .reshard_after_forward = reshard};
    for (nn::Module* group : sharded.groups()) fsdp::fully_shard(*group, options);
    fsdp::fully_shard(sharded, options);
    initialize_both(sharded, reference);
    train_side_by_side(
        t, over_rows(name, sharded, reference, {.width = kWidth, .ranks = data_rank(t.group())}));
  }
}

TESSERA_RANK_TEST("activations in containers", "[fsdp]") {
  check_container<List>(t, "vector");
  check_container<Tuple>(t, "tuple");
  check_container<Map>(t, "map");
  check_container<Pair>(t, "struct");
}

constexpr std::int64_t kDim = 24;
constexpr int kSteps = 6, kUsedBoth = 3;

/// The product of both results if both exist and are requested, otherwise the first.
Variable double_loss(DoubleLinear& model, const Variable& x, bool both, double factor) {
  const auto [left, right] = model(x);
  return mul(sum(both ? mul(left, right) : square(left)), factor);
}

struct Unused {
  bool module;  ///< true: the second layer never runs; false: its result is unused after some steps
  fsdp::ReshardAfterForward reshard;
};

void train_double_linear(RankTest& t, const Unused& c) {
  const DoubleLinearOptions model_options = {
      .dim = kDim, .use_second = !c.module, .dtype = DType::kF64};
  DoubleLinear sharded(model_options), reference(model_options);
  const fsdp::FullyShardOptions options = {.mesh = t.world().mesh(),
                                           .reshard_after_forward = c.reshard};
  const std::vector<nn::Module*> groups = sharded.groups();
  fsdp::fully_shard(*groups[0], options);
  if (c.module) fsdp::fully_shard(*groups[1], options);
  fsdp::fully_shard(sharded, options);
  initialize_both(sharded, reference);
  const RowBatch batch = {.rows = 9, .width = kDim, .ranks = data_rank(t.group())};
  const auto both = [&c](int step) { return !c.module && step < kUsedBoth; };
  train_side_by_side(
      t, {.what = c.module ? "unused module" : "unused result",
          .sharded = sharded,
          .reference = reference,
          .sharded_loss =
              [&](int step, int pass) {
                return double_loss(sharded, batch.mine(step, pass), both(step), t.size() / 9.0);
              },
          .reference_loss =
              [&](int step, int pass) {
                return double_loss(reference, Variable(batch.all(step, pass)), both(step), 1 / 9.0);
              },
          .steps = kSteps,
          .before_optimizer =
              [&](int step) {
                const bool expected = both(step);
                for (const nn::Parameter& parameter : groups[1]->parameters())
                  t.check(parameter.grad().defined() == expected, "step {}: gradient of {}", step,
                          parameter.name());
              }});
}

std::vector<fsdp::ReshardAfterForward> settings(int ranks) {
  std::vector<fsdp::ReshardAfterForward> out = {true, false};
  if (ranks % 2 == 0) out.emplace_back(2);
  return out;
}

TESSERA_RANK_TEST_WITH("a result that is no more used", "[fsdp]", {.worlds = {1, 2, 3, 4}}) {
  for (const fsdp::ReshardAfterForward& reshard : settings(t.size()))
    train_double_linear(t, {.module = false, .reshard = reshard});
}

TESSERA_RANK_TEST_WITH("a module that never runs", "[fsdp]", {.worlds = {1, 2, 3, 4}}) {
  for (const fsdp::ReshardAfterForward& reshard : settings(t.size()))
    train_double_linear(t, {.module = true, .reshard = reshard});
}

TESSERA_RANK_TEST_WITH("gathered memory is given back where a result goes unused", "[fsdp]",
                       {.worlds = {2, 3}}) {
  DoubleLinear model({.dim = kDim, .dtype = DType::kF64});
  for (nn::Module* group : model.groups()) fsdp::fully_shard(*group, {.mesh = t.world().mesh()});
  fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 3});
  const RowBatch batch = {.rows = 9, .width = kDim, .ranks = data_rank(t.group())};
  for (int step = 0; step < 4; ++step) {
    backward(double_loss(model, batch.mine(step, 0), step < 2, 1));
    const auto left = t.world().context()->memory().current()[MemoryCategory::kGathered];
    t.check(left == 0, "step {}: {} gathered bytes remain", step, left);
  }
}

}  // namespace
}  // namespace tessera::testing
