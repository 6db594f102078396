// Moving averages of parameters: their values, the scope that swaps them in, saved state, errors.
#include "tessera/nn/optim/ema.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/tensor/memory/allocator.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tests/nn/optim/support.h"

namespace tessera {
namespace {

using nn::Parameter;
using nn::StateDict;
using nn::optim::Ema;
using nn::optim::EmaOptions;
using nn::optim::EmaScope;
using namespace testing;

void write(const Parameter& p, double value) { fill_(p.local().tensor(), value); }

TEST_CASE("the average follows its formula, with and without a warm-up") {
  for (bool warm_up : {false, true}) {
    const Parameter a = make({3}, 1), b = make({2, 2}, 2), empty = make({0}, 3);
    Ema ema({a, b, a, empty}, {.decay = 0.25, .warm_up = warm_up});
    CHECK(ema.parameters().size() == 3);
    CHECK_FALSE(ema.average(a).defined());
    double average = 0;
    for (int t = 0; t < 5; ++t) {
      write(a, 1.0 + t * t);
      const double short_memory = (1.0 + t) / (10.0 + t);
      const double decay = t == 0 ? 0 : warm_up && short_memory < 0.25 ? short_memory : 0.25;
      average = decay * average + (1 - decay) * (1.0 + t * t);
      ema.update();
      CHECK(distance(values(ema.average(a)), std::vector<double>(3, average)) < 1e-14);
    }
    CHECK(values(ema.average(b)) == local_values(b));
    CHECK(ema.updates() == 5);
    CHECK_FALSE(ema.average(make({3}, 9)).defined());
  }
}

TEST_CASE("averages of 16-bit parameters are f32, and optimizer memory") {
  MemoryCounters& memory = current_rank_context()->memory();
  const Parameter p = make({5}, 1, DType::kBF16);
  const std::int64_t before = memory.current()[MemoryCategory::kOptimizer];
  Ema ema({p}, {.decay = 0.999});
  write(p, 1);
  ema.update();
  write(p, 2);
  for (int i = 0; i < 100; ++i) ema.update();
  CHECK(ema.average(p).dtype() == DType::kF32);
  // In bf16 it would not have moved at all.
  CHECK(values(ema.average(p))[4] == Approx(2 - std::pow(0.999, 100)).epsilon(1e-5));
  CHECK(memory.current()[MemoryCategory::kOptimizer] ==
        before + counted_bytes(default_device().type, 5 * 4));
}

TEST_CASE("inside a scope the parameters have the averages for values") {
  const Parameter p = make({2}, 1), half = make({2}, 2, DType::kBF16);
  Ema ema({p, half}, {.decay = 0.5});
  write(p, 1);
  write(half, 1.0078125);
  ema.update();
  write(p, 2);
  ema.update();
  {
    const EmaScope scope(ema);
    CHECK(local_values(p) == std::vector<double>{1.5, 1.5});
    CHECK(thrown<StateError>([&] { ema.update(); }) ==
          "[nn.optim.Ema] update() while the parameters have the averages for values: end the "
          "EmaScope first");
    CHECK(thrown<StateError>([&] { EmaScope second(ema); }) ==
          "[nn.optim.Ema] the parameters have the averages for values already: one EmaScope at a "
          "time");
    write(p, 77);  // lost
  }
  CHECK(local_values(p) == std::vector<double>{2, 2});
  CHECK(values(cast(half.local().tensor(), DType::kF32)) ==
        std::vector<double>{1.0078125, 1.0078125});
  EmaScope early(ema);
  early.restore();
  CHECK(local_values(p) == std::vector<double>{2, 2});
  ema.update();
  early.restore();
  CHECK(values(ema.average(p)) == std::vector<double>{1.75, 1.75});
}

TEST_CASE("averages are copied to a reference") {
  const Parameter p = make({2}, 1), reference = make({2}, 2), other = make({3}, 3);
  Ema ema({p}, {.decay = 0.5});
  CHECK(thrown<StateError>([&] { ema.copy_to({reference}); }) ==
        "[nn.optim.Ema] there is no average yet: call update()");
  CHECK(thrown<StateError>([&] {
          EmaScope scope(ema);
        }).starts_with("[nn.optim.Ema] there is no average yet"));
  ema.update();
  ema.copy_to({reference});
  CHECK(local_values(reference) == local_values(p));
  CHECK(thrown<InvalidArgument>([&] {
          ema.copy_to({reference, other});
        }) == "[nn.optim.Ema] 2 parameters to copy averages of 1 to; the lists must agree");
  CHECK(thrown<InvalidArgument>([&] { ema.copy_to({other}); }) ==
        "[nn.optim.Ema] \"p3\" of shape [3] does not take the average of \"p1\" of shape [2]");
}

TEST_CASE("averages are saved by name and loaded before the first update") {
  const Parameter p = make({2}, 1);
  Ema ema({p}, {.decay = 0.5});
  const StateDict fresh = ema.state_dict();
  ema.update();
  write(p, 3);
  ema.update();
  const StateDict saved = ema.state_dict().clone();
  Ema other({p}, {.decay = 0.5});
  other.load_state_dict(saved);
  ema.update();
  other.update();
  CHECK(values(other.average(p)) == values(ema.average(p)));
  CHECK(other.updates() == 3);
  other.load_state_dict(fresh);
  CHECK(other.updates() == 0);
  CHECK_FALSE(other.average(p).defined());
}

TEST_CASE("every misfit of saved averages is named, in one error") {
  const Parameter a = make({2}, 1), b = make({3}, 2), c = make({3}, 3);
  Parameter empty({.shape = {3}, .init = nn::init::zeros()});
  empty.set_name("empty");
  Ema ema({a, b, c, empty}, {});
  StateDict wrong;
  wrong.set("updates", std::int64_t{2});
  wrong.set("average.p1", zeros({4}));
  wrong.set("average.p2", 1.0);
  wrong.set("average.p9", zeros({4}));
  const std::string misfit = "[nn.optim.load_state_dict] the saved state does not fit this Ema: ";
  CHECK(thrown<InvalidArgument>([&] { ema.load_state_dict(wrong); }) ==
        misfit +
            "average.empty has no elements here: call nn::initialize(model); average.p1 has shape "
            "[4], not [2]; average.p2 is a number, not a tensor; average.p3 is missing; "
            "\"average.p9\" is unknown");
  CHECK(thrown<InvalidArgument>([&] { ema.load_state_dict({}); }) ==
        misfit + "updates is not a count");
  const Parameter nameless({.shape = {1}, .init = nn::init::zeros()});
  CHECK(thrown<InvalidArgument>([&] {
          Ema({nameless}, {}).state_dict();
        }).starts_with("[nn.optim.Ema] state is saved by the names of parameters"));
}

TEST_CASE("averages are floating and have elements, and go to the device of their parameter") {
  const Parameter a = make({2}, 1), b = make({3}, 2);
  Parameter planned({.shape = {2}, .dtype = DType::kF64, .init = nn::init::zeros()});
  planned.set_name("p1");
  planned.materialize(kNull);
  Ema ema({a, b}, {});
  StateDict wrong;
  wrong.set("updates", std::int64_t{1});
  wrong.set("average.p1", zeros({2}, {.dtype = DType::kBool}));
  wrong.set("average.p2", zeros({3}, {.device = kNull}));
  CHECK(thrown<InvalidArgument>([&] { ema.load_state_dict(wrong); }) ==
        "[nn.optim.load_state_dict] the saved state does not fit this Ema: average.p1 is bool, and "
        "averages are floating; average.p2 is on the null device: it has no elements");
  Ema saving({a}, {}), loading({planned}, {});
  saving.update();
  loading.load_state_dict(saving.state_dict());
  CHECK(loading.average(planned).device() == kNull);
}

TEST_CASE("averages: errors of making and updating") {
  Parameter p = make({4}, 1);
  CHECK(thrown<InvalidArgument>([&] { Ema({}, {}); }) ==
        "[nn.optim.Ema] an average needs parameters: the model has none, or the list is empty");
  CHECK(thrown<InvalidArgument>([&] { Ema({p}, {.decay = 1}); }) ==
        "[nn.optim.Ema] decay is 1; it lies in [0, 1)");
  Ema ema({p}, {});
  ema.update();
  const auto owner = std::make_shared<FakeOwner>("g");
  p.shard(row_sharding({4}, 0, 2, 2), owner);
  CHECK(thrown<StateError>([&] { ema.update(); }) ==
        "[nn.optim.Ema] the average of \"p1\" has shape [4], local() has [2]: it was sharded after "
        "an update; build the average again");
}

}  // namespace
}  // namespace tessera
