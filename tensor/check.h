#pragma once

/// Checks that throw. `where` is the operation under the name that the user calls ("matmul",
/// "fsdp.fully_shard"). The text is a fmt format string: lower case, with the numbers that matter,
/// and at the end what to do.
///
///     TESSERA_CHECK(x.ndim() == 2, "matmul", "expected 2 dims, got {}", x.ndim());
///     throw_error<DataError>("mnist", "{} is truncated: {} bytes of {}", path, have, want);
///
/// The arguments of TESSERA_CHECK are evaluated only when the check fails.

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "tessera/tensor/error.h"

namespace tessera {

/// `[where] rank R: message`, with the rank of the calling thread's RankContext. Outside a world
/// "rank R" is left out.
std::string error_text(std::string_view where, std::string_view message);

/// Throws E with error_text(where, message).
template <class E, class... Args>
[[noreturn]] void throw_error(std::string_view where, fmt::format_string<Args...> text,
                              Args&&... args) {
  throw E(error_text(where, fmt::format(text, std::forward<Args>(args)...)));
}

}  // namespace tessera

/// Throws InvalidArgument unless `condition`.
#define TESSERA_CHECK(condition, where, ...) \
  TESSERA_CHECK_AS(::tessera::InvalidArgument, condition, where, __VA_ARGS__)

/// Throws `exception` unless `condition`.
#define TESSERA_CHECK_AS(exception, condition, where, ...)   \
  do {                                                       \
    if (!(condition)) [[unlikely]] {                         \
      ::tessera::throw_error<exception>(where, __VA_ARGS__); \
    }                                                        \
  } while (false)
