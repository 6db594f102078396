// Gradient accumulation without communication, with a guard: gradients, counts of collectives, and
// the settings restored at its end.

#include <catch2/catch.hpp>

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/collective_counts.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/no_sync.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/fsdp/chain.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

TESSERA_RANK_TEST_WITH("fsdp no_sync: groups with and without replicas are put back as they were",
                       "[fsdp]", {.worlds = {4}}) {
  Chain model({});
  const distributed::DeviceMesh mesh({"replicate", "shard"}, {2, 2}, t.world().group(),
                                     t.world().device());
  const fsdp::Handle hybrid = fsdp::fully_shard(*model.blocks()[0], {.mesh = mesh});
  const fsdp::Handle whole = fsdp::replicate(*model.blocks()[1], {.mesh = t.world().mesh()});
  const fsdp::Handle root = fsdp::fully_shard(model, {.mesh = t.world().mesh()});
  root.set_requires_all_reduce(false);
  { const fsdp::NoSync guard(model); }
  t.check(!hybrid.requires_all_reduce() && hybrid.requires_gradient_sync(), "hybrid");
  t.check(whole.requires_all_reduce() && whole.requires_gradient_sync(), "replicated");
  t.check(root.requires_all_reduce() && root.requires_gradient_sync(), "sharded");
}

struct Fixture {
  explicit Fixture(RankTest& test, const fsdp::FullyShardOptions& options)
      : t(test), model({}), reference({}) {
    for (const auto& block : model.blocks()) fsdp::fully_shard(*block, options);
    fsdp::fully_shard(model, options);
    start();
  }
  explicit Fixture(RankTest& test) : Fixture(test, {.mesh = test.world().mesh()}) {}
  void start() {
    nn::initialize(model, {.seed = 1});
    nn::initialize(reference, {.seed = 1});
  }

  /// One microbatch, on the model and on the reference; returns the model's collectives by kind.
  std::map<std::string, int> micro_batch(std::uint64_t seed) {
    const Tensor x = random_rows(5, 7, DType::kF64, seed);
    backward(plain_loss(reference(Variable(x))));
    ExecutionTrace trace;
    const Variable loss = sharded_loss(model(Variable(my_rows(x, t.world()))), t.world());
    {
      const TraceScope recording(trace);
      backward(loss);
    }
    std::map<std::string, int> out;
    for (const auto& row : distributed::CollectiveCounts(trace).rows())
      out[row.op] += static_cast<int>(row.collectives);
    return out;
  }
  static std::int64_t gathers_in(const ExecutionTrace& trace) {
    return distributed::CollectiveCounts(trace).of({.op = "all_gather", .alone = true}).collectives;
  }
  int reduces_of(std::uint64_t seed) {
    std::map<std::string, int> counts = micro_batch(seed);
    return counts["reduce_scatter"] + counts["all_reduce"];
  }
  /// The number of reductions of `groups` groups; on one rank a gradient equals its sum.
  int reduces_for(int groups) const { return t.size() == 1 ? 0 : groups; }
  bool syncs(const nn::Module& module) const { return fsdp::of(module).requires_gradient_sync(); }
  void check_gradients(const char* what) {
    const std::string text = compare_with_reference(model, reference, 1e-12, /*gradients=*/true);
    t.check(text.empty(), "{}: {}", what, text);
  }

  RankTest& t;
  Chain model, reference;
};

TESSERA_RANK_TEST("fsdp no_sync: nothing is reduced inside, all of it once after", "[fsdp]") {
  for (const bool reshard : {true, false}) {
    Fixture f(t, {.mesh = t.world().mesh(), .reshard_after_forward = reshard});
    std::uint64_t seed = 1;
    {
      const fsdp::NoSync guard(f.model);
      for (int i = 0; i < 3; ++i) {
        const int reduces = f.reduces_of(seed++);
        t.check(reduces == 0, "{} reductions inside the guard", reduces);
      }
      for (const nn::NamedParameter& named : f.model.named_parameters())
        t.check(!named.parameter.grad().defined(), "{} has a reduced gradient", named.name);
    }
    const int reduces = f.reduces_of(seed++);
    t.check(reduces == f.reduces_for(4),
            "{} reductions after the guard, expected one for each of 4 groups", reduces);
    f.check_gradients("one reduction of four micro-batches");
  }
}

