#include "tessera/models/watch/report.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "tessera/models/watch/markup.h"
#include "tessera/models/watch/metrics_reader.h"
#include "tessera/models/watch/report_sections.h"
#include "tessera/models/watch/run_files.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/io/atomic_file.h"

namespace tessera::models::watch {
namespace {

constexpr std::string_view kStyle = R"css(
:root{color-scheme:light dark;--page:#f3f4f6;--card:#ffffff;--text:#1f2937;--soft:#6b7280;--line:#e5e7eb;
--bad:#b91c1c;--bad-card:#fef2f2}
@media (prefers-color-scheme:dark){:root{--page:#070a0d;--card:#0f1419;--text:#e5e7eb;--soft:#9aa3b0;--line:#262d36;
--bad:#fca5a5;--bad-card:#2a1215}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);line-height:1.45;
font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:15px}
main{max-width:1200px;margin:0 auto;padding:28px 20px 48px}
h1{font-size:24px;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:16px;margin:32px 0 10px}
.soft{color:var(--soft);margin:0}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:12px;margin:20px 0 0;padding:0}
.figures div{background:var(--card);border-radius:6px;padding:12px}
.figures dt{color:var(--soft);font-size:13px}
.figures dd{margin:0;font-size:19px;font-weight:600;white-space:nowrap;font-variant-numeric:tabular-nums}
.figures dd+dd{font-size:12px;font-weight:400;white-space:normal;color:var(--soft)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:14px;margin-top:14px}
.charts svg{width:100%;height:auto;display:block}
.wide{grid-column:1/-1;overflow-x:auto}
.wide svg{min-width:640px}
.card{background:var(--card);border-radius:6px;padding:6px 14px;overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:6px 16px 6px 0;border-top:1px solid var(--line);vertical-align:top;font-weight:400}
thead th{color:var(--soft);font-size:13px}
tr:first-child th,tr:first-child td{border-top:0}
thead+tbody tr:first-child th,thead+tbody tr:first-child td{border-top:1px solid var(--line)}
tbody th{color:var(--soft);white-space:nowrap;width:1%}
td{overflow-wrap:anywhere}
pre{background:var(--card);border-radius:6px;padding:14px;margin:0;white-space:pre-wrap;overflow-wrap:anywhere;
font-family:ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:13px}
.table{white-space:pre;overflow-wrap:normal;overflow-x:auto}
.failure{background:var(--bad-card);color:var(--bad);border-left:4px solid var(--bad);margin-top:18px}
footer{color:var(--soft);font-size:12px;margin-top:36px}
)css";

std::string rows_section(std::string_view title, const std::vector<JsonRow>& rows) {
  std::string out;
  for (const JsonRow& row : rows)
    out += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escaped(row.name),
                       escaped(row.value));
  if (out.empty()) return {};
  return fmt::format("<h2>{}</h2>\n<div class=\"card\"><table><tbody>\n{}</tbody></table></div>\n",
                     title, out);
}

std::string figures_section(const RunMetrics& run) {
  std::string out;
  for (const RunFigure& figure : run_figures(run))
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd><dd>{}</dd></div>\n", escaped(figure.name),
                       escaped(figure.value), escaped(figure.note));
  return out.empty() ? out : "<dl class=\"figures\">\n" + out + "</dl>\n";
}

// The first chart has the full width of the page.
std::string charts_section(const std::vector<RunChart>& charts) {
  std::string out = "<div class=\"charts\">\n";
  for (const RunChart& chart : charts)
    out += fmt::format("<div{}>\n{}</div>\n", &chart == charts.data() ? " class=\"wide\"" : "",
                       chart.svg);
  return out + "</div>\n";
}

