// The order in which nodes run.
#include "tessera/autograd/engine.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

TEST_CASE("order: the latest recorded of what is ready runs first, leaves before all") {
  Log log;
  const Variable a = scalar_leaf(2.0);
  const Variable b = scalar_leaf(3.0);
  log_accumulation(a, "leaf a", log);
  log_accumulation(b, "leaf b", log);
  const Variable p = passing("p", a, log);
  const Variable q = passing("q", b, log);
  const Variable r = passing("r", p, log);
  const Variable s = passing("s", q, log);
  const Variable t = passing("t", a, log);
  backward(add(add(s, r), t));
  CHECK(log == Log{"t", "s", "r", "q", "leaf b", "p", "leaf a"});
}

TEST_CASE("order: a node on a module's inputs runs after all leaves used inside") {
  Log log;
  const Variable w = leaf({3, 3});
  const Variable bias = leaf({3});
  const Variable twice = leaf({3, 3});
  const Variable scale = scalar_leaf(1.5);
  log_accumulation(w, "w", log);
  log_accumulation(bias, "bias", log);
  log_accumulation(twice, "twice", log);
  log_accumulation(scale, "scale", log);
  Log below;
  const Variable x = passing("before", leaf({2, 3}), log);
  const Variable skip = leaf({2, 3});

  std::vector<Variable> inputs = passing_all("inputs", {x, skip}, log);
  // A chain, a branch, a leaf used twice, and a part that depends on no input at all.
  const Variable alone = mul(square(scale), scale);
  Variable h = tanh(linear(inputs[0], w, bias));
  h = add(matmul(h, twice), matmul(inputs[1], twice));
  h = mul(h, alone);
  // Used after the module, and later than its output.
  const Variable late = sum(mul(alone, 2.0));

  backward(add(sum(h), late));
  REQUIRE(log.size() == 6);
  CHECK(log[4] == "inputs");
  CHECK(log[5] == "before");
}

TEST_CASE("order: a leaf comes first even when another graph used it before") {
  Log log;
  const Variable w = leaf({3, 3});
  log_accumulation(w, "w", log);
  // Keeps the leaf's node, which is thus older than everything below.
  const Variable earlier = mul(w, 2.0);
  Variable h = passing_all("inputs", {leaf({2, 3})}, log)[0];
  h = matmul(h, w);
  backward(sum(h));
  CHECK(log == Log{"w", "inputs"});
}

TEST_CASE("order: nodes of nested and of following modules close in turn") {
  Log log;
  const Variable w1 = leaf({3, 3});
  const Variable w2 = leaf({3, 3});
  const Variable w3 = leaf({3, 3});
  log_accumulation(w1, "w1", log);
  log_accumulation(w2, "w2", log);
  log_accumulation(w3, "w3", log);
  Variable h = passing_all("outer", {leaf({2, 3})}, log)[0];
  h = matmul(h, w1);
  h = passing_all("inner", {h}, log)[0];
  h = matmul(h, w2);
  h = passing_all("second", {h}, log)[0];
  h = matmul(h, w3);
  backward(sum(h));
  CHECK(log == Log{"w3", "second", "w2", "inner", "w1", "outer"});
}

TEST_CASE("order: a node runs even when no output received a gradient") {
  Log log;
  const Variable w = leaf({2});
  const Variable x = leaf({2});
  log_accumulation(x, "x", log);
  const Variable inside = passing_all("inputs", {x}, log)[0];
  const Variable stopped =
      record("stop", inside.tensor(), {inside, w}, [](const Tensor& dy, const BackwardContext&) {
        return std::vector<Tensor>{Tensor(), dy};
      });
  backward(sum(mul(stopped, 2.0)));
  CHECK(log == Log{"inputs"});
  CHECK_FALSE(x.grad().defined());
  CHECK(values(w.grad()) == std::vector<double>{2, 2});
}

}  // namespace
}  // namespace tessera::testing
