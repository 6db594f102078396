// Tests of reading JSON objects: figures by name, rows for a page, reasons of errors.

#include "tessera/models/watch/metrics_reader.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tests/models/watch/readers.h"

namespace tessera::models::watch {
namespace {

TEST_CASE("JSON object: figures by name", "[watch]") {
  const JsonObject object(R"({"n":-9007199254740993,"x":2,"none":null,"on":true})");
  CHECK(object.integer("n") == -9007199254740993);
  CHECK(object.number("x") == 2);
  CHECK(std::isnan(object.number("none")));
  CHECK(object.boolean("on"));
  CHECK(object.contains("none"));
  CHECK_FALSE(object.contains("N"));
  const JsonObject inner =
      JsonObject(R"({"in":{"x":0.1}})").object("in");  // outlives the outer object
  CHECK(inner.number("x") == 0.1);
  CHECK_FALSE(JsonObject("[1]").contains("n"));
}

TEST_CASE("JSON object: errors are the library's reasons", "[watch]") {
  const JsonObject object(R"({"a":"b"})");
  const auto fails_with = [](const std::string& text, const auto& call) {
    CHECK_THROWS_AS(call(), DataError);
    CHECK_THROWS_WITH(call(), Catch::Contains(text));
  };
  fails_with("parse error at line 1, column 2", [] { return JsonObject("{,"); });
  fails_with("key 'c' not found", [&] { return object.number("c"); });
  fails_with("type must be number, but is string", [&] { return object.number("a"); });
  fails_with("type must be number, but is string", [&] { return object.integer("a"); });
  fails_with("type must be boolean, but is string", [&] { return object.boolean("a"); });
  fails_with("cannot use at() with string", [&] { return object.object("a").number("b"); });
  fails_with("cannot use at() with number", [] { return JsonObject("7").integer("step"); });
}

TEST_CASE("JSON object: rows in the order of the members", "[watch]") {
  const auto rows =
      json_rows(R"({"z":"a \"b\"","a":{"y":{"k":1e-3},"empty":{},"x":[1,{"q":null}]},"m":false})");
  REQUIRE(rows.has_value());
  std::vector<std::string> texts;
  for (const JsonRow& row : *rows) texts.push_back(row.name + " = " + row.value);
  CHECK(texts == std::vector<std::string>{"z = a \"b\"", "a.y.k = 0.001", "a.empty = {}",
                                          "a.x = [1,{\"q\":null}]", "m = false"});
  CHECK(json_rows("{}")->empty());
  for (const char* other : {"", "[1]", "null", "{", "{}x", "\"{}\""})
    CHECK_FALSE(json_rows(other).has_value());
}

}  // namespace

