#include "tessera/tools/watch/report.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tessera/tensor/atomic_file.h"
#include "tessera/tensor/check.h"
#include "tessera/tools/watch/metrics_reader.h"
#include "tessera/tools/watch/report_charts.h"
#include "tessera/tools/watch/report_page.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kWhere = "report";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  TESSERA_CHECK_AS(Error, file.is_open(), kWhere, "{} cannot be read: {}; name the folder of a run",
                   path, std::strerror(errno));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string read_if_there(const std::string& path) {
  return std::filesystem::exists(path) ? read_file(path) : std::string();
}

Json object_in(const std::string& path, const std::string& text) {
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  TESSERA_CHECK_AS(DataError, value.is_object(), kWhere,
                   "{} holds no JSON object; mend or remove it", path);
  return value;
}

void write_file(const std::string& path, const std::string& text) {
  AtomicFile file(kWhere, path);
  file.write(text.data(), text.size());
  file.commit();
}

// The folder's own name, also of "." and "runs/a/".
std::string name_of(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::weakly_canonical(folder);
  return path.has_filename() ? path.filename() : path.parent_path().filename();
}

}  // namespace

void write_report(const std::string& run_folder) {
  const std::string base = run_folder + "/";
  const RunMetrics run = read_metrics(base + "metrics.jsonl");
  const Json config = object_in(base + "config.json", read_file(base + "config.json"));
  const std::string summary_text = read_if_there(base + "summary.json");
  const Json summary =
      summary_text.empty() ? Json::object() : object_in(base + "summary.json", summary_text);
  const std::vector<RunChart> charts = run_charts(run);
  for (const RunChart& chart : charts) write_file(base + chart.file, chart.svg);
  write_file(base + "report.html", html_of({.title = name_of(run_folder),
                                            .run = run,
                                            .charts = charts,
                                            .config = config,
                                            .summary = summary,
                                            .sample = read_if_there(base + "sample.txt"),
                                            .failure = read_if_there(base + "failure.txt")}));
}

}  // namespace tessera::tools
