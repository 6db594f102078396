// Commands write and replace only files that a run or command of ours wrote, none of their inputs,
// and no file of an earlier run before the first step of the new one.

#include "tessera/tools/program/run_folder.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>

#include "tessera/distributed/launch/launch.h"
#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/program/run_program.h"
#include "tessera/tools/program/options/output.h"
#include "tessera/tools/program/train.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void check_refused(const Words& words, int exit_code, const std::string& text,
                   const ProgramOptions& options = {}) {
  const ProgramResult result = run_program(words, options);
  INFO("standard error: " << result.err);
  CHECK(result.exit_code == exit_code);
  CHECK_THAT(result.err, Contains(text));
  CHECK(lines_of(result.err).size() == 1);
}

// The names and contents of the files in a folder, including hidden ones.
std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    found[entry.path().string()] = entry.is_regular_file() ? read_file(entry.path()) : "";
  return found;
}

std::map<std::string, std::string> shown_contents(const std::string& folder) {
  std::map<std::string, std::string> found = contents(folder);
  std::erase_if(
      found, [](const auto& each) { return each.first.find("/.tessera-") != std::string::npos; });
  return found;
}

std::string images() {
  static const std::string folder = [] {
    const std::string made = fresh_folder("images");
    write_fashion_mnist(made, {.train = 60, .test = 20});
    return made;
  }();
  return folder;
}

Words train_mlp(const Words& more) {
  return joined(
      {"train", "mlp", "--data", images(), "--hidden", "8", "--steps", "2", "--batch", "16"}, more);
}

// A copy of an earlier run with weights.
std::string earlier_run(const std::string& name) {
  static const std::string first = [] {
    std::string out = fresh_folder("first");
    REQUIRE(run_program(train_tiny("gpt", {"--steps", "2", "--out", out})).exit_code == 0);
    return out;
  }();
  const std::string out = fresh_folder(name);
  fs::copy(first, out, fs::copy_options::recursive);
  return out;
}

// The reason why a run may not use the folder; empty if it may.
std::string refusal(const std::string& folder, const std::vector<tools::Input>& inputs = {}) {
  try {
    tools::check_run_folder(folder, inputs);
    return {};
  } catch (const tools::CannotStart& error) {
    return error.what();
  }
}

// The files that runs write, and temporary files of a run that was killed while writing.
Words run_files() {
  return Words({"metrics.jsonl", "config.json", "report.html", "loss.svg", "learning_rate.svg",
                "throughput.svg", "memory.svg", "grad_norm.svg", "model.safetensors",
                "tokenizer.model", "sample.txt", "summary.json", "failure.txt", "trace.json",
                "profile.txt", "events.out.tfevents.1.x",
                "model.safetensors.0123456789abcdef.tmp"});
}

TEST_CASE("files that no run wrote are not replaced, whatever they are called") {
  for (const std::string& name : joined(run_files(), {".tessera"})) {
    CAPTURE(name);
    const std::string folder = fresh_folder("theirs");
    write_file(folder + "/" + name, R"({"tessera": "0.1.0"})");
    CHECK_THAT(refusal(folder), Contains("/" + name + "\" is of no run of tessera"));
    CHECK(contents(folder).size() == 1);
  }
  const std::string folder = fresh_folder("theirs");
  write_file(folder + "/notes.svg", "mine");
  CHECK(refusal(folder).empty());
  CHECK(refusal(folder + "/deeper").empty());
}

TEST_CASE("a run refuses the user's files, and leaves them and their folder as they are") {
  const std::string folder = fresh_folder("users");
  write_file(folder + "/metrics.jsonl", read_file(text_folder() + "/0.txt"));
  write_file(folder + "/report.html", "mine");
  const auto before = contents(folder);
  check_refused(train_tiny("gpt", {"--data", folder + "/metrics.jsonl", "--out", folder}), 2,
                "which --data reads");
  check_refused(train_tiny("gpt", {"--out", folder}), 2, "is of no run of tessera");
  check_refused(train_mlp({"--out", folder}), 2, "is of no run of tessera");
  check_refused(train_mlp({"--out", images() + "/run"}), 2, "the folder of --data");
  CHECK(contents(folder) == before);
  CHECK_FALSE(fs::exists(images() + "/run"));
}

