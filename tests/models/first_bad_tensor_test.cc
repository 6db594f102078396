// Tests that the first tensor with a NaN or an infinity is found: which one, on which rank, and how
// many values.
#include "tessera/models/training/first_bad_tensor.h"

#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <string>

#include "tessera/autograd/ops/ops.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::models {
namespace {

using testing::RankTest;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr std::int64_t kRows = 3;
constexpr int kHidden = 5;

// A layer that can make two of five numbers in each row bad.
class Scaled final : public nn::Layer<Scaled> {
 public:
  bool bad = false;
  Variable forward(const Variable& x) {
    const std::vector<float> factors = {2, bad ? static_cast<float>(kInf) : 2, 2,
                                        bad ? static_cast<float>(kNan) : 2, 2};
    return x * Variable(Tensor::from_vector(factors, {kHidden}));
  }
};

// Counts how often a hook visits it.
struct CountedInput {
  Variable x;
  int* visits;
  template <class F>
  void visit_tensors(F&& f) {
    ++*visits;
    f(x);
  }
};

class Net final : public nn::Layer<Net> {
 public:
  Net() {
    register_module("first", first_);
    register_module("middle", middle_);
    register_module("last", last_);
  }
  Variable forward(const CountedInput& input) { return last_(middle_(first_(input.x))); }
  Scaled& middle() { return middle_; }

 private:
  nn::Linear first_{{.in = 4, .out = kHidden}};
  Scaled middle_;
  nn::Linear last_{{.in = kHidden, .out = 2}};
};

// A network on every rank and its input; sharded or not.
struct Case {
  Case(RankTest& t, bool sharded) : test(t) {
    if (sharded) fsdp::fully_shard(net, {.mesh = t.world().mesh()});
    nn::initialize(net, {.seed = 7, .device = t.world().device()});
  }
  void forward() { net(CountedInput{Variable(input), &visits}); }
  std::string find() {
    return first_bad_tensor(
        net, [this] { forward(); }, test.group());
  }
  void expect(const std::string& text) {
    const std::string found = find();
    test.check(found == text, "found \"{}\", expected \"{}\"", found, text);
  }

  RankTest& test;
  Net net;
  Tensor input = full({kRows, 4}, 0.5);
  int visits = 0;
};

std::string on_rank(int rank, const std::string& text) {
  return text + " on rank " + std::to_string(rank);
}

// The last rank with rows of the first layer's weight; over many ranks, some have none.
int last_with_rows(int ranks, bool sharded) {
  if (!sharded) return ranks - 1;
  const int rows_of_a_rank = (kHidden + ranks - 1) / ranks;
  return (kHidden - 1) / rows_of_a_rank;
}

// Each kind of find on the last rank only, with bad tensors later in the order that it hides.
void check_finds(RankTest& t, bool sharded) {
  const RankTest::NamedCase name(t, sharded ? "sharded" : "whole");
  Case c(t, sharded);
  const int last = last_with_rows(t.size(), sharded);
  const bool is_last = t.rank() == last;
  c.expect("no tensor of this rank");

  nn::Parameter bias = c.net.get_parameter("last.bias");
  bias.set_grad(full_like(bias.local().tensor(), 1));
  c.expect("no tensor of this rank");
  nn::Parameter weight = c.net.get_parameter("first.weight");
  weight.set_grad(full_like(weight.local().tensor(), 1));
  if (is_last) fill_(weight.grad().narrow(0, 0, 1).narrow(1, 2, 1), -kInf);
  c.expect(on_rank(last, "the gradient of \"first.weight\" has 1 value that is not finite"));

  c.net.middle().bad = is_last;
  c.expect(on_rank(last, "the result of \"middle\" (Scaled) has 6 values that are not finite"));

  if (is_last) fill_(c.input.narrow(1, 1, 1), kNan);
  c.expect(on_rank(last, "an argument of the model (Net) has 3 values that are not finite"));

  if (is_last) fill_(weight.local().tensor().narrow(0, 0, 1), kNan);
  c.expect(on_rank(last, "parameter \"first.weight\" has 4 values that are not finite"));
}

}  // namespace

TESSERA_RANK_TEST("the first bad tensor of a whole and of a sharded model", "[first_bad_tensor]") {
  check_finds(t, false);
  check_finds(t, true);
}

TESSERA_RANK_TEST_WITH("the earliest find counts, then the lowest rank", "[first_bad_tensor]",
                       {.worlds = {3}}) {
  Case c(t, true);
  c.net.middle().bad = true;
  c.expect(on_rank(0, "the result of \"middle\" (Scaled) has 6 values that are not finite"));
  // Bad on rank 1 of 3 only, and earlier in the order.
  if (t.rank() == 1) fill_(c.input, kInf);
  c.expect(on_rank(1, "an argument of the model (Net) has 12 values that are not finite"));
}

TESSERA_RANK_TEST_WITH("16-bit numbers are counted, integers are not looked at",
                       "[first_bad_tensor]", {.worlds = {1}}) {
  nn::Embedding embedding({.entries = 3, .dim = 2, .dtype = DType::kBF16});
  nn::initialize(embedding, {.seed = 1});
  const Variable tokens(Tensor::from_vector<std::int64_t>({2, 0}, {2}));
  const auto find = [&] {
    return first_bad_tensor(
        embedding, [&] { embedding(tokens); }, t.group());
  };
  t.check(find() == "no tensor of this rank", "found {}", find());
  fill_(embedding.get_parameter("weight").local().tensor(), -kInf);
  t.check(find() == "parameter \"weight\" has 6 values that are not finite on rank 0", "found {}",
          find());
}

TESSERA_RANK_TEST_WITH("hooks are gone afterwards, also when forward throws", "[first_bad_tensor]",
                       {.worlds = {1}}) {
  Case c(t, false);
  c.forward();
  t.check(c.visits == 0, "{} visits without hooks", c.visits);
  c.find();
  t.check(c.visits > 0, "the hooks saw nothing");
  const auto throwing = [&] {
    c.forward();
    throw_error<InvalidArgument>("test", "forward failed");
  };
  t.check_throws<InvalidArgument>("forward failed",
                                  [&] { first_bad_tensor(c.net, throwing, t.group()); });
  const int before = c.visits;
  c.forward();
  t.check(c.visits == before, "{} visits after the hooks' end", c.visits - before);
  // No graph remains: the search recorded nothing.
  const Variable out = c.net(CountedInput{Variable(c.input), &c.visits});
  t.check(out.requires_grad(), "recording stayed off");
}

}  // namespace tessera::models
