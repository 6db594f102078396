#include "tessera/fsdp/runtime/schedule.h"

#include <catch2/catch.hpp>

#include <optional>
#include <vector>

namespace tessera::fsdp {
namespace {

using Next = std::optional<int>;
using Groups = std::vector<int>;

TEST_CASE("schedule: the first forward has no forecast, the second follows the first", "[fsdp]") {
  Schedule schedule;
  schedule.begin_forward();
  for (int group : {0, 1, 2}) CHECK(schedule.enter_forward(group) == Groups{});
  schedule.begin_forward();
  CHECK(schedule.enter_forward(0) == Groups{1});
  CHECK(schedule.enter_forward(1) == Groups{2});
  CHECK(schedule.enter_forward(2) == Groups{});
}

TEST_CASE("schedule: several groups ahead", "[fsdp]") {
  Schedule schedule;
  schedule.begin_forward();
  for (int group : {0, 1, 2}) CHECK(schedule.enter_forward(group, 2) == Groups{});
  schedule.begin_forward();
  CHECK(schedule.enter_forward(0, 2) == Groups{1, 2});
  CHECK(schedule.enter_forward(1, 2) == Groups{2});
  CHECK(schedule.enter_forward(2, 0) == Groups{});
}

TEST_CASE(
    "schedule: a forward that leaves the forecast gets no more advice, and becomes the next "
    "forecast",
    "[fsdp]") {
  Schedule schedule;
  schedule.begin_forward();
  for (int group : {0, 1, 2, 3}) schedule.enter_forward(group);
  schedule.begin_forward();
  CHECK(schedule.enter_forward(0) == Groups{1});
  CHECK(schedule.enter_forward(2) == Groups{});
  CHECK(schedule.enter_forward(2) ==
        Groups{});  // it is at position 2 of the forecast, but this forward left the forecast
  schedule.begin_forward();
  CHECK(schedule.enter_forward(0) == Groups{2});
  CHECK(schedule.enter_forward(2) == Groups{2});
}

TEST_CASE("schedule: an empty forward keeps the forecast", "[fsdp]") {
  Schedule schedule;
  schedule.begin_forward();
  schedule.enter_forward(4);
  schedule.enter_forward(5);
  schedule.begin_forward();
  schedule.begin_forward();
  CHECK(schedule.enter_forward(4) == Groups{5});
}

TEST_CASE("schedule: backward walks the recorded forward back", "[fsdp]") {
  Schedule schedule;
  for (int group : {1, 2, 3, 0}) schedule.leave_forward(group);  // 0 is the root: it leaves last
  CHECK(schedule.enter_backward(0) == Next(3));
  CHECK(schedule.enter_backward(3) == Next(2));
  CHECK(schedule.enter_backward(2) == Next(1));
  CHECK(schedule.enter_backward(1) == std::nullopt);
  CHECK(schedule.enter_backward(1) == std::nullopt);
  schedule.end_backward();
  CHECK(schedule.enter_backward(3) == std::nullopt);
}

TEST_CASE("schedule: a group that ran twice is taken once for each run, last first", "[fsdp]") {
  Schedule schedule;
  for (int group : {1, 2, 1, 3}) schedule.leave_forward(group);
  CHECK(schedule.enter_backward(3) == Next(1));
  CHECK(schedule.enter_backward(1) == Next(2));
  CHECK(schedule.enter_backward(2) == Next(1));
  CHECK(schedule.enter_backward(1) == std::nullopt);
}

TEST_CASE("schedule: a forward without a backward leaves the orders recorded before it", "[fsdp]") {
  Schedule schedule;
  schedule.begin_forward();
  for (int group : {1, 2}) schedule.leave_forward(group);
  schedule.begin_forward();
  for (int group : {3, 4}) schedule.leave_forward(group);
  schedule.forget_forward();
  CHECK(schedule.enter_backward(4) == std::nullopt);
  CHECK(schedule.enter_backward(2) == Next(1));
  // A backward inside a forward ends all orders.
  schedule.begin_forward();
  schedule.end_backward();
  schedule.forget_forward();
  schedule.leave_forward(5);
  schedule.leave_forward(6);
  CHECK(schedule.enter_backward(6) == Next(5));
  CHECK(schedule.enter_backward(5) == std::nullopt);
}

}  // namespace
}  // namespace tessera::fsdp
