// Graphs that are not a plain chain: modules used twice, branches without a gradient, frozen
// parameters, several forwards.

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "tessera/distributed/collective_counts.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

constexpr std::int64_t kWidth = 5;

/// Three blocks of equal width; the subclasses below use them in different ways.
template <class Derived>
class Three : public nn::Layer<Derived> {
 public:
  Three()
      : a_(kWidth, kWidth, DType::kF64),
        b_(kWidth, kWidth, DType::kF64),
        c_(kWidth, kWidth, DType::kF64) {
    this->register_module("a", a_);
    this->register_module("b", b_);
    this->register_module("c", c_);
  }
  void shard(const fsdp::FullyShardOptions& options) {
    for (Block* block : {&a_, &b_, &c_}) fsdp::fully_shard(*block, options);
    fsdp::fully_shard(*this, {.mesh = options.mesh});
  }

 protected:
  Block a_, b_, c_;
};

struct Twice final : Three<Twice> {
  Variable forward(const Variable& x) { return b_(a_(c_(a_(b_(x))))); }
};
struct Branches final : Three<Branches> {
  Variable forward(const Variable& x) {
    const Variable h = a_(x);
    return add(b_(h), c_(h));
  }
};
struct Unused final : Three<Unused> {
  Variable forward(const Variable& x) {
    const Variable h = a_(x);
    c_(h);
    return b_(h);
  }
};
struct NeverRun final : Three<NeverRun> {
  Variable forward(const Variable& x) { return b_(a_(x)); }
};
struct Tuple final : Three<Tuple> {
  Variable forward(const Variable& x) {
    const auto [left, right] =
        this->hooked([this](const Variable& v) { return std::pair(a_(v), b_(v)); }, x);
    return mul(left, c_(right));
  }
};

template <class Model>
std::string train_and_compare(RankTest& t, Model& sharded, Model& reference) {
  nn::initialize(sharded, {.seed = 9});
  nn::initialize(reference, {.seed = 9});
  nn::optim::SGD sharded_sgd(sharded.parameters(), kSgd);
  nn::optim::SGD reference_sgd(reference.parameters(), kSgd);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Tensor x = random_rows(7, kWidth, DType::kF64, step);
    backward(sharded_loss(sharded(Variable(my_rows(x, t.world()))), t.world()));
    backward(plain_loss(reference(Variable(x))));
    const std::string difference =
        compare_with_reference(sharded, reference, 1e-13, /*gradients=*/true);
    if (!difference.empty()) return difference;
    sharded_sgd.step();
    reference_sgd.step();
    sharded_sgd.zero_grad();
    reference_sgd.zero_grad();
  }
  return compare_with_reference(sharded, reference, 1e-13);
}

template <class Model>
void check_parity(RankTest& t, const char* name) {
  for (const bool reshard : {true, false}) {
    Model sharded;
    sharded.shard({.mesh = t.world().mesh(), .reshard_after_forward = reshard});
    Model reference;
    const std::string difference = train_and_compare(t, sharded, reference);
    t.check(difference.empty(), "{} (reshard {}): {}", name, reshard, difference);
  }
}

TESSERA_RANK_TEST(
    "fsdp: graphs with reuse, branches, unused and skipped modules train like the reference",
    "[fsdp]") {
  check_parity<Twice>(t, "twice");
  check_parity<Branches>(t, "branches");
  check_parity<Unused>(t, "unused");
  check_parity<NeverRun>(t, "never run");
  check_parity<Tuple>(t, "tuple");
}

TESSERA_RANK_TEST("fsdp: a module used twice is reduced once", "[fsdp]") {
  Twice model;
  model.shard({.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    backward(sharded_loss(model(Variable(random_rows(3, kWidth, DType::kF64, 1))), t.world()));
  }
  const std::int64_t expected = t.size() == 1 ? 0 : 3;
  const distributed::CollectiveCounts counts(trace);
  const std::int64_t reduces = counts.of({.op = "reduce_scatter", .alone = true}).collectives;
  t.check(reduces == expected, "{} reduces instead of {}", reduces, expected);
}

TESSERA_RANK_TEST("fsdp: frozen parameters get no gradient and are not reduced; thawed ones do",
                  "[fsdp]") {
  Branches sharded;
  sharded.shard({.mesh = t.world().mesh()});
  Branches reference;
  for (Branches* model : {&sharded, &reference}) {
    for (nn::NamedParameter& named : model->named_parameters()) {
      named.parameter.set_requires_grad(named.name != "a.linear.bias" && named.name.front() != 'b');
    }
  }
  std::string difference = train_and_compare(t, sharded, reference);
  t.check(difference.empty(), "frozen: {}", difference);
  for (const nn::NamedParameter& named : sharded.named_parameters()) {
    const bool frozen = named.name == "a.linear.bias" || named.name.front() == 'b';
    t.check(!frozen || !named.parameter.grad().defined(), "{} is frozen and has a gradient",
            named.name);
  }
  for (Branches* model : {&sharded, &reference}) {
    for (nn::NamedParameter& named : model->named_parameters())
      named.parameter.set_requires_grad(true);
  }
  difference = train_and_compare(t, sharded, reference);
  t.check(difference.empty(), "thawed: {}", difference);
}

TESSERA_RANK_TEST("fsdp: two forwards before one backward, and two backwards over two forwards",
                  "[fsdp]") {
  for (const bool together : {true, false}) {
    Branches sharded;
    sharded.shard({.mesh = t.world().mesh()});
    nn::initialize(sharded, {.seed = 2});
    Branches reference;
    nn::initialize(reference, {.seed = 2});
    const auto run = [together](const auto& loss_of) {
      const Variable first = loss_of(1);
      const Variable second = loss_of(2);
      if (together) return backward(add(first, second));
      backward(second);
      backward(first);
    };
    run([&](std::uint64_t seed) {
      return sharded_loss(
          sharded(Variable(my_rows(random_rows(6, kWidth, DType::kF64, seed), t.world()))),
          t.world());
    });
    run([&](std::uint64_t seed) {
      return plain_loss(reference(Variable(random_rows(6, kWidth, DType::kF64, seed))));
    });
    const std::string difference =
        compare_with_reference(sharded, reference, 1e-13, /*gradients=*/true);
    t.check(difference.empty(), "together {}: {}", together, difference);
  }
}

TESSERA_RANK_TEST("fsdp: a parameter also used outside its module gets its whole gradient",
                  "[fsdp]") {
  Branches sharded;
  sharded.shard({.mesh = t.world().mesh()});
  nn::initialize(sharded, {.seed = 2});
  Branches reference;
  nn::initialize(reference, {.seed = 2});
  // An L2 penalty on local(): each rank adds its own rows' part, which is not averaged, so the
  // reference's penalty has the same factor.
  const auto penalty = [](const nn::Module& model) {
    Variable total;
    for (const nn::NamedParameter& named : model.named_parameters()) {
      const Variable term = mul(sum(square(named.parameter.local())), 0.1);
      total = total.defined() ? add(total, term) : term;
    }
    return total;
  };
  const Tensor x = random_rows(6, kWidth, DType::kF64, 4);
  backward(
      add(sharded_loss(sharded(Variable(my_rows(x, t.world()))), t.world()), penalty(sharded)));
  backward(add(plain_loss(reference(Variable(x))), penalty(reference)));
  const std::string difference =
      compare_with_reference(sharded, reference, 1e-13, /*gradients=*/true);
  t.check(difference.empty(), "{}", difference);
}

}  // namespace
}  // namespace tessera::testing
