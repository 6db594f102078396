// Callbacks at the end of a pass, passes inside passes, and what is left after failures.
#include "tessera/autograd/engine.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/function.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

TEST_CASE("queue_callback: once at the end, in order, told of success, may queue more") {
  Log log;
  Variable x = scalar_leaf(2.0);
  log_accumulation(x, "leaf", log);
  Variable y = mul(x, 2.0);
  y.register_hook([&](const Variable&) {
    CHECK(in_backward());
    CHECK_FALSE(grad_enabled());
    queue_callback([&](bool failed) {
      CHECK(in_backward());
      CHECK(grad_enabled());
      log.push_back(failed ? "first failed" : "first");
      queue_callback([&](bool) { log.push_back("third"); });
    });
    queue_callback([&](bool) { log.push_back("second"); });
    return Variable();
  });
  backward(y);
  CHECK(log == Log{"leaf", "first", "second", "third"});
  CHECK_FALSE(in_backward());
  CHECK(thrown<StateError>([] { queue_callback([](bool) {}); }) ==
        "[queue_callback] no backward pass runs on this thread; call it from a hook or a "
        "derivative");
}

TEST_CASE("queue_callback: told of a failure, whose error arrives unchanged") {
  Log log;
  Variable x = scalar_leaf(2.0);
  Variable y = mul(x, 2.0);
  y.register_hook([&](const Variable&) -> Variable {
    for (const char* name : {"first", "second"}) {
      queue_callback([&log, name](bool failed) {
        log.push_back(std::string(name) + (failed ? " failed" : ""));
        throw std::runtime_error("an echo");
      });
    }
    throw DataError("the cause");
  });
  CHECK(thrown<DataError>([&] { backward(y); }) == "the cause");
  CHECK(log == Log{"first failed", "second failed"});
  CHECK_FALSE(in_backward());
  CHECK(grad_enabled());
  CHECK_FALSE(x.grad().defined());
  // The next pass knows nothing of it.
  log.clear();
  backward(mul(x, 3.0));
  CHECK(x.grad().item<double>() == 3);
  CHECK(log.empty());
}

TEST_CASE("queue_callback: one that throws fails the pass and those after it") {
  Log log;
  Variable x = scalar_leaf(2.0);
  Variable y = mul(x, 2.0);
  y.register_hook([&](const Variable&) {
    queue_callback([](bool) { throw DataError("from a callback"); });
    queue_callback([&](bool failed) { log.push_back(failed ? "failed" : "fine"); });
    return Variable();
  });
  CHECK(thrown<DataError>([&] { backward(y); }) == "from a callback");
  CHECK(log == Log{"failed"});
  CHECK_FALSE(in_backward());
}

// The square of x, made again inside its derivative as recompute does.
Variable recomputed_square(const Variable& x, Log& log) {
  return record("recompute", square(x.tensor()), {x},
                [x = x.tensor(), &log](const Tensor& dy, const BackwardContext& context) {
                  CHECK(in_backward());
                  const bool outer_graph = grad_enabled();
                  GradModeGuard recording(true);
                  Variable again(x, true);
                  Variable y = square(again);
                  y.register_hook([&log](const Variable&) {
                    queue_callback([&log](bool) { log.push_back("end"); });
                    return Variable();
                  });
                  backward(y, {.gradient = dy});
                  log.push_back("nested done");
                  CHECK(in_backward());
                  CHECK_FALSE(outer_graph);
                  CHECK_FALSE(context.create_graph());
                  return std::vector<Tensor>{again.grad()};
                });
}

TEST_CASE("nested backward: inside a derivative, callbacks belong to the outermost pass") {
  Log log;
  const Variable x = scalar_leaf(3.0);
  log_accumulation(x, "leaf", log);
  backward(recomputed_square(recomputed_square(x, log), log));
  CHECK(x.grad().item<double>() == 4 * 27);
  CHECK(log == Log{"nested done", "nested done", "leaf", "end", "end"});
  CHECK_FALSE(in_backward());
}

TEST_CASE("nested backward: over a leaf and a graph that the outer pass also uses") {
  const Variable x = scalar_leaf(3.0);
  const Variable shared = square(x);
  int fired = 0;
  Variable(x).register_post_accumulate_hook([&](const Variable&) { ++fired; });
  const Variable y =
      record("nested", shared.tensor(), {shared}, [&](const Tensor& dy, const BackwardContext&) {
        backward(shared, {.retain_graph = true});
        return std::vector<Tensor>{dy};
      });
  backward(mul(y, 10.0));
  CHECK(x.grad().item<double>() == 6 + 60);
  CHECK(fired == 2);
}

TEST_CASE("nested backward: a failure that is caught leaves the outer pass whole") {
  Log log;
  const Variable x = scalar_leaf(3.0);
  const Variable y =
      record("guarded", x.tensor(), {x}, [&](const Tensor& dy, const BackwardContext&) {
        Variable inner = scalar_leaf(1.0);
        inner.register_hook([&](const Variable&) -> Variable {
          queue_callback([&](bool failed) { log.push_back(failed ? "failed" : "fine"); });
          throw DataError("inner");
        });
        GradModeGuard recording(true);
        CHECK(thrown<DataError>([&] { backward(mul(inner, 2.0)); }) == "inner");
        CHECK(in_backward());
        return std::vector<Tensor>{dy};
      });
  backward(mul(y, 2.0));
  CHECK(x.grad().item<double>() == 2);
  CHECK(log == Log{"fine"});
}

}  // namespace
}  // namespace tessera::testing