TEST_CASE("what a run reads is apart from what it writes, links resolved") {
  const std::string base = fresh_folder("apart"), out = base + "/out", in = base + "/in";
  fs::create_directories(out + "/texts");
  fs::create_directories(in);
  write_file(in + "/text", "x");
  fs::create_directory_symlink(out, base + "/link");
  fs::create_directory_symlink(in, base + "/to_in");
  for (const char* option : {"--data", "--config", "--tokenizer"}) {
    CAPTURE(option);
    const auto with = [&](const std::string& folder, const std::string& path) {
      return refusal(folder, {{option, ""}, {option, path}});
    };
    CHECK(with(out, in).empty());
    CHECK(with(out, in + "/text").empty());
    CHECK(with(base + "/output", out).empty());  // a name with the same beginning
    CHECK_THAT(with(out, out), Contains(std::string("is what ") + option + " reads"));
    CHECK_THAT(with(out + "/", base + "/link"), Contains("reads"));
    CHECK_THAT(with(base + "/link", out + "/texts"),
               Contains("in it, which " + std::string(option)));
    CHECK_THAT(with(out, base + "/link/texts/a.txt"), Contains("in it, which"));
    CHECK_THAT(with(in + "/run", in), Contains(std::string("the folder of ") + option));
    CHECK_THAT(with(base + "/to_in/deeper/run", in + "/"), Contains("the folder of"));
  }
  // Another name of a file that would be replaced.
  write_file(out + "/metrics.jsonl", "");
  write_file(out + "/.tessera", "tessera run\n");
  CHECK(refusal(out, {{"--data", in + "/text"}}).empty());
  fs::create_hard_link(out + "/metrics.jsonl", in + "/more");
  CHECK_THAT(refusal(out, {{"--data", in + "/more"}}), Contains("by another name"));
}

TEST_CASE("the root and the home folder are no places for a run or a file") {
  const std::string home = fresh_folder("home");
  fs::create_directory_symlink(home, home + "/link");
  const ProgramOptions at_home{.environment = {{"HOME", home}}};
  for (const std::string folder : {"/", "/tmp/..", "//"})
    check_refused(train_mlp({"--out", folder}), 2, "is the root of all files", at_home);
  for (const std::string& folder : {home, home + "/", home + "/link"})
    check_refused(train_mlp({"--out", folder}), 2, "is your home folder", at_home);
  const Words tokenize = {"tokenize", "--data", text_folder(), "--out"};
  check_refused(joined(tokenize, {"/"}), 2, "is the root of all files", at_home);
  check_refused(joined(tokenize, {home}), 2, "is your home folder", at_home);
  CHECK(contents(home).size() == 1);
  CHECK(run_program(train_mlp({"--out", home + "/run"}), at_home).exit_code == 0);
}

TEST_CASE("a run leaves nothing but what runs are known to write, and a marker") {
  const std::string out = fresh_folder("known");
  REQUIRE(run_program(train_tiny("gpt", {"--steps", "4", "--trace", "--out", out})).exit_code == 0);
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename();
    CAPTURE(name);
    CHECK((tools::is_run_file(name) || name == ".tessera"));
    ++count;
  }
  // config, metrics, weights, sample, summary, trace, events, marker, report and its five charts.
  CHECK(count == 14);
  CHECK_FALSE(tools::is_run_file("config.json.bak"));
  CHECK_FALSE(tools::is_run_file("other.svg"));
}

// The folder at the start of a run, and after the run was killed in its first step: no file of the
// earlier run remains beside the new one.
TEST_CASE("a run that begins removes every file of the earlier one, and no other file") {
  const std::string out = fresh_folder("begins");
  for (const std::string& name : run_files()) write_file(out + "/" + name, "earlier");
  write_file(out + "/.tessera", "tessera run\n");
  write_file(out + "/notes.svg", "mine");
  const tools::RunFolder folder(out, "{}", "");
  tools::begin_run(out);
  Words left;
  for (const auto& [path, text] : shown_contents(out))
    left.push_back(fs::path(path).filename().string() + ": " + text);
  CHECK(left == Words({".tessera: tessera run\n", "config.json: {}\n",
                       "failure.txt: ", "notes.svg: mine"}));
}

