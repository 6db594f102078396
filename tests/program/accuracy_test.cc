// Training on the real images: two of the ten epochs of `tessera train mlp`, which reach 87.3 %.
// tools/train_seeds checks complete runs.

#include <catch2/catch.hpp>
#include <cstdio>

#include "tessera/tests/program/run_program.h"
#include "tessera/tests/support/skip.h"

namespace tessera::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST_CASE("train mlp reaches 87 % of the test images in two epochs") {
  if (kSanitized) {
    skip("sanitizers make training many times slower");
    return;
  }
  const ProgramResult result = run_program({"train", "mlp", "--epochs", "2"});
  INFO("standard error: " << result.err);
  REQUIRE(result.exit_code == 0);
  double accuracy = 0;
  REQUIRE(std::sscanf(lines_of(result.out).back().c_str(), "test accuracy %lf %%", &accuracy) == 1);
  CHECK(accuracy >= 87);
}

}  // namespace
}  // namespace tessera::testing
