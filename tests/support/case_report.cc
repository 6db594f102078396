// Writes one line per test case to $XML_OUTPUT_FILE (JUnit form, where Bazel looks for it), so that
// results are counted by case: passed, failed, skipped.
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/tests/support/case_report.h"
#include "tessera/tests/support/skip.h"

namespace tessera::testing {
namespace {

struct CaseResult {
  std::string name;
  bool failed = false;
  std::string skip_reason;
};

std::mutex mutex;
std::string current_skip_reason;
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

class CaseReport : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    TestEventListenerBase::testCaseStarting(info);
    std::lock_guard lock(mutex);
    current_skip_reason.clear();
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    TestEventListenerBase::testCaseEnded(stats);
    std::lock_guard lock(mutex);
    ++cases_ended;
    results_.push_back({stats.testInfo.name, !stats.totals.delta(Catch::Totals()).testCases.allOk(),
                        current_skip_reason});
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

void skip(const std::string& reason) {
  std::lock_guard lock(mutex);
  current_skip_reason = reason;
  std::printf("SKIPPED: %s\n", reason.c_str());
  std::fflush(stdout);
}

}  // namespace tessera::testing