TEST_CASE("a start that fails leaves the earlier run as it was") {
  const std::string out = earlier_run("earlier"), spoiled = fresh_folder("spoiled");
  const auto before = contents(out);
  write_fashion_mnist(spoiled, {.train = 60, .test = 20});
  const std::string labels = spoiled + "/train-labels-idx1-ubyte.gz";
  std::string bytes = read_file(labels);
  bytes[bytes.size() - 5] ^= 1;
  write_file(labels, bytes);
  const Words nodes = {"--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:29461", "--timeout", "0.5"};
  const auto fails = [&](const Words& more, const ProgramOptions& options = {}) {
    const ProgramResult result = run_program(train_mlp(joined({"--out", out}, more)), options);
    CHECK(result.exit_code != 0);
    CHECK(contents(out) == before);
  };
  SECTION("a node that does not come") { fails(nodes); }
  SECTION("an address that is not this host's") {
    fails(joined(nodes, {"--local-addr", "no-such-interface"}));
  }
  SECTION("no folder for temporary files") { fails({}, {.environment = {{"TMPDIR", "/proc"}}}); }
  SECTION("data that the ranks find damaged") {
    fails({"--data", spoiled, "--launch", GENERATE("threads", "processes")});
  }
}

TEST_CASE("an interruption before the first step leaves the earlier run as it was") {
  const bool language = GENERATE(true, false);
  const std::string out = earlier_run("uninterrupted");
  const auto before = contents(out);
  models::runs::TrainOptions options = language ? models::runs::default_options("gpt", "tiny")
                                                : models::runs::default_options("mlp");
  options.data = language ? text_folder() : images();
  options.tokenizer = "bytes";
  options.batch = 4;
  options.out = out;
  options.launch = "threads";
  const tools::RankBody body = language ? tools::language_body(options) : tools::mlp_body(options);
  {
    tools::RunFolder folder(out, "{}", "");
    const distributed::LaunchResult result =
        distributed::launch(0, nullptr, options.launch_options(), [&](distributed::World& world) {
          if (world.rank() == 1) world.ask_to_stop(SIGINT);
          body(world);
        });
    CHECK(result.failure.empty());
    CHECK(result.exit_code == 128 + SIGINT);
    CHECK(result.steps == 0);
    CHECK_FALSE(folder.has_begun());
    CHECK(tools::interruption_text(options, result) ==
          "interrupted before the first step; no file of " + out +
              " has changed; the same command starts again at step 1");
  }
  CHECK(contents(out) == before);
}

TEST_CASE("the last line of an interrupted run says what is kept, and where") {
  models::runs::TrainOptions options = models::runs::default_options("gpt", "tiny");
  options.node_rank = 1;
  const auto text = [&](std::int64_t steps) {
    return tools::interruption_text(options, {.signal = SIGINT, .steps = steps});
  };
  const std::string again = "; the same command starts again at step 1";
  CHECK(text(3) == "interrupted after step 3; nothing is kept of a run without --out" + again);
  options.out = "/run";
  CHECK(text(0) == "interrupted before the first step; no file of /run has changed" + again);
  CHECK(text(3) ==
        "interrupted after step 3; node 0 has what is kept; the same command with "
        "--resume auto goes on at step 4");
  options.save_every = "0";
  CHECK(text(3) == "interrupted after step 3; node 0 has what is kept" + again);
  options.resume = "auto";
  CHECK(text(0) ==
        "interrupted before the first step; no file of /run has changed; the same command goes on "
        "as this one did");
}

