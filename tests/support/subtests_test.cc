// Tests of run_subtests: which combinations run, in what order, and the texts of failures.

#include "tessera/tests/support/subtests.h"

#include <catch2/catch.hpp>
#include <stdexcept>

namespace tessera::testing {
namespace {

const auto numbers = axis("number", {1, 2, 3});
const auto maybe = axis("dtype", {value("same", std::optional<DType>()),
                                  value("low", std::optional<DType>(DType::kBF16))});

TESSERA_RANK_TEST("run_subtests runs every combination, the last axis fastest", "[support]") {
  std::string ran;
  run_subtests(
      t,
      [&](int number, const std::optional<DType>& dtype) {
        ran += fmt::format("{}{} ", number, dtype ? dtype_name(*dtype) : "-");
      },
      numbers, maybe);
  t.check(ran == "1- 1bf16 2- 2bf16 3- 3bf16 ", "ran {}", ran);
  int runs = 0;
  run_subtests(t, [&] { ++runs; });
  t.check(runs == 1, "without axes {} runs", runs);
}

TESSERA_RANK_TEST("values have names", "[support]") {
  t.check(value_name(true) == "true" && value_name(3) == "3" && value_name(0.5) == "0.5" &&
              value_name(DType::kF16) == "f16" && value_name(std::string("x")) == "x",
          "plain values");
  t.check(value_name(std::optional<int>()) == "none" && value_name(std::optional<int>(4)) == "4",
          "optional values");
  t.check(axis("a", {false, true}).values.back().name == "true", "an axis of plain values");
}

// Runs on a RankTest whose failures are not reported.
TESSERA_RANK_TEST("what fails names its combination, also what is thrown", "[support]") {
  RankTest inner(t.world());
  run_subtests(
      inner, [&](int number, bool flag) { inner.check(number != 2 || flag, "no {}", number); },
      numbers, axis("flag", {false, true}));
  t.check(inner.failures() == std::vector<std::string>{"[number=2 flag=false] no 2"}, "noted {}",
          fmt::join(inner.failures(), "; "));
  RankTest thrown(t.world());
  t.check_throws<std::runtime_error>("odd one", [&] {
    run_subtests(
        thrown,
        [&](int number) {
          const RankTest::NamedCase step(thrown, "step 7");
          thrown.check(number < 3, "large");
          if (number == 3) throw std::runtime_error("odd one");
        },
        numbers);
  });
  t.check(thrown.failures() ==
              std::vector<std::string>{"[number=3 | step 7] large", "[number=3] threw: odd one"},
          "noted {}", fmt::join(thrown.failures(), "; "));
}

// A barrier is a collective, and counted.
TESSERA_RANK_TEST_WITH("ranks meet between combinations", "[support]", {.worlds = {2}}) {
  std::vector<std::int64_t> counts;
  run_subtests(
      t, [&](int) { counts.push_back(distributed::collective_counters().collectives); }, numbers);
  t.check(counts[1] == counts[0] + 1 && counts[2] == counts[0] + 2, "no barrier between cases");
}

}  // namespace
}  // namespace tessera::testing
