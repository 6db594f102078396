#include "tessera/tools/program/doctor/checks.h"

#include <fmt/format.h>

#include <array>

namespace tessera::tools::doctor {

const char* level_name(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kWarning:
      return "warning";
    case Level::kProblem:
      return "problem";
  }
  return "";
}

std::vector<Finding> examine(const Facts& facts, const Plan& plan) {
  std::vector<Finding> findings;
  check_host(facts, plan, findings);
  check_gpus(facts, plan, findings);
  check_network(facts, findings);
  check_limits(facts, plan, findings);
  check_environment(facts, plan, findings);
  return findings;
}

Parted parted(const std::string& whole, const std::string& mark) {
  const std::size_t place = whole.starts_with('[') ? whole.find("] ") : whole.npos;
  const std::string text = place == whole.npos ? whole : whole.substr(place + 2);
  const std::size_t at = text.rfind(mark);
  if (at == text.npos) return {.text = text};
  return {.text = text.substr(0, at), .remedy = text.substr(at + mark.size())};
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  constexpr double kStep = 1024;
  auto number = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (number >= kStep && unit + 1 < kUnits.size()) {
    number /= kStep;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", number, kUnits[unit]);
}

}  // namespace tessera::tools::doctor
