// Texts between ranks, and errors that all ranks throw.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "tessera/distributed/rank_texts.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using distributed::error_of;

template <class E>
std::string thrown_again(const std::string& text) {
  try {
    distributed::throw_error_of(error_of([&] { throw E(text); }));
  } catch (const E& error) {
    return error.what();
  }
  return "not thrown";
}

}  // namespace

TEST_CASE("an error as a text keeps its type") {
  CHECK(error_of([] {}).empty());
  CHECK_NOTHROW(distributed::throw_error_of(""));
  CHECK(thrown_again<InvalidArgument>("a") == "a");
  CHECK(thrown_again<CheckpointError>("b") == "b");
  CHECK(thrown_again<StateError>("c") == "c");
  CHECK_THROWS_AS(distributed::throw_error_of(error_of([] { throw DataError("d"); })), StateError);
}

TEST_CASE("a collective that failed is not made a text: its group could not send it") {
  const auto fails = [] { throw CollectiveError("the ranks disagree", {}); };
  CHECK_THROWS_AS(error_of(fails), CollectiveError);
  CHECK_THROWS_AS(error_of([] { throw TimeoutError("rank 1 did not arrive"); }), TimeoutError);
}

TESSERA_RANK_TEST("all ranks throw the error of the first rank that has one", "[rank_texts]") {
  const int failing = t.size() - 1;
  t.check_throws<CheckpointError>("disk 1", [&] {
    distributed::on_all_ranks(&t.group(), [&] {
      if (t.rank() == failing) throw CheckpointError("disk 1");
    });
  });
  t.check_throws<InvalidArgument>("path", [&] {
    distributed::on_first_rank(&t.group(), [] { throw InvalidArgument("path"); });
  });
  const auto texts = distributed::all_gather_texts(&t.group(), fmt::format("of {}", t.rank()));
  t.check(static_cast<int>(texts.size()) == t.size(), "a text of each rank");
  t.check(texts.back() == fmt::format("of {}", failing), "texts in rank order");
  t.check(distributed::first_text(&t.group(), fmt::format("of {}", t.rank())) == "of 0", "first");
}

}  // namespace tessera::testing
