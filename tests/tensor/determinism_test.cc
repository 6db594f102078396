// Operations without a fixed order: the list, and the error with the operation's name.
#include "tessera/tensor/determinism.h"

#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

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
}  // namespace tessera
