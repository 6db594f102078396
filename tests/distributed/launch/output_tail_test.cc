// The last lines that a rank printed, kept for the report of its failure.
#include "tessera/distributed/launch/output_tail.h"

#include <catch2/catch.hpp>
#include <deque>
#include <string>
#include <string_view>

#include "tessera/tests/distributed/launch/program.h"

namespace tessera::distributed {
namespace {

using Lines = std::deque<std::string>;

Lines tail_of(std::string_view text) {
  OutputTail tail;
  tail.add(text);
  return tail.lines();
}

}  // namespace

TEST_CASE("a tail has the last 20 lines, the last of them also without its end", "[output]") {
  CHECK(tail_of("").empty());
  CHECK(tail_of("\n") == Lines{""});
  CHECK(tail_of("a\n\nb") == Lines{"a", "", "b"});
  CHECK(tail_of(numbered(0, 20)).front() == "line 0");
  const Lines kept = tail_of(numbered(0, 33) + "and");
  CHECK(kept.size() == OutputTail::kMostLines);
  CHECK(kept.front() == "line 14");
  CHECK(kept.back() == "and");
}

TEST_CASE("a tail has what a terminal would show", "[output]") {
  CHECK(tail_of("a\r\nb\r\n") == Lines{"a", "b"});
  CHECK(tail_of("\rstep 1\x1b[K\rstep 2\x1b[K") == Lines{"step 2"});
  CHECK(tail_of("\x1b[31;1mred\x1b[0m\n\x1b=x\ty\n") == Lines{"red", "x y"});
  CHECK(tail_of("\x1b]0;title\abell\n\x1b]8;;link\x1b\\end\n") == Lines{"bell", "end"});
  CHECK(tail_of("\x1b(Bset\n\x1b]no text\nnext\n") == Lines{"set", "", "next"});
  CHECK(tail_of("a\x07"
                "b\xc2\x9b"
                "c \xc3\xa4\n") == Lines{"a\\x07b\\x9bc \xc3\xa4"});
}

TEST_CASE("a tail does not depend on where the output is cut", "[output]") {
  const std::string text = "one\r\n\x1b[1mtwo\x1b[0m\rthree\n" + numbered(0, 25) + "\rlast";
  OutputTail bytes;
  for (const char byte : text) bytes.add({&byte, 1});
  CHECK(bytes.lines() == tail_of(text));
}

TEST_CASE("a tail keeps the beginning of a line that is too long", "[output]") {
  const std::string most(OutputTail::kMostBytes, 'x');
  CHECK(tail_of(most + "\n") == Lines{most});
  CHECK(tail_of(most + "yyy\nz") == Lines{most + " ... and 3 bytes more", "z"});
}

}  // namespace tessera::distributed