TESSERA_RANK_TEST("fsdp no_sync: schedules of micro-batches with and without", "[fsdp]") {
  const std::vector<std::vector<bool>> schedules = {
      {false, false, false, true, true, true, false, false, false, true},
      {true, true, true, false, false, false, true, true, true}};
  for (const std::vector<bool>& schedule : schedules) {
    Fixture f(t);
    std::uint64_t seed = 1;
    for (const bool sync : schedule) {
      if (sync) {
        f.micro_batch(seed++);
        continue;
      }
      const fsdp::NoSync guard(f.model);
      f.micro_batch(seed++);
    }
    f.check_gradients(schedule.front() ? "sync first" : "no_sync first");
  }
}

/// Inside no_sync, FSDP1 keeps values through backward that are not resharded after forward. Here
/// set_reshard_after_backward() decides, with or without the guard.
TESSERA_RANK_TEST("fsdp no_sync: gathers are those of any step", "[fsdp]") {
  const int gathers = t.size() == 1 ? 0 : 1;  // on one rank the value is the shard
  for (const bool reshard : {true, false}) {
    Fixture f(t, {.mesh = t.world().mesh(), .reshard_after_forward = reshard});
    for (const bool inside : {true, true, false, false}) {
      std::optional<fsdp::NoSync> guard;
      if (inside) guard.emplace(f.model);
      ExecutionTrace trace;
      const TraceScope recording(trace);
      const Variable y = f.model(Variable(my_rows(random_rows(5, 7, DType::kF64, 1), t.world())));
      const auto forward = f.gathers_in(trace);
      trace.clear();
      backward(sum(y));
      const auto back = f.gathers_in(trace);
      t.check(forward == 4 * gathers, "{} gathers in forward", forward);
      // The root also reshards after forward, so backward gathers all 4 groups, or none.
      t.check(back == (reshard ? 4 * gathers : 0), "{} gathers in backward", back);
    }
  }
}

TESSERA_RANK_TEST("fsdp no_sync: replicas", "[fsdp]") {
  Fixture f(t);
  Chain model({});
  for (const auto& block : model.blocks()) fsdp::replicate(*block, {.mesh = t.world().mesh()});
  fsdp::replicate(model, {.mesh = t.world().mesh()});
  nn::initialize(model, {.seed = 1});
  const auto step = [&](std::uint64_t seed) {
    const Tensor x = random_rows(5, 7, DType::kF64, seed);
    backward(plain_loss(f.reference(Variable(x))));
    backward(sharded_loss(model(Variable(my_rows(x, t.world()))), t.world()));
  };
  {
    const fsdp::NoSync guard(model);
    step(1);
    t.check(!model.parameters()[0].grad().defined(), "a gradient was reduced inside the guard");
  }
  step(2);
  const std::string text = compare_with_reference(model, f.reference, 1e-12, /*gradients=*/true);
  t.check(text.empty(), "{}", text);
}

TESSERA_RANK_TEST_WITH("fsdp no_sync: neither reduction of hybrid sharding", "[fsdp]",
                       {.worlds = {4}}) {
  const distributed::DeviceMesh mesh({"replicate", "shard"}, {2, 2}, t.world().group(),
                                     default_device());
  Fixture f(t, {.mesh = mesh});
  {
    const fsdp::NoSync guard(f.model);
    const int reduces = f.reduces_of(1);
    t.check(reduces == 0, "{} reductions inside the guard", reduces);
  }
  const int reduces = f.reduces_of(2);
  t.check(reduces == 8, "{} reductions, expected two for each of 4 groups", reduces);
  f.check_gradients("hybrid");

  fsdp::of(f.model).set_requires_all_reduce(false);
  { const fsdp::NoSync guard(f.model); }
  const fsdp::Handle handle = fsdp::of(f.model);
  t.check(handle.requires_gradient_sync() && !handle.requires_all_reduce(),
          "the all-reduce that was put off before is on");
}

