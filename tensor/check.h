#pragma once

/// Checks that throw. `where` is the operation as the user calls it ("matmul", "fsdp.fully_shard");
/// the text is a fmt format string, lower case, with the numbers in it and what to do at its end.
///
///     TESSERA_CHECK(x.ndim() == 2, "matmul", "expected 2 dims, got {}", x.ndim());
///     throw_error<DataError>("fashion_mnist", "{} is truncated: {} bytes of {}", path, have,
///     want);
///
/// The arguments of TESSERA_CHECK are evaluated only when the check fails.

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "tessera/tensor/error.h"

namespace tessera {

/// `[where] rank R: message`; the rank of the calling thread's RankContext, left out outside a
/// world.
std::string error_text(std::string_view where, std::string_view message);

/// Throws E with the tagged message.
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
