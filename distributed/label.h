#pragma once

/// The caller of a collective, for errors and traces. Header only.

#include <string>
#include <utility>

namespace tessera::distributed {

/// A name for errors and traces ("layers.1"), and the line of code that asks, which the compiler
/// fills in: pass a text, or nothing.
struct Label {
  std::string text;
  const char* file;
  int line;

  Label(std::string name = {}, const char* from_file = __builtin_FILE(),
        int from_line = __builtin_LINE())
      : text(std::move(name)), file(from_file), line(from_line) {}
  Label(const char* name, const char* from_file = __builtin_FILE(),
        int from_line = __builtin_LINE())
      : text(name), file(from_file), line(from_line) {}

  /// "fsdp/runtime/param_group.cc:120".
  std::string place() const { return std::string(file) + ":" + std::to_string(line); }
};

}  // namespace tessera::distributed
