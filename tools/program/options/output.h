#pragma once

/// How the program talks to its user: exit codes, the exception for a program that cannot start,
/// and standard output. For every command, a failed write is an error.

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "tessera/tensor/error.h"

namespace tessera::tools {

/// Exit codes of the program, and the exception for the last of them.

inline constexpr int kDone = 0;
inline constexpr int kRunFailed = 1;
inline constexpr int kNotStarted = 2;

/// The command line or the machine does not allow the program to start: kNotStarted, like
/// runs::OptionError.
class CannotStart : public Error {
 public:
  using Error::Error;
};

/// Standard output of the program. For every command, a failed write is an error.

/// The reader of standard output has gone, as in `tessera ... | head -1`. The program then ends
/// without a message, with the exit code that shells report for a process ended by SIGPIPE.
class OutputClosed : public Error {
 public:
  using Error::Error;
};
inline constexpr int kOutputClosed = 141;

/// Call it first in main(). Ignores SIGPIPE and SIGXFSZ, so that writing to a pipe without a
/// reader, or beyond `ulimit -f`, returns an error. Opens /dev/null for each standard stream that
/// is closed, so that no file opened later gets its descriptor; using the stream is still an error.
void prepare_output();

/// Returns when everything is written. Throws OutputClosed, or Error with the system's reason.
/// Thread-safe.
void write_output(std::string_view text);

/// True when the next write_output would throw OutputClosed: the reader of a pipe has gone.
bool is_output_closed();

template <class... Args>
void print_output(fmt::format_string<Args...> text, Args&&... args) {
  write_output(fmt::format(text, std::forward<Args>(args)...));
}

/// Prints `tessera: TEXT` and a newline to standard error, with control characters escaped. Before it,
/// `details`, which are lines already. Ignores errors.
void print_failure(std::string_view text, std::string_view details = {});

}  // namespace tessera::tools
