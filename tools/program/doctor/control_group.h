#pragma once

/// The limits that a control group of Linux, such as a container's, sets to its processes.

#include <cstdint>
#include <optional>
#include <string>

namespace tessera::tools::doctor {

struct ControlGroup {
  double cores = 0;                      ///< worth of time; 0: no limit
  std::optional<std::int64_t> memory{};  ///< bytes
  std::int64_t memory_used = 0;          ///< without what the system may drop
  std::optional<std::int64_t> threads{};
  std::int64_t threads_used = 0;
};

/// The narrowest limits of this process's group and those above it, of version 1 or 2. What cannot
/// be read is no limit. `proc` and `sys` are the folders of the system.
ControlGroup read_control_group(const std::string& proc, const std::string& sys);

/// The text of a file; empty where there is none.
std::string text_of(const std::string& path);
/// The first number of a file.
std::optional<std::int64_t> number_in(const std::string& path);
/// The number behind "KEY" at the beginning of a line.
std::optional<std::int64_t> number_behind(const std::string& text, const std::string& key);

}  // namespace tessera::tools::doctor