TEST_CASE("a start that is killed leaves the earlier run, and the next one clears up") {
  const std::string out = earlier_run("kept");
  const auto before = shown_contents(out);
  Program waits(train_mlp({"--out", out, "--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:29462"}));
  REQUIRE(eventually(std::chrono::seconds(30),
                     [&] { return fs::exists(out + "/.tessera-next/config.json"); }));
  for (const pid_t pid : waits.alive()) kill(pid, SIGKILL);
  waits.wait();
  CHECK(fs::exists(out + "/.tessera-next"));
  CHECK(shown_contents(out) == before);
  REQUIRE(run_program(train_mlp({"--out", out})).exit_code == 0);
  CHECK_FALSE(fs::exists(out + "/.tessera-next"));
  CHECK_FALSE(fs::exists(out + "/.tessera-lock"));
  // No file of the language model remains beside the new run.
  for (const char* gone : {"/sample.txt", "/summary.json"}) CHECK_FALSE(fs::exists(out + gone));
  CHECK_THAT(read_file(out + "/config.json"), Contains("\"mlp\""));
  CHECK(lines_of(read_file(out + "/metrics.jsonl")).size() == 3);
}

TEST_CASE("two runs do not share a folder, and a run that was killed keeps nobody out") {
  const std::string out = fresh_folder("shared");
  Program first(train_mlp({"--out", out, "--steps", "9999999"}));
  const auto steps = [&] { return lines_of(read_file(out + "/metrics.jsonl")).size(); };
  REQUIRE(eventually(std::chrono::seconds(60), [&] { return steps() > 2; }));
  const std::vector<pid_t> processes = first.alive();
  const pid_t launcher = *std::min_element(processes.begin(), processes.end());
  char host[256] = {};
  REQUIRE(gethostname(host, sizeof(host) - 1) == 0);
  check_refused(train_mlp({"--out", out}), 2,
                "is in use by process " + std::to_string(launcher) + " on " + host);
  const std::size_t then = steps();
  CHECK(eventually(std::chrono::seconds(30), [&] { return steps() > then; }));
  for (const pid_t pid : first.alive()) kill(pid, SIGKILL);
  first.wait();
  REQUIRE(eventually(std::chrono::seconds(5), [&] { return first.alive().empty(); }));
  CHECK(run_program(train_mlp({"--out", out})).exit_code == 0);
  CHECK(steps() == 3);
}

TEST_CASE("tokenize replaces its own files and no others") {
  const std::string folder = fresh_folder("tokens"), file = folder + "/text.tokens";
  const auto tokenize = [&](const std::string& out, const Words& more = {}) {
    return joined({"tokenize", "--data", text_folder(), "--out", out}, more);
  };
  const Words learn = {"--train-tokenizer", "300"};
  REQUIRE(run_program(tokenize(file, learn)).exit_code == 0);
  const auto made = contents(folder);
  CHECK(made.size() == 2);
  CHECK(run_program(tokenize(file, learn)).exit_code == 0);  // replaces both
  CHECK(contents(folder) == made);

  write_file(folder + "/thesis", "mine");
  fs::create_symlink("text.tokens", folder + "/link");
  REQUIRE(mkfifo((folder + "/pipe").c_str(), 0600) == 0);
  write_file(folder + "/b.model", "mine");
  write_file(folder + "/empty", "");
  check_refused(tokenize(folder + "/thesis"), 2, "was not written by tessera tokenize");
  check_refused(tokenize(folder + "/link"), 2, "is a link, and only a regular file");
  check_refused(tokenize(folder + "/pipe"), 2, "is a pipe, and only a regular file");
  check_refused(tokenize("/dev/null"), 2, "is a device, and only a regular file");
  check_refused(tokenize(folder + "/b", learn), 2, "b.model was not written by tessera tokenize");
  check_refused(tokenize(file, {"--tokenizer", file}), 2, "is what --tokenizer reads");
  check_refused(tokenize(file, {"--train-tokenizer", "999999"}), 1, "do not go together");
  CHECK(fs::is_symlink(folder + "/link"));
  CHECK(fs::is_fifo(folder + "/pipe"));
  CHECK(read_file(folder + "/thesis") == "mine");
  CHECK(read_file(folder + "/b.model") == "mine");
  CHECK(read_file(file) == made.at(file));
  CHECK(read_file(file + ".model") == made.at(file + ".model"));
  CHECK(run_program(tokenize(folder + "/empty")).exit_code == 0);  // empty, as from mktemp
  // Now tokenized as bytes; the model beside it is no longer its own.
  CHECK(run_program(tokenize(file)).exit_code == 0);
  check_refused(tokenize(file, learn), 2, ".model was not written by tessera tokenize");
}

}  // namespace
}  // namespace tessera::testing
