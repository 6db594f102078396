#include "tessera/tensor/nearest_name.h"

#include <catch2/catch.hpp>
#include <vector>

namespace tessera {
namespace {

using Names = std::vector<std::string>;

TEST_CASE("edit distance counts added, dropped, replaced and swapped bytes") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("ranks", "rnaks") == 1);
  CHECK(edit_distance("ca", "abc") == 3);  // no byte is edited twice
  CHECK(edit_distance("precison", "precision") == 1);
  CHECK(edit_distance("flaw", "lawn") == 2);
}

TEST_CASE("the nearest name is near, and the first of equals") {
  const Names names = {"ranks", "precision", "preset", "lr", "seq-len", "steps"};
  CHECK(nearest_name("rank", names) == "ranks");
  CHECK(nearest_name("precission", names) == "precision");
  CHECK(nearest_name("setps", names) == "steps");
  CHECK(nearest_name("seq", names) == "seq-len");  // its beginning
  CHECK(nearest_name("xylophone", names) == std::nullopt);
  CHECK(nearest_name("ab", names) == std::nullopt);  // all of it would change
  CHECK(nearest_name("", names) == std::nullopt);
  CHECK(nearest_name("x", {}) == std::nullopt);
  CHECK(nearest_name("ba", Names{"bb", "aa"}) == "bb");
  CHECK(did_you_mean("rank", names, "--") == "; did you mean --ranks?");
  CHECK(did_you_mean("xylophone", names, "--").empty());
}

}  // namespace
}  // namespace tessera
