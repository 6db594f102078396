#include "tessera/tools/program/doctor/doctor_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/models/runs/flat_json.h"
#include "tessera/tools/program/doctor/checks.h"
#include "tessera/tools/program/doctor/read_facts.h"
#include "tessera/tools/program/options/output.h"

namespace tessera::tools {
namespace {

using doctor::Finding;
using doctor::Level;

std::int64_t count_of(const std::vector<Finding>& findings, Level level) {
  return std::count_if(findings.begin(), findings.end(),
                       [level](const Finding& each) { return each.level == level; });
}

std::string line_of(const Finding& finding) {
  return fmt::format("{:<8} {}: {}{}{}\n", doctor::level_name(finding.level), finding.check,
                     finding.text, finding.remedy.empty() ? "" : "; ", finding.remedy);
}

std::string summary_of(const std::vector<Finding>& findings) {
  const auto counted = [](std::int64_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  return fmt::format("{}, {}\n", counted(count_of(findings, Level::kProblem), "problem"),
                     counted(count_of(findings, Level::kWarning), "warning"));
}

std::string json_of(const std::vector<Finding>& findings) {
  std::string checks;
  for (const Finding& each : findings)
    checks += (checks.empty() ? "" : ",\n") +
              models::runs::json_text({{"check", each.check},
                                       {"status", std::string(doctor::level_name(each.level))},
                                       {"text", each.text},
                                       {"remedy", each.remedy}},
                                      models::runs::InvalidUtf8::kReplace);
  return fmt::format("{{\n\"problems\": {},\n\"warnings\": {},\n\"checks\": [\n{}\n]\n}}\n",
                     count_of(findings, Level::kProblem), count_of(findings, Level::kWarning),
                     checks);
}

}  // namespace

void fill_table(models::runs::OptionTable& table, DoctorOptions& options) {
  table.group("Options");
  table.whole("ranks", options.ranks, {.least = 1, .most = 1024},
              "ranks of the run that is to be started on this host");
  table.choice("device", options.device, {"cpu", "cuda"}, "where they are to compute");
  table.text("rdzv-endpoint", options.rdzv_endpoint,
             "HOST:PORT of host 0, if it is to be one of several hosts");
  table.flag("json", options.json, "print JSON");
}

int examine_machine(const DoctorOptions& options) {
  const std::vector<Finding> findings =
      doctor::examine(doctor::read_facts({}, options.rdzv_endpoint),
                      {.ranks = options.ranks, .on_gpus = options.device == "cuda"});
  std::string text;
  for (const Finding& each : findings) text += line_of(each);
  write_output(options.json ? json_of(findings) : text + summary_of(findings));
  return count_of(findings, Level::kProblem) > 0 ? kRunFailed : kDone;
}

}  // namespace tessera::tools
