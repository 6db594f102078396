#include "tessera/fsdp/checkpoint/boxes.h"

#include <catch2/catch.hpp>
#include <vector>

namespace tessera::checkpoint {
namespace {

using nn::ShardBox;

TEST_CASE("the common part of two boxes") {
  const ShardBox a{.offset = {2, 0}, .extent = {3, 5}}, b{.offset = {4, 1}, .extent = {6, 2}};
  const ShardBox both{.offset = {4, 1}, .extent = {1, 2}};
  CHECK(intersection(a, b) == both);
  CHECK(intersection(b, a) == both);
  CHECK(intersection(a, a) == a);
  // Neighbours, and boxes without elements, have nothing in common.
  CHECK_FALSE(intersection(a, {.offset = {5, 0}, .extent = {2, 5}}));
  CHECK_FALSE(intersection(a, {.offset = {3, 2}, .extent = {0, 2}}));
  const ShardBox scalar{.offset = {}, .extent = {}};
  CHECK(intersection(scalar, scalar) == scalar);
}

TEST_CASE("boxes as text") {
  CHECK(box_text({.offset = {2, 0}, .extent = {3, 5}}) == "[2:5, 0:5]");
  CHECK(box_text({.offset = {}, .extent = {}}) == "[]");
}

TEST_CASE("boxes that have every element once") {
  CHECK(cover_problem({4, 3}, std::vector{whole_box({4, 3})}).empty());
  const ShardBox top{.offset = {0, 0}, .extent = {1, 3}}, left{.offset = {1, 0}, .extent = {3, 2}},
      right{.offset = {1, 2}, .extent = {3, 1}}, empty{.offset = {4, 0}, .extent = {0, 3}};
  CHECK(cover_problem({4, 3}, std::vector{right, empty, top, left}).empty());
  CHECK(cover_problem({4, 3}, std::vector{top, left}) == "its boxes have 9 of its 12 elements");
  CHECK(cover_problem({4, 3}, std::vector{top, left, right, left}) ==
        "its boxes [1:4, 0:2] and [1:4, 0:2] overlap");
  const ShardBox wide{.offset = {0, 2}, .extent = {2, 1}};
  CHECK(cover_problem({4, 3}, std::vector{top, left, wide}) ==
        "its boxes [0:1, 0:3] and [0:2, 2:3] overlap");
  CHECK(cover_problem({0, 3}, std::vector<ShardBox>{}).empty());
  CHECK(cover_problem({}, std::vector{whole_box({})}).empty());
  CHECK(cover_problem({}, std::vector<ShardBox>{}) == "its boxes have 0 of its 1 elements");
  CHECK(cover_problem({}, std::vector{whole_box({}), whole_box({})}) ==
        "its boxes [] and [] overlap");
}

TEST_CASE("many boxes that share their rows are compared by their columns") {
  std::vector<ShardBox> boxes;
  for (std::int64_t column = 0; column < 200'000; ++column)
    boxes.push_back({.offset = {0, column}, .extent = {7, 1}});
  CHECK(cover_problem({7, 200'000}, boxes).empty());
  boxes.push_back(boxes[77'777]);
  CHECK(cover_problem({7, 200'000}, boxes) ==
        "its boxes [0:7, 77777:77778] and [0:7, 77777:77778] overlap");
}

}  // namespace
}  // namespace tessera::checkpoint
