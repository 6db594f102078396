// Checkpoints of a run: a run that is killed or interrupted goes on where it was, with the same numbers; what
// would be in the way is refused; other commands read checkpoints.

#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/program/run_program.h"
#include "tessera/tests/support/test_main.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// All that could differ after a resume is on: dropout, shuffling, evaluations.
Words small_run(const Words& more) {
  return train_tiny("gpt", joined({"--steps", "60", "--dropout", "0.1", "--eval-every", "8",
                                   "--save-every", "5", "--sample-tokens", "20"},
                                  more));
}

ProgramResult succeed(const Words& words) {
  const ProgramResult result = run_program(words);
  INFO("standard error: " << result.err);
  REQUIRE(result.exit_code == 0);
  return result;
}

std::size_t lines_in(const std::string& out) {
  return lines_of(read_file(out + "/metrics.jsonl")).size();
}

bool has(const std::string& path) { return fs::exists(path); }

std::string step_folder(const std::string& out, int step) {
  return out + "/checkpoints/step-" + std::to_string(step);
}

// A process that is killed may leave a hidden folder.
Words steps_in(const std::string& out) {
  Words names;
  for (const auto& entry : fs::directory_iterator(out + "/checkpoints"))
    if (!entry.path().filename().string().starts_with("."))
      names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// Starts the run and kills all of its processes once a checkpoint of `step` or later is there.
void kill_after(const Words& words, const std::string& out, int step) {
  Program program(words);
  REQUIRE(eventually(std::chrono::seconds(60), [&] {
    for (int at = step; at < step + 60; ++at)
      if (has(step_folder(out, at))) return true;
    return false;
  }));
  for (const pid_t pid : program.alive()) kill(pid, SIGKILL);
  program.wait();
}

// The same numbers as a run that was not interrupted, to the last bit.
void check_same(const std::string& out, const TinyRun& whole) {
  const TinyRun made{.result = {}, .folder = out};
  CHECK(made.metrics() == whole.metrics());
  CHECK(made.file("model.safetensors") == whole.file("model.safetensors"));
  CHECK(made.file("sample.txt") == whole.file("sample.txt"));
  for (int rank = 0; rank < 2; ++rank) {
    const std::string file = "/rank-0000" + std::to_string(rank) + ".safetensors";
    CHECK(read_file(step_folder(out, 60) + file) ==
          read_file(step_folder(whole.folder, 60) + file));
  }
  CHECK(read_file(step_folder(out, 60) + "/index.json") ==
        read_file(step_folder(whole.folder, 60) + "/index.json"));
}

const TinyRun& whole_run() {
  static const TinyRun whole = [] {
    const std::string out = fresh_folder("whole");
    return TinyRun{.result = succeed(small_run({"--out", out})), .folder = out};
  }();
  return whole;
}

TEST_CASE("a run that is killed three times and resumed is the run that was not") {
  const std::string launch = GENERATE("threads", "processes");
  const std::string out = fresh_folder("killed");
  const Words words = small_run({"--launch", launch, "--out", out, "--resume", "auto"});
  for (const int step : {5, 20, 35}) kill_after(words, out, step);
  const ProgramResult last = succeed(words);
  CHECK_THAT(last.out, Contains("resumed    " + out + "/checkpoints/step-"));
  check_same(out, whole_run());
  CHECK(steps_in(out) == Words{"step-50", "step-55", "step-60"});
}

// The step that is interrupted has no evaluation, so the run that goes on begins with it.
TEST_CASE("Ctrl-C saves a checkpoint, and the run goes on from it") {
  const std::string out = fresh_folder("interrupted"), other = fresh_folder("not_interrupted");
  const Words often = small_run({"--eval-every", "1", "--out"}), words = joined(often, {out});
  const TinyRun whole{.result = succeed(joined(often, {other})), .folder = other};
  Program program(words);
  REQUIRE(eventually(std::chrono::seconds(60), [&] { return lines_in(out) > 6; }));
  kill(program.pid(), SIGINT);
  const ProgramResult result = program.wait();
  if (result.exit_code == 0) return;  // it was faster
  CHECK(result.exit_code == 128 + SIGINT);
  const std::string step =
      Json::parse(lines_of(read_file(out + "/metrics.jsonl")).back())["step"].dump();
  CHECK(has(out + "/checkpoints/step-" + step));
  CHECK_THAT(result.err, Contains("; the same command with --resume auto goes on at step " +
                                  std::to_string(std::stoi(step) + 1)));
  succeed(joined(words, {"--resume", "auto"}));
  check_same(out, whole);
}

TEST_CASE("a time between checkpoints, and none") {
  const std::string out = fresh_folder("timed");
  Words words = train_tiny("gpt", {"--steps", "12", "--sample-tokens", "0", "--out", out});
  SECTION("0 seconds after the last one") {
    succeed(joined(words, {"--save-every", "1s", "--keep", "0", "--steps", "400"}));
    REQUIRE(has(out + "/checkpoints"));
    CHECK_FALSE(has(step_folder(out, 400)));
    for (const std::string& name : steps_in(out)) CHECK(name.starts_with("step-"));
  }
  SECTION("by default ten minutes") {
    succeed(words);
    CHECK_FALSE(has(out + "/checkpoints"));
  }
  SECTION("never") {
    succeed(joined(words, {"--save-every", "0"}));
    CHECK_FALSE(has(out + "/checkpoints"));
  }
}

TEST_CASE("--resume auto without a checkpoint begins, and of a complete run does nothing") {
  const std::string out = fresh_folder("begun");
  const Words words = small_run({"--out", out, "--resume", "auto"});
  const ProgramResult first = succeed(words);
  CHECK_THAT(first.out, !Contains("resumed"));
  check_same(out, whole_run());
  const std::string model = read_file(out + "/model.safetensors");
  const ProgramResult second = succeed(words);
  CHECK_THAT(second.out, Contains(": nothing is left to do"));
  CHECK(read_file(out + "/model.safetensors") == model);
  check_same(out, whole_run());
}

TEST_CASE("a checkpoint of another run is continued in a new folder, by other ranks") {
  const std::string from = GENERATE("", "/checkpoints", "/checkpoints/step-55");
  const std::string out = fresh_folder("moved");
  const ProgramResult result =
      succeed(small_run({"--out", out, "--ranks", "3", "--launch", "threads", "--shard", "grad",
                         "--steps", "62", "--resume", whole_run().folder + from}));
  const std::string step = from.ends_with("55") ? "55" : "60";
  CHECK_THAT(result.out, Contains("resumed    " + whole_run().folder + "/checkpoints/step-" + step +
                                  ", after step " + step + " of 62, loaded in "));
  const Words lines = lines_of(read_file(out + "/metrics.jsonl"));
  CHECK(Json::parse(lines.front())["step"].dump() == std::to_string(std::stoi(step) + 1));
}

TEST_CASE("checkpoints of other work are not overwritten") {
  const std::string out = fresh_folder("owned");
  fs::copy(whole_run().folder, out, fs::copy_options::recursive);
  const auto refused = [&](const Words& more, const std::string& text) {
    const ProgramResult result = run_program(small_run(joined({"--out", out}, more)));
    CHECK(result.exit_code == 2);
    CHECK_THAT(result.err, Contains(text));
    check_same(out, whole_run());
  };
  refused(
      {},
      "/checkpoints/step-50 is a checkpoint of an earlier run; go on from it with --resume auto");
  refused({"--save-every", "0"}, "is a checkpoint of an earlier run");
  refused({"--resume", step_folder(out, 50)},
          "step-55 is a later checkpoint in the folder of --out");
  refused({"--resume", fresh_folder("none")}, "holds no complete checkpoint");
  fs::resize_file(step_folder(out, 60) + "/rank-00001.safetensors", 10);
  const ProgramResult result =
      run_program(small_run({"--out", out, "--resume", "auto", "--steps", "70"}));
  CHECK(result.exit_code == 2);
  CHECK_THAT(result.err,
             Contains("step-60 is not complete") &&
                 Contains("remove or rename it, and the run goes on from " + step_folder(out, 55)));
  const std::string elsewhere = fresh_folder("words");
  for (const Words& words : {Words{"--save-every", "5"}, Words{"--resume", "auto"}}) {
    const ProgramResult typed = run_program(train_tiny("gpt", words));
    CHECK(typed.exit_code == 2);
    CHECK_THAT(typed.err, Contains("name"));
  }
  CHECK(run_program(train_tiny("gpt", {"--out", elsewhere, "--save-every", "5x"})).exit_code == 2);
}

TEST_CASE("a damaged checkpoint names the one before it, and changed data both fingerprints") {
  const std::string out = fresh_folder("damaged");
  fs::copy(whole_run().folder, out, fs::copy_options::recursive);
  const std::string path = step_folder(out, 60) + "/rank-00000.safetensors";
  std::string bytes = read_file(path);
  bytes[bytes.size() / 2] ^= 1;
  write_file(path, bytes);
  const ProgramResult damaged =
      run_program(small_run({"--out", out, "--resume", "auto", "--steps", "70"}));
  CHECK(damaged.exit_code == 1);
  CHECK_THAT(damaged.err, Contains("is damaged") && Contains("before it there is") &&
                              Contains(step_folder(out, 55)));

  const ProgramResult other = run_program(small_run(
      {"--save-every", "0", "--seed", "9", "--steps", "70", "--resume", whole_run().folder}));
  CHECK(other.exit_code == 1);
  CHECK_THAT(other.err, Contains("is of a run on other samples") &&
                            Contains("seed 1; this run has") && Contains("seed 9"));
  const std::string text = fresh_folder("other_text");
  fs::copy(text_folder(), text, fs::copy_options::recursive);
  write_file(text + "/more.txt", std::string(2000, 'a') + "\n");
  const ProgramResult changed = run_program(small_run(
      {"--save-every", "0", "--data", text, "--steps", "70", "--resume", whole_run().folder}));
  CHECK(changed.exit_code == 1);
  CHECK_THAT(changed.err, Contains("is of a run on other samples"));
}

TEST_CASE("inspect shows what a checkpoint holds, and finds a flipped bit") {
  const TinyRun& whole = whole_run();
  const ProgramResult run = succeed({"inspect", whole.folder});
  for (const char* text : {"complete   ", "step-50", "checkpoint ", "model.", "optimizer.",
                           "2 parts: [0:", "values.trainer.step = 60",
                           "values.trainer.data = ", "all bytes have the checksums"})
    CHECK_THAT(run.out, Contains(text));
  CHECK_THAT(succeed({"inspect", step_folder(whole.folder, 55)}).out,
             Contains("values.trainer.step = 55"));
  CHECK_THAT(succeed({"inspect", whole.folder + "/model.safetensors"}).out,
             Contains("the file has no checksums"));
  const std::string copy = fresh_folder("copy");
  fs::copy(step_folder(whole.folder, 60), copy, fs::copy_options::recursive);
  const std::string path = copy + "/rank-00001.safetensors";
  std::string bytes = read_file(path);
  bytes.back() ^= 64;
  write_file(path, bytes);
  const ProgramResult damaged = run_program({"inspect", copy});
  CHECK(damaged.exit_code == 1);
  CHECK_THAT(damaged.err,
             Contains(path) && Contains("is damaged: bytes [0, ") && Contains("(tensors: "));
  CHECK_THAT(run_program({"inspect", fresh_folder("empty")}).err,
             Contains("holds no complete checkpoint"));
  CHECK_THAT(run_program({"inspect"}).err, Contains("inspect needs a path"));
  CHECK_THAT(run_program({"inspect", "/nowhere"}).err, Contains("there is no /nowhere"));
}

TEST_CASE("convert writes the file that the complete run wrote") {
  const TinyRun& whole = whole_run();
  const std::string folder = fresh_folder("converted");
  succeed({"convert", whole.folder, "--out", folder + "/model.safetensors"});
  CHECK(read_file(folder + "/model.safetensors") == whole.file("model.safetensors"));
  const ProgramResult again =
      run_program({"convert", whole.folder, "--out", folder + "/model.safetensors"});
  CHECK(again.exit_code == 2);
  CHECK_THAT(again.err, Contains("exists, and is not replaced"));
  CHECK(run_program({"convert", whole.folder}).exit_code == 2);
  const std::string inside = step_folder(whole.folder, 60) + "/model.safetensors";
  CHECK(run_program({"convert", whole.folder, "--out", inside}).exit_code == 2);
}

TEST_CASE("eval and generate read checkpoints") {
  const TinyRun& whole = whole_run();
  const std::string unfinished = fresh_folder("unfinished");
  fs::copy(whole.folder, unfinished, fs::copy_options::recursive);
  fs::remove(unfinished + "/model.safetensors");
  const auto said = [](const Words& words) { return succeed(words).out; };
  const std::string loss = said({"eval", "--run", whole.folder});
  CHECK(said({"eval", "--run", unfinished}) == loss);
  CHECK(said({"eval", "--run", step_folder(unfinished, 60), "--ranks", "3"}) == loss);
  CHECK(said({"eval", "--run", step_folder(unfinished, 50)}) != loss);
  const Words generated = {"generate", "--max-tokens", "12", "--run"};
  CHECK(said(joined(generated, {step_folder(unfinished, 60)})) ==
        said(joined(generated, {whole.folder})));
  fs::remove_all(unfinished + "/checkpoints");
  CHECK_THAT(run_program({"eval", "--run", unfinished}).err,
             Contains("has no model.safetensors and no complete checkpoint"));
}

TEST_CASE("runs of images and with a loss scale are resumed too") {
  const std::string out = fresh_folder("others"), whole = fresh_folder("others_whole");
  Words words = GENERATE(Words{"gpt"}, Words{"mlp"});
  if (words.front() == "mlp") {
    const std::string data = fresh_folder("data");
    write_fashion_mnist(data, {.train = 200, .test = 20});
    words = {"train", "mlp",      "--data",  data,      "--hidden",
             "8",     "--launch", "threads", "--batch", "16"};
  } else {
    words = train_tiny("gpt", {"--precision", "f16", "--sample-tokens", "0"});
  }
  words = joined(words, {"--save-every", "4", "--steps", "30", "--out"});
  succeed(joined(words, {whole}));
  const Words resumed = joined(words, {out, "--resume", "auto"});
  for (const int step : {4, 12}) kill_after(resumed, out, step);
  succeed(resumed);
  CHECK(TinyRun{{}, out}.metrics() == TinyRun{{}, whole}.metrics());
  CHECK(read_file(out + "/model.safetensors") == read_file(whole + "/model.safetensors"));
}

}  // namespace
}  // namespace tessera::testing
