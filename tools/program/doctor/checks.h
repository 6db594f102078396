#pragma once

/// What will go wrong before a run does: pure functions of the machine's facts.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/tools/program/doctor/facts.h"

namespace tessera::tools::doctor {

enum class Level : std::uint8_t {
  kOk,
  kWarning,  ///< runs go, but more slowly, or only some of them
  kProblem,  ///< a run fails, or would not start
};
const char* level_name(Level level);  ///< "ok", "warning", "problem"

struct Finding {
  Level level = Level::kOk;
  std::string check{};   ///< "host name"
  std::string text{};    ///< what was found, with the numbers
  std::string remedy{};  ///< what to do; empty where all is well
};

/// All checks, in a fixed order. Each has at least one finding; one with several faults has one for
/// each of them.
std::vector<Finding> examine(const Facts& facts, const Plan& plan);

// The groups of checks, in that order.
void check_host(const Facts& facts, const Plan& plan, std::vector<Finding>& findings);
void check_gpus(const Facts& facts, const Plan& plan, std::vector<Finding>& findings);
void check_network(const Facts& facts, std::vector<Finding>& findings);
void check_limits(const Facts& facts, const Plan& plan, std::vector<Finding>& findings);
void check_environment(const Facts& facts, const Plan& plan, std::vector<Finding>& findings);

/// The findings of one check: faults, or if there is none, that all is well.
class Check {
 public:
  Check(std::string name, std::vector<Finding>& findings)
      : name_(std::move(name)), findings_(findings) {}

  void warn(std::string text, std::string remedy) { add(Level::kWarning, text, remedy); }
  void fail(std::string text, std::string remedy) { add(Level::kProblem, text, remedy); }
  /// Call it last.
  void ok(std::string text) {
    if (!found_) add(Level::kOk, text, {});
  }

 private:
  void add(Level level, const std::string& text, const std::string& remedy) {
    found_ = true;
    findings_.push_back({.level = level, .check = name_, .text = text, .remedy = remedy});
  }

  std::string name_;
  std::vector<Finding>& findings_;
  bool found_ = false;
};

/// A text of the library, "[where] WHAT; REMEDY", in its last two parts: at the last `mark`.
struct Parted {
  std::string text{};
  std::string remedy{};
};
Parted parted(const std::string& whole, const std::string& mark);

std::string bytes_text(std::int64_t bytes);  ///< "62.8 GiB"

}  // namespace tessera::tools::doctor