namespace {

// Tests of reading metrics.jsonl: written metrics are read back, repeated and killed runs, errors.

using testing::step_metrics;
using testing::TemporaryFolder;
using testing::write_text;

std::string line(const StepMetrics& step) { return json_line(step, DType::kF64) + "\n"; }
std::string line(const EvalMetrics& eval) { return json_line(eval, DType::kF64) + "\n"; }

RunMetrics read_back(const std::string& text) {
  const TemporaryFolder folder;
  write_text(folder / "metrics.jsonl", text);
  return read_metrics(folder / "metrics.jsonl");
}

TEST_CASE("metrics reader: every figure comes back", "[watch]") {
  StepMetrics step = step_metrics(3);
  step.auxiliary_loss = 0.125;
  step.loss_scale = 1024;
  step.skipped = true;
  const RunMetrics run = read_back(
      line(step) +
      line(EvalMetrics{.step = 3, .loss = 1.0 / 3, .accuracy = 0.5, .bits_per_byte = 0.7}));
  REQUIRE(run.steps.size() == 1);
  CHECK(line(run.steps[0]) == line(step));
  CHECK(run.steps[0].loss == step.loss);
  CHECK(run.steps[0].skipped);
  REQUIRE(run.evals.size() == 1);
  CHECK(run.evals[0].step == 3);
  CHECK(run.evals[0].loss == 1.0 / 3);
  CHECK(run.evals[0].accuracy == 0.5);
  CHECK(run.evals[0].bits_per_byte == 0.7);
  CHECK_FALSE(run.cut);
}

TEST_CASE("metrics reader: few figures, others, and none", "[watch]") {
  const RunMetrics run = read_back(
      "{\"step\":1,\"loss\":2.5}\n\n{\"step\":2,\"loss\":null,\"grad_norm\":null,\"more\":[1]}\n");
  REQUIRE(run.steps.size() == 2);
  CHECK(run.steps[0].loss == 2.5);
  CHECK(run.steps[0].tokens == 0);
  CHECK_FALSE(run.steps[0].auxiliary_loss.has_value());
  CHECK(std::isnan(run.steps[1].loss));
  CHECK(std::isnan(run.steps[1].grad_norm));
  CHECK(read_back("").steps.empty());
}

TEST_CASE("metrics reader: a line cut at any byte", "[watch]") {
  const std::string first = line(step_metrics(1)), second = line(step_metrics(2));
  for (std::size_t kept = 0; kept <= second.size(); ++kept) {
    const RunMetrics run = read_back(first + second.substr(0, kept));
    // The line is complete even without its newline.
    const bool whole = kept + 1 >= second.size();
    CHECK(run.steps.size() == (whole ? 2 : 1));
    CHECK(run.cut == (kept > 0 && !whole));
  }
}

TEST_CASE("metrics reader: steps of a resumed run count once", "[watch]") {
  std::string text;
  for (const int i : {1, 2, 3, 4}) text += line(step_metrics(i));
  text += line(EvalMetrics{.step = 4, .loss = 9});
  StepMetrics again = step_metrics(3);
  again.loss = 77;
  text += line(again) + line(EvalMetrics{.step = 3, .loss = 8});
  const RunMetrics run = read_back(text);
  REQUIRE(run.steps.size() == 3);
  CHECK(run.steps[2].step == 3);
  CHECK(run.steps[2].loss == 77);
  REQUIRE(run.evals.size() == 1);
  CHECK(run.evals[0].loss == 8);
}

TEST_CASE("metrics reader: errors name file and line", "[watch]") {
  const TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  for (const char* wrong :
       {"{\"step\":1,", "[1,2]", "7", "{\"loss\":1}", "{\"step\":1}", "{\"step\":\"a\",\"loss\":1}",
        "{\"step\":1,\"loss\":\"x\"}", "{\"eval\":3}", "{\"eval\":{\"step\":1}}", "\xFF"}) {
    CAPTURE(wrong);
    write_text(path, line(step_metrics(1)) + wrong + "\n" + line(step_metrics(2)));
    CHECK_THROWS_AS(read_metrics(path), DataError);
    CHECK_THROWS_WITH(read_metrics(path),
                      Catch::StartsWith("[metrics] " + path + " line 2 is no line of metrics: "));
  }
  CHECK_THROWS_WITH(read_metrics(folder / "absent.jsonl"),
                    Catch::Contains("absent.jsonl cannot be read: No such file or directory"));
  CHECK_THROWS_AS(read_metrics(folder.path()), Error);
}

TEST_CASE("metrics: what stays of a run that goes on from a checkpoint", "[watch]") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "metrics.jsonl";
  const auto step = [](std::int64_t n) {
    return json_line(testing::step_metrics(n), DType::kF64) + "\n";
  };
  const auto eval = [](std::int64_t n) {
    return json_line(EvalMetrics{.step = n, .loss = 0.5}, DType::kF64) + "\n";
  };
  testing::write_text(
      path, step(1) + step(2) + eval(2) + step(3) + step(4) + eval(4) + step(5).substr(0, 9));
  CHECK(metrics_until(path, {.step = 4, .eval_step = 4}) ==
        step(1) + step(2) + eval(2) + step(3) + step(4) + eval(4));
  CHECK(metrics_until(path, {.step = 4, .eval_step = 2}) ==
        step(1) + step(2) + eval(2) + step(3) + step(4));
  CHECK(metrics_until(path, {.step = 1}) == step(1));
  CHECK(metrics_until(path, {}).empty());
  testing::write_text(path, step(1) + "nothing\n" + step(2));
  CHECK_THROWS_WITH(metrics_until(path, {.step = 9}),
                    Catch::Contains("line 2 is no line of metrics"));
  CHECK_THROWS_WITH(metrics_until(folder / "none", {}), Catch::Contains("cannot be read"));
}

}  // namespace
}  // namespace tessera::models::watch
