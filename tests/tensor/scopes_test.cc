// Module paths of a thread.

#include "tessera/tensor/scope_name.h"

#include <memory>
#include <thread>

#include <catch2/catch.hpp>

#include "tessera/tensor/determinism.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/tf32.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

TEST_CASE("scope names: joined from the outermost part, also through parts that are not open") {
  const auto root = make_scope_name(), list = make_scope_name(), block = make_scope_name();
  block->set("3", list);
  list->set("blocks", root);  // after its child, as modules are registered
  CHECK(current_scope_text() == "outside modules");
  CHECK(current_scope() == nullptr);
  NamedScope in_root(*root);
  CHECK(current_scope_path().empty());
  CHECK(current_scope_text() == "in the root module");
  {
    NamedScope in_block(*block);
    CHECK(current_scope_path() == "blocks.3");
    CHECK(current_scope_text() == "in \"blocks.3\"");
    CHECK(current_scope() == block);
    std::string elsewhere = "?";
    std::thread([&] { elsewhere = current_scope_text(); }).join();
    CHECK(elsewhere == "outside modules");
  }
  CHECK(current_scope() == root);
}

TEST_CASE("the innermost scope that an exception leaves is remembered for it") {
  const auto root = make_scope_name(), block = make_scope_name();
  block->set("3", root);
  std::exception_ptr first, second;
  try {
    const NamedScope in_root(*root);
    try {
      const NamedScope in_block(*block);
      try {
        throw StateError("a");
      } catch (...) {
        note_failed_scope();
        throw;
      }
    } catch (...) {
      note_failed_scope();  // an outer one changes nothing
      throw;
    }
  } catch (const StateError&) {
    first = std::current_exception();
  }
  CHECK(failed_scope_path(first) == "3");
  try {
    throw StateError("b");
  } catch (const StateError&) {
    second = std::current_exception();
  }
  CHECK(failed_scope_path(second).empty());
  CHECK(failed_scope_path(nullptr).empty());
}

TEST_CASE("scope names: exceptions close scopes, and a scope can be opened again later") {
  const auto root = make_scope_name(), part = make_scope_name();
  part->set("part", root);
  std::shared_ptr<const ScopeName> kept;
  try {
    NamedScope scope(*part);
    kept = current_scope();
    throw 1;
  } catch (int) {
  }
  CHECK(current_scope() == nullptr);
  {
    ScopeRestore again(kept);
    CHECK(current_scope_path() == "part");
    ScopeRestore outside(nullptr);
    CHECK(current_scope_text() == "outside modules");
  }
  CHECK(current_scope() == nullptr);
}

TEST_CASE("scope names: a part is never inside itself") {
  const auto a = make_scope_name(), b = make_scope_name();
  b->set("b", a);
  a->set("a", b);
  a->set("a", a);
  CHECK(b->path() == "b");
  CHECK(a->path().empty());
}

}  // namespace

namespace {

// Operations without a fixed order: the list, and the error with the operation's name.

using namespace testing;

TEST_CASE("determinism: every operation has a fixed order") {
  CHECK(unordered_operations().empty());
  CHECK_FALSE(deterministic());
}

TEST_CASE("determinism: what is listed refuses by name, on its devices, while the mode is on") {
  const UnorderedOperation list[] = {{"scatter_sum", DeviceType::kCuda}};
  const Device gpu = {DeviceType::kCuda, 1};
  const auto ask = [&](const char* operation, Device device) {
    return thrown<StateError>([&] { require_fixed_order(operation, device, list); });
  };
  CHECK(ask("scatter_sum", gpu) == "nothing was thrown");
  set_deterministic(true);
  CHECK(deterministic());
  CHECK(ask("scatter_sum", gpu) ==
        "[scatter_sum] it has no fixed order of additions on cuda:1, and deterministic mode is on; "
        "compute it on another device, or set_deterministic(false)");
  CHECK(ask("scatter_sum", kCpu) == "nothing was thrown");
  CHECK(ask("sum", gpu) == "nothing was thrown");
  set_deterministic(false);
  CHECK(ask("scatter_sum", gpu) == "nothing was thrown");
}

}  // namespace

namespace {

TEST_CASE("TF32 is off until it is allowed") {
  CHECK_FALSE(tf32_allowed());
  set_tf32_allowed(true);
  CHECK(tf32_allowed());
  set_tf32_allowed(false);
  CHECK_FALSE(tf32_allowed());
}

}  // namespace

