// Exceptions as text for people, and text that is safe on a terminal.
#include "tessera/tensor/io/failure_text.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>

#include "tessera/tensor/error.h"

namespace tessera {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("what the system throws is explained, what Tessera throws stays") {
  CHECK(failure_text(StateError("[where] what; what to do")) == "[where] what; what to do");
  CHECK_THAT(failure_text(std::bad_alloc()),
             Contains("no more memory") && Contains("ulimit -v") && !Contains("bad_alloc"));
  CHECK_THAT(
      failure_text(std::system_error(EAGAIN, std::generic_category())),
      Contains("no more threads: Resource temporarily unavailable") && Contains("ulimit -u"));
  const std::error_code missing(ENOENT, std::generic_category());
  CHECK(failure_text(std::filesystem::filesystem_error("cannot do", "/a/b", missing)) ==
        "/a/b cannot be used: No such file or directory; check that it is there and that you may "
        "use it");
  CHECK_THAT(failure_text(std::filesystem::filesystem_error("cannot do", missing)),
             Catch::StartsWith("the current folder cannot be used: "));
  CHECK(failure_text(std::runtime_error("plain")) == "plain");
}

TEST_CASE("nested causes follow") {
  const auto text_of = [](const auto& cause) -> std::string {
    try {
      try {
        throw cause;
      } catch (...) {
        std::throw_with_nested(Error("outer"));
      }
    } catch (const std::exception& error) {
      return failure_text(error);
    }
    return "";
  };
  CHECK_THAT(text_of(std::bad_alloc()),
             Catch::StartsWith("outer: the system gives this process no more memory"));
  CHECK(text_of(7) == "outer: an exception of unknown type");
}

TEST_CASE("control characters are escaped, UTF-8 and everything else is kept") {
  CHECK(printable("a\nb\r\t\x1b[31m\x7f") == R"(a\nb\r\t\x1b[31m\x7f)");
  CHECK(printable(std::string_view("\0", 1)) == R"(\x00)");
  CHECK(printable("\u009b2J \u0080 \u009f") == R"(\x9b2J \x80 \x9f)");
  const std::string kept = "\u00a0 \u00e4 \u20ac \U0001f600 C:\\n \xc2";
  CHECK(printable(kept) == kept);
  const std::string once = printable("x\n\x1b");
  CHECK(printable(once) == once);
  CHECK(printable("").empty());
}

}  // namespace
}  // namespace tessera