std::string evals_section(const RunMetrics& run) {
  if (run.evals.empty()) return {};
  const bool bits = run.evals.back().bits_per_byte.has_value();
  const bool accuracy = run.evals.back().accuracy.has_value();
  std::string out = fmt::format(
      "<h2>Evaluations</h2>\n<div class=\"card\"><table><thead><tr><th>after step</th>"
      "<th>loss</th>{}{}</tr></thead><tbody>\n",
      bits ? "<th>bits per byte</th>" : "", accuracy ? "<th>accuracy</th>" : "");
  for (const EvalMetrics& eval : run.evals) {
    out += fmt::format("<tr><td>{}</td><td>{}</td>", eval.step, loss_label(eval.loss));
    if (bits) out += fmt::format("<td>{}</td>", loss_label(eval.bits_per_byte.value_or(0)));
    if (accuracy) out += fmt::format("<td>{:.2f} %</td>", 100 * eval.accuracy.value_or(0));
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string text_section(std::string_view title, const std::string& text,
                         std::string_view attributes = "") {
  if (text.empty()) return {};
  return fmt::format("<h2>{}</h2>\n<pre{}>{}</pre>\n", title, attributes, escaped(text));
}

std::string state_of(const ReportPage& page) {
  const std::string steps =
      page.run.steps.empty() ? "no step yet" : fmt::format("{} steps", page.run.steps.back().step);
  if (!page.failure.empty()) return steps + ", then it failed";
  return page.run.cut ? steps + "; the file of metrics ends in the middle of a line" : steps;
}

}  // namespace

std::string html_of(const ReportPage& page) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
      "<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body><main>\n<h1>{0}</h1>\n"
      "<p class=\"soft\">{2}</p>\n",
      escaped(page.title), kStyle, escaped(state_of(page)));
  if (!page.failure.empty())
    out += fmt::format("<pre class=\"failure\">{}</pre>\n", escaped(page.failure));
  out += figures_section(page.run);
  out += charts_section(page.charts);
  out += evals_section(page.run);
  out += text_section("Profile", page.profile, " class=\"table\"");
  out += text_section("Sample", page.sample);
  out += rows_section("Further figures", page.summary);
  out += rows_section("Configuration", page.config);
  return out +
         "<footer>Made by tessera from the files of this folder.</footer>\n</main></body>\n"
         "</html>\n";
}

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

std::vector<JsonRow> rows_if_there(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  const std::optional<std::vector<JsonRow>> rows = json_rows(read_file(path));
  TESSERA_CHECK_AS(DataError, rows.has_value(), kWhere,
                   "{} holds no JSON object; repair or remove it", path);
  return *rows;
}

void write_file(const std::string& path, const std::string& text) {
  AtomicFile file(kWhere, path);
  file.write(text.data(), text.size());
  file.commit();
}

// The name of the folder itself, also for "." and "runs/a/". As it was passed where the system
// cannot tell its full path: that is no reason to have no report.
std::string name_of(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::weakly_canonical(folder, error);
  if (error) return folder;
  return path.has_filename() ? path.filename() : path.parent_path().filename();
}

}  // namespace

void write_report(const std::string& folder) {
  const std::string base = folder + "/";
  const RunMetrics run = read_metrics(base + kMetricsFile);
  const std::vector<JsonRow> config = rows_if_there(base + kConfigFile);
  const std::vector<JsonRow> summary = rows_if_there(base + kSummaryFile);
  const std::vector<RunChart> charts = run_charts(run);
  for (const RunChart& chart : charts) write_file(base + chart.file, chart.svg);
  write_file(base + kPage, html_of({.title = name_of(folder),
                                    .run = run,
                                    .charts = charts,
                                    .config = config,
                                    .summary = summary,
                                    .sample = read_if_there(base + kSampleFile),
                                    .profile = read_if_there(base + kProfileFile),
                                    .failure = read_if_there(base + kFailureFile)}));
}

std::vector<std::string> report_files() {
  std::vector<std::string> names = {kPage};
  for (const RunChart& chart : run_charts({})) names.push_back(chart.file);
  return names;
}

}  // namespace tessera::models::watch
