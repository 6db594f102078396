// Rank cases that fail in every possible way, between cases that pass; rank_report_test.sh runs
// them.
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tessera/distributed/collectives.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

int process_of_first_case = 0;
int cases_here = 0;

TESSERA_RANK_TEST("passes first", "[report]") {
  process_of_first_case = getpid();
  t.check(++cases_here == 1, "case {} of this process", cases_here);
}

TESSERA_RANK_TEST("shares the launch", "[report]") {
  if (test_transport() != "gloo") return;
  t.check(process_of_first_case == getpid(), "another process than the first case");
}

TESSERA_RANK_TEST("a check fails, on one rank", "[report]") {
  t.check(t.rank() != 1, "what was found is {}", 17);
}

TESSERA_RANK_TEST("goes on after a failed check", "[report]") {
  if (test_transport() != "gloo") return;
  t.check(process_of_first_case == getpid(), "another process than the first case");
}

TESSERA_RANK_TEST("throws, on one rank", "[report]") {
  if (t.rank() == 0) throw std::runtime_error("thrown on purpose");
  distributed::barrier(t.group());
}

TESSERA_RANK_TEST("is launched anew after an exception", "[report]") {
  t.check(process_of_first_case == 0, "the process of the first case still runs");
  ++cases_here;
}

TESSERA_RANK_TEST_WITH("has a launch of its own", "[report]", {.own_launch = true}) {
  t.check(cases_here == 0, "another case ran in this process");
  cases_here = 100;
}

TESSERA_RANK_TEST("leaves, on one rank", "[report]") {
  if (t.rank() == 1) _exit(0);
  distributed::barrier(t.group());
}

TESSERA_RANK_TEST_WITH("runs in its smallest world", "[report]", {.worlds = {5, 4}}) {
  t.check(t.size() == 4, "world of {}", t.size());
}

TESSERA_RANK_TEST_WITH("prefers several ranks", "[report]", {.worlds = {1, 5, 4}}) {
  t.check(t.size() == 4, "world of {}", t.size());
}

TESSERA_RANK_TEST_WITH("\"three\" ranks, [isn't it]? \\ *", "[report]", {.worlds = {3}}) {
  t.check(t.rank() != 2, "world of {}", t.size());
}

TESSERA_RANK_TEST("passes last", "[report]") { t.check(cases_here < 100, "not alone"); }

}  // namespace
}  // namespace tessera::testing
