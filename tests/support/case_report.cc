// Writes one line per test case to $XML_OUTPUT_FILE (JUnit format, where Bazel expects it), so that
// results are counted by case: passed, failed, skipped.
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tests/support/test_main.h"

namespace tessera::testing {
namespace {

struct CaseResult {
  std::string name;
  bool failed = false;
  std::string skip_reason;
};

std::mutex mutex;
std::string current_skip_reason;
std::string repeat_setting;
int cases_ended = 0;

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

void write_report(const std::string& path, const std::vector<CaseResult>& results) {
  std::ofstream out(path);
  out << "<testsuites><testsuite name=\"tessera\" tests=\"" << results.size() << "\">\n";
  for (const CaseResult& result : results) {
    out << "<testcase name=\"" << escaped(result.name) << "\">";
    if (result.failed) out << "<failure/>";
    if (!result.failed && !result.skip_reason.empty())
      out << "<skipped message=\"" << escaped(result.skip_reason) << "\"/>";
    out << "</testcase>\n";
  }
  out << "</testsuite></testsuites>\n";
}

// The command that runs only this case. Some characters have a meaning in Catch2's filters.
void print_how_to_repeat(const std::string& name) {
  const char* target = std::getenv("TEST_TARGET");
  if (target == nullptr) return;
  std::string filter;
  for (char c : name) {
    if (std::string_view(",[\\\"~*").find(c) != std::string_view::npos) filter += '\\';
    filter += c == '\'' ? "'\\''" : std::string(1, c);
  }
  std::string command = "tools/bazel test";
  if (const char* config = std::getenv("TESSERA_TEST_CONFIG"))  // .bazelrc sets it
    command += std::string(" --config=") + config;
  command += std::string(" ") + target + " --test_filter='" + filter + "'";
  if (!repeat_setting.empty()) command += " --test_env=" + repeat_setting;
  std::printf("repeat it: %s\n", command.c_str());
  std::fflush(stdout);
}

class CaseReport : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    TestEventListenerBase::testCaseStarting(info);
    std::lock_guard lock(mutex);
    current_skip_reason.clear();
    repeat_setting.clear();
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    TestEventListenerBase::testCaseEnded(stats);
    std::lock_guard lock(mutex);
    ++cases_ended;
    const bool failed = !stats.totals.delta(Catch::Totals()).testCases.allOk();
    results_.push_back({stats.testInfo.name, failed, current_skip_reason});
    if (failed) print_how_to_repeat(stats.testInfo.name);
  }

  void testRunEnded(const Catch::TestRunStats& stats) override {
    TestEventListenerBase::testRunEnded(stats);
    const char* path = std::getenv("XML_OUTPUT_FILE");
    if (path != nullptr && !results_.empty()) write_report(path, results_);
  }

 private:
  std::vector<CaseResult> results_;
};

CATCH_REGISTER_LISTENER(CaseReport)

}  // namespace

int cases_run() {
  std::lock_guard lock(mutex);
  return cases_ended;
}

void repeat_with(const std::string& setting) {
  std::lock_guard lock(mutex);
  repeat_setting = setting;
}

void skip(const std::string& reason) {
  std::lock_guard lock(mutex);
  current_skip_reason = reason;
  std::printf("SKIPPED: %s\n", reason.c_str());
  std::fflush(stdout);
}

}  // namespace tessera::testing