namespace {

// Keys of run-time random numbers: what they depend on, and that a replay draws them again.

using namespace testing;
using random::next_key;
using random::RandomKey;
using random::RestoreScope;
using random::StepScope;

TEST_CASE("step scope: calls count per layer from 0, and a scope begins anew") {
  for (int round = 0; round < 2; ++round) {
    StepScope scope({.seed = 5, .step = 7, .first_sample = 12});
    CHECK(random::first_sample() == 12);
    const RandomKey a0 = next_key("a");
    const RandomKey b0 = next_key("b");
    const RandomKey a1 = next_key("a");
    CHECK(a0 == RandomKey{.seed = 5, .step = 7, .layer = random::named_key(0, "a").value});
    CHECK(b0 == RandomKey{.seed = 5, .step = 7, .layer = random::named_key(0, "b").value});
    CHECK(a1.call == 1);
    CHECK(a1.layer == a0.layer);
  }
  CHECK(random::first_sample() == 0);
}

TEST_CASE("step scope: independent of rank and thread") {
  const auto draw = [](int rank) {
    RandomKey key;
    std::thread([&] {
      RankScope on_rank(std::make_shared<RankContext>(rank, 2, 1));
      StepScope scope({.seed = 1, .step = 2});
      key = next_key("a");
    }).join();
    return key;
  };
  CHECK(draw(0) == draw(1));
}

TEST_CASE("step scope: a nested one leaves the outer one where it was") {
  StepScope outer({.seed = 1, .step = 1});
  next_key("a");
  try {
    StepScope inner({.seed = 1, .step = 2, .first_sample = 3});
    CHECK(next_key("a").call == 0);
    throw 1;
  } catch (int) {
  }
  CHECK(next_key("a").call == 1);
  CHECK(random::first_sample() == 0);
}

TEST_CASE("no draws: a draw is an error that names the layer and says why not") {
  const StepScope scope({.seed = 1, .step = 1});
  {
    const random::NoDraws none("this work is repeated");
    CHECK_THROWS_AS(next_key("blocks.0.dropout"), StateError);
    CHECK_THROWS_WITH(next_key("blocks.0.dropout"),
                      Catch::Matchers::Contains("layer \"blocks.0.dropout\" draws random numbers, "
                                                "but this work is repeated"));
  }
  CHECK(next_key("blocks.0.dropout").call == 0);
}

TEST_CASE("keys: any of the four makes another stream of numbers") {
  const RandomKey base = {.seed = 1, .step = 2, .layer = 3, .call = 4};
  CHECK(base.key() == RandomKey(base).key());
  for (std::uint64_t RandomKey::*field :
       {&RandomKey::seed, &RandomKey::step, &RandomKey::layer, &RandomKey::call}) {
    RandomKey other = base;
    other.*field += 1;
    CHECK_FALSE(other.key() == base.key());
  }
  CHECK_FALSE(RandomKey{.seed = 2, .step = 1}.key() == RandomKey{.seed = 1, .step = 2}.key());
}

TEST_CASE("outside a scope: manual_seed, this thread's calls, and the rank") {
  random::manual_seed(11);
  const RandomKey first = next_key("a");
  CHECK(first.seed == 11);
  CHECK(first.step == random::kNoStep);
  CHECK(first.call == 0);
  CHECK(next_key("a").call == 1);
  CHECK(next_key("b").call == 0);
  random::manual_seed(11);
  CHECK(next_key("a") == first);
  RandomKey elsewhere;
  RandomKey on_rank;
  std::thread([&] {
    elsewhere = next_key("a");
    RankScope rank(std::make_shared<RankContext>(1, 2, 1));
    on_rank = next_key("a");
  }).join();
  CHECK(elsewhere == first);
  CHECK(on_rank.layer != first.layer);
  // manual_seed inside a scope takes effect after the scope.
  {
    StepScope scope({.seed = 3, .step = 0});
    random::manual_seed(12);
    CHECK(next_key("a").seed == 3);
  }
  CHECK(next_key("a").seed == 12);
  random::manual_seed(0);
}

TEST_CASE("replay: the same keys again, nested, with the state before put back") {
  const auto draw_three = [] {
    return std::vector<RandomKey>{next_key("a"), next_key("b"), next_key("a")};
  };
  for (bool in_scope : {true, false}) {
    random::manual_seed(4);
    auto scope = in_scope ? std::make_unique<StepScope>(
                                random::StepOptions{.seed = 9, .step = 1, .first_sample = 6})
                          : nullptr;
    next_key("a");
    const random::State before = random::capture();
    const std::vector<RandomKey> forward = draw_three();
    const RandomKey after = next_key("a");
    random::manual_seed(99);  // does not affect the replay
    for (int again = 0; again < 2; ++again) {
      RestoreScope replay(before);
      CHECK(random::first_sample() == (in_scope ? 6 : 0));
      const random::State inner = random::capture();
      CHECK(draw_three() == forward);
      {
        RestoreScope nested(inner);
        CHECK(draw_three() == forward);
      }
      CHECK(next_key("a") == after);
    }
    CHECK(next_key("a").call == (in_scope ? after.call + 1 : 0));
  }
  random::manual_seed(0);
}

TEST_CASE("step scope: errors") {
  CHECK(thrown<InvalidArgument>([] { StepScope({.first_sample = -1}); }) ==
        "[random.StepScope] first_sample is -1; samples count from 0");
  CHECK(thrown<InvalidArgument>([] { StepScope({.step = random::kNoStep}); }) ==
        "[random.StepScope] step 18446744073709551615 means \"no step\"; count steps from "
        "0");
}

}  // namespace
}  // namespace tessera
