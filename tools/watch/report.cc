#include "tessera/tools/watch/report.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <vector>

#include "tessera/tensor/check.h"
#include "tessera/tensor/io/atomic_file.h"
#include "tessera/tools/watch/json_object.h"
#include "tessera/tools/watch/metrics_reader.h"
#include "tessera/tools/watch/report_charts.h"
#include "tessera/tools/watch/report_page.h"

namespace tessera::tools {
namespace {

constexpr const char* kWhere = "report";
constexpr const char* kPage = "report.html";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  TESSERA_CHECK_AS(Error, file.is_open(), kWhere, "{} cannot be read: {}; name the folder of a run",
                   path, std::strerror(errno));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string read_if_there(const std::string& path) {
  return std::filesystem::exists(path) ? read_file(path) : std::string();
}

std::vector<JsonRow> rows_in(const std::string& path, const std::string& text) {
  const std::optional<std::vector<JsonRow>> rows = json_rows(text);
  TESSERA_CHECK_AS(DataError, rows.has_value(), kWhere,
                   "{} holds no JSON object; mend or remove it", path);
  return *rows;
}

void write_file(const std::string& path, const std::string& text) {
  AtomicFile file(kWhere, path);
  file.write(text.data(), text.size());
  file.commit();
}

// The name of the folder itself, also for "." and "runs/a/".
std::string name_of(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::weakly_canonical(folder);
  return path.has_filename() ? path.filename() : path.parent_path().filename();
}

}  // namespace

void write_report(const std::string& run_folder) {
  const std::string base = run_folder + "/";
  const RunMetrics run = read_metrics(base + "metrics.jsonl");
  const std::vector<JsonRow> config =
      rows_in(base + "config.json", read_file(base + "config.json"));
  const std::string summary_text = read_if_there(base + "summary.json");
  std::vector<JsonRow> summary;
  if (!summary_text.empty()) summary = rows_in(base + "summary.json", summary_text);
  const std::vector<RunChart> charts = run_charts(run);
  for (const RunChart& chart : charts) write_file(base + chart.file, chart.svg);
  write_file(base + kPage, html_of({.title = name_of(run_folder),
                                    .run = run,
                                    .charts = charts,
                                    .config = config,
                                    .summary = summary,
                                    .sample = read_if_there(base + "sample.txt"),
                                    .failure = read_if_there(base + "failure.txt")}));
}

std::vector<std::string> report_files() {
  std::vector<std::string> names = {kPage};
  for (const RunChart& chart : run_charts({})) names.push_back(chart.file);
  return names;
}

}  // namespace tessera::tools
