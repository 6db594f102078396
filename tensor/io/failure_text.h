#pragma once

/// Failures as a person reads them: for programs, where they print one.

#include <exception>
#include <string>
#include <string_view>

namespace tessera {

/// What `error` says, followed by what its nested exceptions say. Errors of Tessera explain
/// themselves; of those of the system (no memory, no more threads, a file that cannot be used) it
/// says what they mean and what to do.
std::string failure_text(const std::exception& error);

/// `text` as one line: control characters, line ends and terminal escapes among them, are written
/// as \n, \t or \x1b, so that a name inside can neither begin a line nor drive a terminal. UTF-8
/// stays as it is. Twice is as good as once.
std::string printable(std::string_view text);

}  // namespace tessera
