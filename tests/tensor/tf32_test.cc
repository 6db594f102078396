#include "tessera/tensor/tf32.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

TEST_CASE("TF32 is off until it is allowed") {
  CHECK_FALSE(tf32_allowed());
  set_tf32_allowed(true);
  CHECK(tf32_allowed());
  set_tf32_allowed(false);
  CHECK_FALSE(tf32_allowed());
}

}  // namespace
}  // namespace tessera
