#include "nn/training/loss.h"

#include <catch2/catch.hpp>
#include <string>

TEST_CASE("a user's header keeps its name beside Tessera's") {
  CHECK(std::string(outside::whose()) == "the user's loss");
}
