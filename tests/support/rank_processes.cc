// Rank cases on processes. The parent launches this binary as the ranks of a world and passes the
// cases to run in the environment; each rank writes its results to its own file.
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "tessera/distributed/collectives.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/support/ranks.h"
#include "tessera/tests/support/temporary_folder.h"
#include "tessera/tests/support/test_main.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCasesVariable = "TESSERA_TEST_RANK_CASES";    // names, one per line
constexpr const char* kReportVariable = "TESSERA_TEST_RANK_REPORT";  // a folder

// A line of a rank's report: its kind, then text, then a zero byte.
enum class Line : char { kFailure = 'f', kEnd = 'e' };  // of a check; of a case, with its name

// ---- in a rank process --------------------------------------------------------------------------

class RankReport {
 public:
  RankReport(const std::string& folder, int rank)
      : out_(fmt::format("{}/rank-{}.txt", folder, rank), std::ios::app) {}

  void add(Line line, const std::string& text) {
    out_ << static_cast<char>(line) << text << '\0' << std::flush;
  }
  void add(const RankTest& t) {
    for (const std::string& failure : t.failures()) add(Line::kFailure, failure);
  }

 private:
  std::ofstream out_;
};

void run_case(const RegisteredCase& test, distributed::World& world, RankReport& report) {
  RankTest t(world);
  try {
    test.body(t);
    current_stream(kCpu).synchronize();
  } catch (...) {
    report.add(t);
    throw;
  }
  report.add(t);
}

int run_as_rank_process(int argc, char** argv) {
  const char* names = std::getenv(kCasesVariable);
  const char* folder = std::getenv(kReportVariable);
  if (!distributed::is_rank_process() || names == nullptr || folder == nullptr) return -1;
  std::vector<std::string> batch;
  std::istringstream in(names);
  for (std::string name; std::getline(in, name);) batch.push_back(name);
  const auto body = [&](distributed::World& world) {
    RankReport report(folder, world.rank());
    for (const std::string& name : batch) {
      // All ranks have ended a case before one begins the next.
      if (name != batch.front()) distributed::barrier(*world.group(), "between cases");
      run_case(rank_cases().at(name), world, report);
      report.add(Line::kEnd, name);
    }
  };
  const RankTestOptions& options = rank_cases().at(batch.front()).options;
  // Passes over the parent's earlier launches; the rank's own launch does not return.
  for (;;) distributed::launch(argc, argv, rank_launch_options(options, 1), body);
}

const EarlyMainRegistration early_main(&run_as_rank_process);

// ---- in the parent ------------------------------------------------------------------------------

// A folder for the reports, and the environment variable that names it.
class ReportFolder {
 public:
  explicit ReportFolder(const std::vector<std::string>& batch) {
    setenv(kCasesVariable, fmt::format("{}", fmt::join(batch, "\n")).c_str(), 1);
    setenv(kReportVariable, folder_.path().c_str(), 1);
  }
  ~ReportFolder() {
    unsetenv(kCasesVariable);
    unsetenv(kReportVariable);
  }
  ReportFolder(const ReportFolder&) = delete;
  ReportFolder& operator=(const ReportFolder&) = delete;

  // The failures of each case that a rank has begun, and the cases that the rank has ended.
  struct Contents {
    std::map<std::string, std::vector<std::string>> failures;
    std::set<std::string> ended;
  };
  Contents read(int rank, const std::vector<std::string>& batch) const {
    Contents contents;
    std::ifstream in(fmt::format("{}/rank-{}.txt", folder_.path(), rank));
    std::size_t current = 0;
    for (std::string line; std::getline(in, line, '\0');) {
      const std::string text = line.substr(1);
      if (line[0] == static_cast<char>(Line::kEnd)) {
        contents.ended.insert(text);
        ++current;
      } else if (current < batch.size()) {
        contents.failures[batch[current]].push_back(fmt::format("rank {}: {}", rank, text));
      }
    }
    return contents;
  }

 private:
  TemporaryFolder folder_;
};

// Results of cases that have run and were not requested yet.
std::map<std::pair<std::string, int>, WorldRun>& kept_runs() {
  static std::map<std::pair<std::string, int>, WorldRun> runs;
  return runs;
}

bool can_share(const RankTestOptions& a, const RankTestOptions& b) {
  return !a.own_launch && !b.own_launch && a.expect_failure.empty() && b.expect_failure.empty() &&
         a.cpu_compute == b.cpu_compute && a.timeout == b.timeout && a.checked == b.checked;
}

// The case and those after it, in Catch's order, that run here and can share its launch.
std::vector<std::string> batch_from(const std::string& name, int world) {
  const RankTestOptions& options = rank_cases().at(name).options;
  const Catch::IConfig& config = *Catch::getCurrentContext().getConfig();
  std::vector<std::string> batch;
  for (const Catch::TestCase& chosen :
       Catch::filterTests(Catch::getAllTestCasesSorted(config), config.testSpec(), config)) {
    if (batch.empty() && chosen.name != name) continue;
    const auto found = rank_cases().find(chosen.name);
    if (found == rank_cases().end()) continue;
    const std::vector<int> worlds = worlds_of(found->second);
    if (std::find(worlds.begin(), worlds.end(), world) == worlds.end()) continue;
    if (batch.empty() || can_share(options, found->second.options)) batch.push_back(chosen.name);
  }
  return batch.empty() ? std::vector{name} : batch;
}

// Keeps a result for each case of the batch, up to and including the first in which the run failed.
void run_batch(const std::vector<std::string>& batch, int world) {
  const ReportFolder folder(batch);
  std::string program = "rank-test";
  char* argv[] = {program.data(), nullptr};
  const RankTestOptions& options = rank_cases().at(batch.front()).options;
  const std::string failure =
      distributed::launch(1, argv, rank_launch_options(options, world), [](distributed::World&) {
      }).failure;
  std::vector<ReportFolder::Contents> ranks;
  for (int rank = 0; rank < world; ++rank) ranks.push_back(folder.read(rank, batch));
  for (const std::string& name : batch) {
    WorldRun run;
    bool ended = true;
    for (ReportFolder::Contents& rank : ranks) {
      ended = ended && rank.ended.contains(name);
      for (std::string& text : rank.failures[name]) run.failures.push_back(std::move(text));
    }
    const bool blamed = !ended || (!failure.empty() && name == batch.back());
    if (blamed) run.failure = failure.empty() ? "a rank left before the case had ended" : failure;
    kept_runs()[{name, world}] = std::move(run);
    if (blamed) return;
  }
}

}  // namespace

WorldRun run_on_processes(const std::string& name, int world) {
  if (!kept_runs().contains({name, world})) run_batch(batch_from(name, world), world);
  auto node = kept_runs().extract({name, world});
  return std::move(node.mapped());
}

}  // namespace tessera::testing