TESSERA_RANK_TEST("fsdp no_sync: a part of the model", "[fsdp]") {
  Fixture f(t);
  const nn::Module& inner = *f.model.blocks()[1];
  {
    const fsdp::NoSync guard(*f.model.blocks()[1]);
    t.check(!f.syncs(inner) && f.syncs(f.model), "the guard of a block reaches others");
    const int reduces = f.reduces_of(1);
    t.check(reduces == f.reduces_for(3), "{} reductions, expected those of the 3 other groups",
            reduces);
  }
  const int reduces = f.reduces_of(2);
  t.check(reduces == f.reduces_for(4), "{} reductions after the guard", reduces);
  f.check_gradients("a part");
}

TESSERA_RANK_TEST("fsdp no_sync: its end restores what each module had", "[fsdp]") {
  Fixture f(t);
  const nn::Module& off = *f.model.blocks()[0];
  fsdp::of(off).set_requires_gradient_sync(false);
  {
    const fsdp::NoSync guard(f.model);
    t.check(!f.syncs(f.model) && !f.syncs(off), "the guard is not on");
    { const fsdp::NoSync inner(f.model); }
    t.check(!f.syncs(f.model), "an inner guard ended the outer one");
  }
  t.check(f.syncs(f.model) && f.syncs(*f.model.blocks()[2]), "not restored");
  t.check(!f.syncs(off), "a module that did not reduce before does now");
  try {
    const fsdp::NoSync guard(f.model);
    throw std::runtime_error("a micro-batch failed");
  } catch (const std::runtime_error&) {
  }
  t.check(f.syncs(f.model), "an exception left the guard on");
}

TESSERA_RANK_TEST("fsdp no_sync: mixed precision accumulates in the reduce dtype", "[fsdp]") {
  for (const DType reduce : {DType::kF32, DType::kBF16}) {
    Chain model({.dtype = DType::kF32});
    const fsdp::FullyShardOptions options = {
        .mesh = t.world().mesh(),
        .mixed_precision = {.param_dtype = DType::kBF16, .reduce_dtype = reduce}};
    for (const auto& block : model.blocks()) fsdp::fully_shard(*block, options);
    fsdp::fully_shard(model, options);
    nn::initialize(model, {.seed = 1});
    const auto seed = static_cast<std::uint64_t>(1 + t.rank());
    const Variable x(random_rows(3, 7, DType::kF32, seed));
    const auto step = [&] { backward(sum(square(model(x)))); };

    step();
    std::vector<Tensor> once;
    for (nn::Parameter parameter : model.parameters()) {
      once.push_back(mul(cast(parameter.grad(), DType::kF64), 4));
      parameter.zero_grad();
    }
    {
      const fsdp::NoSync guard(model);
      for (int i = 0; i < 3; ++i) step();
    }
    step();
    for (std::size_t i = 0; i < once.size(); ++i) {
      const nn::Parameter parameter = model.parameters()[i];
      const double error = worst_error(parameter.grad(), once[i]);
      t.check(error <= (reduce == DType::kF32 ? 1e-6 : 0.02), "{}, reduced in {}: off by {}",
              parameter.name(), dtype_name(reduce), error);
    }
  }
}

TESSERA_RANK_TEST("fsdp no_sync: errors", "[fsdp]") {
  Chain plain({});
  t.check_throws<InvalidArgument>("nothing in Chain is sharded",
                                  [&] { const fsdp::NoSync guard(plain); });
  // Pending gradients are not dropped by mistake.
  Fixture f(t);
  const fsdp::NoSync guard(f.model);
  f.micro_batch(1);
  t.check_throws<StateError>("block0", [&] { f.model.parameters()[0].zero_grad(); });
  fsdp::of(f.model).discard_pending_gradients();
  f.model.parameters()[0].zero_grad();
}

}  // namespace
}  // namespace tessera::testing
