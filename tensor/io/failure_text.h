#pragma once

/// Error messages for people: for programs that print an exception.

#include <exception>
#include <string>
#include <string_view>

namespace tessera {

/// The message of `error`, followed by those of its nested exceptions. Tessera's errors explain
/// themselves; for errors of the system (no memory, no more threads, an unusable file) the text
/// adds the meaning and what to do.
std::string failure_text(const std::exception& error);

/// `text` as one line: control characters, among them line ends and terminal escapes, are written
/// as \n, \t or \x1b, so that a name inside can neither begin a line nor control a terminal. UTF-8
/// is kept. Idempotent.
std::string printable(std::string_view text);

}  // namespace tessera
