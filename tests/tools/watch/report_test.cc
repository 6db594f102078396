// Tests of the report: the page can be parsed and needs no other file, its figures, missing input.
#include "tessera/tools/watch/report.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tests/tools/watch/readers.h"
#include "tessera/tools/watch/report_sections.h"

namespace tessera::tools {
namespace {

using models::EvalMetrics;
using testing::parse_xml;
using testing::read_text;
using testing::step_metrics;
using testing::TemporaryFolder;
using testing::write_text;
using testing::XmlElement;

const std::vector<std::string> kPictures = {"loss.svg", "learning_rate.svg", "throughput.svg",
                                            "memory.svg", "grad_norm.svg"};

void write_run(const TemporaryFolder& folder, int steps) {
  std::string metrics;
  for (int i = 1; i <= steps; ++i) {
    metrics += json_line(step_metrics(i), DType::kF32) + "\n";
    if (i % 10 == 0)
      metrics +=
          json_line(EvalMetrics{.step = i, .loss = 0.75, .bits_per_byte = 1.25}, DType::kF32) +
          "\n";
  }
  write_text(folder / "metrics.jsonl", metrics);
  write_text(folder / "config.json", R"({"model":"gpt","optimizer":{"lr":0.001},"hidden":[3,4]})");
}

XmlElement report_of(const TemporaryFolder& folder) {
  write_report(folder.path());
  return parse_xml(read_text(folder / "report.html"));
}

// The value for a figure's name; "" if there is none.
std::string figure(const XmlElement& page, const std::string& name) {
  for (const XmlElement* list : page.of_class("figures"))
    for (const XmlElement& entry : list->children)
      if (entry.children.at(0).text == name) return entry.children.at(1).text;
  return {};
}

std::string row(const XmlElement& page, const std::string& name) {
  for (const XmlElement* line : page.all("tr"))
    if (line->children.at(0).text == name) return line->children.at(1).text;
  return {};
}

TEST_CASE("report: figures, pictures, evaluations, configuration", "[watch]") {
  const TemporaryFolder folder;
  write_run(folder, 40);
  write_text(folder / "summary.json", R"({"parameters":1234,"wall time":"3 s"})");
  write_text(folder / "sample.txt", "a <b> & \xFF\n  second line");
  const XmlElement page = report_of(folder);
  CHECK(page.all("title").at(0)->text == std::filesystem::path(folder.path()).filename().string());
  double sum = 0;
  for (int i = 21; i <= 40; ++i) sum += step_metrics(i).loss;
  CHECK(std::stod(figure(page, "training loss")) == Approx(sum / 20).margin(1e-4));
  CHECK(figure(page, "validation loss") == "0.7500");
  CHECK(figure(page, "bits per byte") == "1.2500");
  CHECK(figure(page, "tokens per second") == "2000");
  CHECK(figure(page, "peak memory") == "976.6 KiB");
  CHECK(figure(page, "sent") == "27.34 KiB");
  CHECK(figure(page, "time in steps") == "6 s");
  CHECK(row(page, "parameters") == "1234");
  CHECK(row(page, "wall time") == "3 s");
  CHECK(row(page, "model") == "gpt");
  CHECK(row(page, "optimizer.lr") == "0.001");
  CHECK(row(page, "hidden") == "[3,4]");
  CHECK(row(page, "40") == "0.7500");
  CHECK(page.all("pre").at(0)->text == "a <b> & \xEF\xBF\xBD\n  second line");
  CHECK(page.all("svg").size() == kPictures.size());
  for (const std::string& name : kPictures) {
    const std::string svg = read_text(folder / name);
    CHECK(parse_xml(svg).name == "svg");
    CHECK(read_text(folder / "report.html").find(svg) != std::string::npos);
  }
}

TEST_CASE("report: needs nothing but itself", "[watch]") {
  const TemporaryFolder folder;
  write_run(folder, 30);
  write_report(folder.path());
  const std::string text = read_text(folder / "report.html");
  for (const char* outside :
       {"src=", "href", "@import", "url(", "<script", "<link", "<iframe", "https:"})
    CHECK(text.find(outside) == std::string::npos);
  // Elements of the five charts have different names.
  std::vector<std::string> ids;
  parse_xml(text).visit([&](const XmlElement& element) {
    const auto found = element.attributes.find("id");
    if (found != element.attributes.end()) ids.push_back(found->second);
  });
  std::sort(ids.begin(), ids.end());
  CHECK(ids.size() == 10);
  CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
}

TEST_CASE("report: a run that failed, one without a step, one of images", "[watch]") {
  const TemporaryFolder folder;
  write_run(folder, 0);
  XmlElement page = report_of(folder);
  CHECK(page.of_class("soft").at(0)->text == "no step yet");
  CHECK(page.of_class("figures").empty());
  CHECK(page.all("svg").size() == kPictures.size());

  write_run(folder, 5);
  write_text(folder / "failure.txt", "[trainer] \"a\" has 3 values that are not finite on rank 1");
  page = report_of(folder);
  CHECK(page.of_class("soft").at(0)->text == "5 steps, then it failed");
  CHECK(page.of_class("failure").at(0)->text ==
        "[trainer] \"a\" has 3 values that are not finite on rank 1");

  std::filesystem::remove(folder / "failure.txt");
  write_text(folder / "metrics.jsonl",
             "{\"step\":1,\"loss\":null,\"samples\":50,\"step_ms\":100,\"skipped\":true}\n"
             "{\"eval\":{\"step\":1,\"loss\":0.00125,\"accuracy\":0.875}}\n{\"step\":2,");
  page = report_of(folder);
  CHECK(page.of_class("soft").at(0)->text.find("ends in the middle of a line") !=
        std::string::npos);
  CHECK(figure(page, "training loss") == "not finite");
  CHECK(figure(page, "samples per second") == "500");
  CHECK(figure(page, "accuracy") == "87.50 %");
  CHECK(figure(page, "validation loss") == "0.00125");
  CHECK(figure(page, "steps left out") == "1");
}

TEST_CASE("report: hostile texts", "[watch]") {
  const TemporaryFolder folder;
  write_run(folder, 3);
  write_text(folder / "config.json", R"({"<b>\u0000&\"":"</td><script>x</script>"})");
  write_text(folder / "failure.txt", "</pre><script>\x01\xC0");
  const XmlElement page = report_of(folder);
  CHECK(page.all("script").empty());
  CHECK(row(page, "<b>\xEF\xBF\xBD&\"") == "</td><script>x</script>");
}

TEST_CASE("report: errors name the file", "[watch]") {
  const TemporaryFolder folder;
  const auto fails_with = [&](const std::string& text) {
    CHECK_THROWS_WITH(write_report(folder.path()), Catch::Contains(text));
  };
  fails_with("metrics.jsonl cannot be read: No such file");
  write_text(folder / "metrics.jsonl", "");
  fails_with("config.json cannot be read: No such file");
  write_text(folder / "config.json", "[1]");
  CHECK_THROWS_AS(write_report(folder.path()), DataError);
  fails_with("config.json holds no JSON object");
  write_text(folder / "config.json", "{}");
  write_text(folder / "summary.json", "{");
  fails_with("summary.json holds no JSON object");
  write_text(folder / "summary.json", "{}");
  std::filesystem::create_directory(folder / "loss.svg");
  fails_with("loss.svg");
  std::filesystem::remove(folder / "loss.svg");
  write_report(folder.path() + "/");
  CHECK(std::filesystem::exists(folder / "report.html"));
}

TEST_CASE("report: durations", "[watch]") {
  CHECK(duration_label(0.0004) == "0 ms");
  CHECK(duration_label(0.85) == "850 ms");
  CHECK(duration_label(6) == "6 s");
  CHECK(duration_label(28.34) == "28.3 s");
  CHECK(duration_label(271) == "4 min 31 s");
  CHECK(duration_label(3599.6) == "1 h 00 min");
  CHECK(duration_label(7380) == "2 h 03 min");
  CHECK(duration_label(-1) == "unknown");
}

}  // namespace
}  // namespace tessera::tools
