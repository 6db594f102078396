// Tests of the report: the page can be parsed and needs no other file, its figures, missing input.
#include "tessera/models/watch/report.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/models/watch/metrics_writer.h"
#include "tessera/models/watch/report_sections.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/models/watch/readers.h"

namespace tessera::models::watch {
namespace {

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

TEST_CASE("report: the profile is a section, as it is written", "[watch]") {
  const TemporaryFolder folder;
  write_run(folder, 3);
  CHECK(report_of(folder).of_class("table").empty());
  write_text(folder / "profile.txt", "profile\n\nmatmul  1 <ms>\n");
  CHECK(report_of(folder).of_class("table").at(0)->text == "profile\n\nmatmul  1 <ms>\n");
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

// A loop of one's own need not measure time, memory and the gradient's norm.
TEST_CASE("report: a loop that writes losses alone", "[watch]") {
  const TemporaryFolder folder;
  const std::string run = folder / "runs/first";
  MetricsWriter metrics(run);
  CHECK(metrics.path() == run + "/metrics.jsonl");
  for (std::int64_t i = 1; i <= 3; ++i) metrics.write(StepMetrics{.step = i, .loss = 0.5});
  metrics.write(EvalMetrics{.step = 3, .loss = 0.25, .accuracy = 0.5});
  write_report(run);  // without config.json
  const XmlElement page = parse_xml(read_text(run + "/report.html"));
  CHECK(page.all("svg").size() == 1);
  CHECK(figure(page, "training loss") == "0.5000");
  CHECK(figure(page, "accuracy") == "50.00 %");
  for (const char* name : {"samples per second", "peak memory", "sent", "time in steps"})
    CHECK(figure(page, name).empty());
  metrics.write(
      StepMetrics{.step = 4, .loss = 0.5, .learning_rate = 0.1, .samples = 3, .step_ms = 2});
  write_report(run);
  const XmlElement more = parse_xml(read_text(run + "/report.html"));
  CHECK(more.all("svg").size() == 3);  // and learning rate and throughput
  CHECK(figure(more, "time in steps") == "2 ms");
}

TEST_CASE("metrics: all digits of the dtype; a second writer appends; errors name the path",
          "[watch]") {
  const TemporaryFolder folder;
  const double third = 1.0 / 3;
  MetricsWriter(folder.path()).write(EvalMetrics{.step = 1, .loss = third});
  MetricsWriter(folder.path(), DType::kF64).write(EvalMetrics{.step = 2, .loss = third});
  CHECK(read_text(folder / "metrics.jsonl") ==
        "{\"eval\":{\"step\":1,\"loss\":0.333333333}}\n"
        "{\"eval\":{\"step\":2,\"loss\":0.33333333333333331}}\n");
  write_text(folder / "file", "");
  CHECK_THROWS_WITH(MetricsWriter(folder / "file"),
                    Catch::StartsWith("[metrics] ") &&
                        Catch::EndsWith("file cannot be made: Not a directory; choose another "
                                        "folder"));
  std::filesystem::create_directories(folder / "other/metrics.jsonl");
  CHECK_THROWS_WITH(MetricsWriter(folder / "other"),
                    Catch::EndsWith("other/metrics.jsonl cannot be written: Is a directory; choose "
                                    "another folder"));
  std::filesystem::create_directory(folder / "full");
  std::filesystem::create_symlink("/dev/full", folder / "full/metrics.jsonl");
  CHECK_THROWS_WITH(MetricsWriter(folder / "full").write(StepMetrics{.step = 1}),
                    Catch::EndsWith("full/metrics.jsonl cannot be written: No space left on "
                                    "device; make room"));
}

// The last line of each is complete, and so is a line that is written behind it.
TEST_CASE("metrics: half a line of a killed process is removed", "[watch]") {
  const std::string whole = json_line(step_metrics(1), DType::kF32) + "\n";
  for (const std::string& kept : {std::string(), whole, whole + whole})
    for (const std::string& half : {std::string(), std::string("{"), std::string(4095, 'x'),
                                    std::string(4096, 'x'), std::string(9000, 'x')}) {
      CAPTURE(kept, half.size());
      const TemporaryFolder folder;
      write_text(folder / "metrics.jsonl", kept + half);
      MetricsWriter(folder.path()).write(step_metrics(1));
      CHECK(read_text(folder / "metrics.jsonl") == kept + whole);
    }
}

TEST_CASE("metrics: a line that does not fit leaves no half line", "[watch]") {
  const TemporaryFolder folder;
  const std::string whole = json_line(step_metrics(1), DType::kF32) + "\n";
  MetricsWriter metrics(folder.path());
  metrics.write(step_metrics(1));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = whole.size() + 5, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string text;
  try {
    metrics.write(step_metrics(1));
  } catch (const Error& error) {
    text = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  CHECK(text == "[metrics] " + metrics.path() + " cannot be written: File too large; make room");
  CHECK(read_text(metrics.path()) == whole);
  metrics.write(step_metrics(1));
  CHECK(read_text(metrics.path()) == whole + whole);
}

// The full path of the folder is longer than the system takes: the report has the name as passed.
TEST_CASE("report: a folder whose full path is not known", "[watch]") {
  const TemporaryFolder folder;
  const int here = open(".", O_RDONLY | O_DIRECTORY);
  REQUIRE(here >= 0);
  std::filesystem::current_path(folder.path());
  for (int i = 0; i < 25; ++i) {
    const std::string name(200, 'd');
    REQUIRE(mkdir(name.c_str(), 0755) == 0);
    REQUIRE(chdir(name.c_str()) == 0);
  }
  write_text("metrics.jsonl", json_line(step_metrics(1), DType::kF32) + "\n");
  std::string page, failure;
  try {
    write_report(".");
    page = read_text("report.html");
  } catch (const std::exception& error) {
    failure = error.what();
  }
  REQUIRE(fchdir(here) == 0);
  close(here);
  CHECK(failure.empty());
  CHECK(page.find("<title>.</title>") != std::string::npos);
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
}  // namespace tessera::models::watch
