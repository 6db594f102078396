#pragma once

/// Standard output of the program. What cannot be written is an error, of every command alike.

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "tessera/tensor/error.h"

namespace tessera::tools {

/// Nobody reads standard output any more, as of `tessera ... | head -1`: the program ends in
/// silence, with the exit code that a shell reports of one that SIGPIPE ended.
class OutputClosed : public Error {
 public:
  using Error::Error;
};
inline constexpr int kOutputClosed = 141;

/// Makes errors of what would be signals: writing to a pipe without reader, and a file that may not
/// grow (ulimit -f). Keeps files that are opened later from taking the place of a standard stream
/// that was closed. At the start of main.
void prepare_output();

/// Written when it returns. Throws OutputClosed, or Error with the system's reason. Any thread.
void write_output(std::string_view text);

/// True when the next write_output would throw OutputClosed: the reader of a pipe has gone.
bool is_output_closed();

template <class... Args>
void print_output(fmt::format_string<Args...> text, Args&&... args) {
  write_output(fmt::format(text, std::forward<Args>(args)...));
}

/// `tessera: TEXT` and an end of line, on standard error; control characters in it are escaped.
/// Where that cannot be written either, nothing is.
void print_failure(std::string_view text);

}  // namespace tessera::tools
