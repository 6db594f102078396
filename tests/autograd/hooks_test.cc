// Hook lists and gradient hooks.
#include "tessera/autograd/hooks.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

using Catch::Contains;
using Log = std::vector<std::string>;

void call_all(const HookList<void()>& list) {
  for (const auto& hook : list.snapshot()) hook();
}

TEST_CASE("hook list: order, positions and removal") {
  HookList<void()> list;
  CHECK(list.empty());
  CHECK(list.snapshot().empty());
  Log log;
  const auto note = [&log](const char* text) { return [&log, text] { log.push_back(text); }; };
  HookHandle b = list.add(note("b"));
  list.add(note("c"));
  list.add(note("a"), HookList<void()>::Position::kFirst);
  CHECK_FALSE(list.empty());
  call_all(list);
  CHECK(log == Log{"a", "b", "c"});
  HookHandle copy = b;
  b.remove();
  b.remove();
  copy.remove();
  log.clear();
  call_all(list);
  CHECK(log == Log{"a", "c"});
}

TEST_CASE("hook list: changes made by hooks count from the next round") {
  HookList<void()> list;
  Log log;
  HookHandle second;
  HookHandle first = list.add([&] {
    log.push_back("first");
    second.remove();
    first.remove();
    list.add([&log] { log.push_back("added"); });
  });
  second = list.add([&log] { log.push_back("second"); });
  call_all(list);
  CHECK(log == Log{"first", "second"});
  log.clear();
  call_all(list);
  CHECK(log == Log{"added"});
}

TEST_CASE("hook list: handles outlive the list and move with it") {
  HookHandle handle;
  HookHandle empty;
  empty.remove();
  {
    HookList<void()> list;
    handle = list.add([] {});
    HookList<void()> moved = std::move(list);
    CHECK_FALSE(moved.empty());
  }
  handle.remove();
}

TEST_CASE("gradient hook of a leaf: sees the whole gradient once and may replace it") {
  const Variable x = scalar_leaf(3.0);
  int calls = 0;
  HookHandle handle = Variable(x).register_hook([&](const Variable& gradient) {
    ++calls;
    CHECK(gradient.item<double>() == 6.0);  // both uses together
    return Variable(mul(gradient.tensor(), 10));
  });
  backward(mul(x, x));
  CHECK(calls == 1);
  CHECK(x.grad().item<double>() == 60.0);
  handle.remove();
  backward(mul(x, x));
  CHECK(calls == 1);
  CHECK(x.grad().item<double>() == 66.0);
}

TEST_CASE("gradient hooks run in order, each with the answer of the one before") {
  Variable x = scalar_leaf(2.0);
  Variable y = mul(x, 3.0);
  Log log;
  y.register_hook([&](const Variable& gradient) {
    log.push_back("1:" + std::to_string(gradient.item<double>()));
    return add(gradient, 1.0);
  });
  y.register_hook([&](const Variable& gradient) {
    log.push_back("2:" + std::to_string(gradient.item<double>()));
    return Variable();
  });
  backward(mul(y, 5.0));
  CHECK(log == Log{"1:5.000000", "2:6.000000"});
  CHECK(x.grad().item<double>() == 18.0);
}

TEST_CASE("gradient hook of one of several outputs: skipped where no gradient arrived") {
  Variable x = leaf({2});
  const auto split = [](const Variable& v) {
    return record_differentiable("split", {mul(v.tensor(), 2), mul(v.tensor(), 3)}, std::vector{v},
                                 [](const Gradients& dy, const BackwardContext&) {
                                   CHECK(dy[0].defined());
                                   CHECK_FALSE(dy[1].defined());
                                   return Gradients{mul(dy[0], 2)};
                                 });
  };
  std::vector<Variable> parts = split(x);
  Log log;
  parts[0].register_hook([&](const Variable&) {
    log.push_back("used");
    return Variable();
  });
  parts[1].register_hook([&](const Variable&) {
    log.push_back("unused");
    return Variable();
  });
  backward(sum(parts[0]));
  CHECK(log == Log{"used"});
  CHECK(values(x.grad()) == std::vector<double>{2, 2});
}

TEST_CASE("gradient hook: an answer of another shape is an error") {
  Variable x = leaf({2, 3});
  x.register_hook([](const Variable&) { return leaf({3, 2}); });
  const std::string message = thrown<InvalidArgument>([&] { backward(sum(x)); });
  CHECK_THAT(message, Contains("[backward] a gradient hook of \"accumulate\" returned a gradient "
                               "of shape [3, 2] on " +
                               default_device().str() + " for one of shape [2, 3] on " +
                               default_device().str()));
  CHECK_FALSE(in_backward());
}

TEST_CASE("node hooks: before with the gradients of outputs, after with those of inputs") {
  const Variable x = scalar_leaf(2.0);
  const Variable y = mul(x, 3.0);
  Log log;
  GraphNode& node = *y.gradient_edge().node;
  CHECK(std::string(node.name()) == "mul");
  CHECK(node.outputs() == 1);
  CHECK(node.inputs().size() == 1);
  Variable(y).register_hook([&](const Variable&) {
    log.push_back("variable");
    return Variable();
  });
  node.add_pre_hook([&](Gradients& gradients) {
    log.push_back("pre");
    gradients[0] = mul(gradients[0], 2.0);
  });
  HookHandle post = node.add_post_hook([&](const Gradients& gradients) {
    log.push_back("post " + std::to_string(gradients[0].item<double>()));
  });
  backward(y, {.retain_graph = true});
  CHECK(log == Log{"variable", "pre", "post 6.000000"});
  CHECK(x.grad().item<double>() == 6.0);
  post.remove();
  backward(y);
  CHECK(log.size() == 5);
}

TEST_CASE("post-accumulate hooks: once a pass, after the gradient is there, removable") {
  Variable x = scalar_leaf(2.0);
  std::vector<double> seen;
  HookHandle handle = x.register_post_accumulate_hook(
      [&](const Variable& v) { seen.push_back(v.grad().item<double>()); });
  const Variable y = mul(x, x);
  backward(add(y, x));
  CHECK(seen == std::vector<double>{5});
  // Only passes that bring something count.
  Variable other = scalar_leaf(1.0);
  backward(mul(other, 2.0));
  CHECK(seen.size() == 1);
  handle.remove();
  backward(mul(x, 2.0));
  CHECK(seen.size() == 1);
}

TEST_CASE("post-accumulate hooks fire for gradients that were written directly") {
  Variable w = leaf({3, 2});
  const Variable x(irregular({4, 3}));
  int calls = 0;
  w.register_post_accumulate_hook([&](const Variable& v) {
    ++calls;
    CHECK(v.grad().defined());
  });
  backward(sum(matmul(x, w)));
  CHECK(calls == 1);
}

TEST_CASE("a hook may release the variables of its own graph") {
  Variable x = scalar_leaf(2.0);
  Variable y = mul(x, 3.0);
  Variable z = mul(y, 5.0);
  y.register_hook([&](const Variable&) {
    y = Variable();
    z = Variable();
    return Variable();
  });
  backward(z);
  CHECK(x.grad().item<double>() == 15.0);
}

}  // namespace
}  // namespace tessera::testing
