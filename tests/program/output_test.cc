// Standard output without a reader or that cannot be written, and full disks.

#include "tessera/tools/program/options/output.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/program/run_program.h"
#include "tessera/tools/program/run_folder.h"

namespace tessera::testing {
namespace {

using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

const TinyRun& a_run() {
  static const TinyRun run = run_tiny("gpt", {"--steps", "3"});
  return run;
}

TEST_CASE("a run whose output nobody reads ends in silence, and what was done is kept") {
  const std::string launch = GENERATE("threads", "processes");
  const std::string out = fresh_folder("closed");
  const ProgramResult result =
      run_program(train_tiny("gpt", {"--steps", "9999999", "--launch", launch, "--out", out}),
                  {.one_line = true});
  CHECK(result.exit_code == tools::kOutputClosed);
  CHECK_THAT(result.out, Catch::StartsWith("model      gpt tiny"));
  CHECK(result.err.empty());
  for (const char* name : {"model.safetensors", "report.html", "metrics.jsonl"})
    CHECK(std::filesystem::exists(out + "/" + name));
  CHECK_FALSE(std::filesystem::exists(out + "/failure.txt"));
}

TEST_CASE("other commands whose output nobody reads end in silence too") {
  const Words words = GENERATE(Words{"train", "--list"}, Words{"--help"},
                               Words{"generate", "--max-tokens", "2000", "--prompt", "a\nb"});
  const bool generates = words.front() == "generate";
  Words all = words;
  if (generates) all.insert(all.end(), {"--run", a_run().folder});
  // Other commands write everything at once, often before a reader of one line has exited.
  const ProgramResult result = run_program(all, {.one_line = generates, .unread = !generates});
  CHECK(result.exit_code == tools::kOutputClosed);
  CHECK(result.err.empty());
}

TEST_CASE("output that cannot be written is an error of every command") {
  const std::string run = a_run().folder;
  const std::string tokens = fresh_folder("tokens") + "/a.tokens";
  const std::vector<Words> commands = {
      {"--version"},
      {"--help"},
      {"train", "--list"},
      {"train", "gpt", "--print-config"},
      {"completion", "bash"},
      {"eval", "--run", run},
      {"generate", "--run", run, "--max-tokens", "3"},
      {"tokenize", "--data", text_folder(), "--out", tokens},
      train_tiny("gpt", {"--steps", "3", "--launch", "threads"}),
      train_tiny("gpt", {"--steps", "3", "--launch", "processes"})};
  for (const Words& words : commands) {
    CAPTURE(words);
    const ProgramResult result = run_program(words, {.out_path = "/dev/full"});
    CHECK(result.exit_code == 1);
    CHECK(lines_of(result.err).size() == 1);
    CHECK_THAT(result.err, Contains("standard output cannot be written: No space left on device"));
  }
}

TEST_CASE("a closed standard output is an error, and no other file takes its place") {
  const std::string out = fresh_folder("without");
  const ProgramResult result =
      run_program(train_tiny("gpt", {"--steps", "3", "--launch", "threads", "--out", out}),
                  {.through = {"bash", "-c", "exec \"$0\" \"$@\" >&-"}});
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.err, Contains("standard output cannot be written: Bad file descriptor"));
  CHECK(std::filesystem::is_empty(out));  // it fails before the first step
}

TEST_CASE("a file that may not grow ends a run with its reason") {
  const std::string launch = GENERATE("threads", "processes");
  // The path is in failure.txt, which a terminal may show.
  const std::string out = fresh_folder("li\x1b[0mmited");
  const ProgramResult result =
      run_program(train_tiny("gpt", {"--steps", "9999999", "--launch", launch, "--out", out}),
                  {.through = {"prlimit", "--fsize=100000"}});
  INFO("standard error: " << result.err);
  CHECK(result.exit_code == 1);
  CHECK(failures_in(result.err).size() == 1);
  // Shared memory is a file too: each rank process warns that it goes without.
  std::size_t warnings = 0;
  for (const std::string& line : lines_of(result.err)) warnings += line.starts_with("warning: ");
  CHECK(warnings == (launch == "threads" ? 0 : 2));
  CHECK_THAT(lines_of(result.err).back(), Contains("cannot be written: File too large; make room"));
  CHECK_THAT(read_file(out + "/failure.txt"),
             Contains("rank 0: ") && Contains(R"(/li\x1b[0mmited/)") &&
                 Contains("cannot be written: File too large; make room"));
}

TEST_CASE("a report that may not be written is a failure that the folder names") {
  const std::string out = fresh_folder("unreported"), data = fresh_folder("images");
  write_fashion_mnist(data, {.train = 60, .test = 20});
  // More than metrics, weights and each picture, less than the report that has all pictures in it.
  const ProgramResult result =
      run_program({"train", "mlp", "--data", data, "--hidden", "1", "--steps", "2", "--batch", "16",
                   "--launch", "threads", "--out", out},
                  {.through = {"prlimit", "--fsize=12000"}});
  INFO("standard error: " << result.err);
  CHECK(result.exit_code == 1);
  const std::string text = "cannot write \"" + out + "/report.html\": File too large";
  CHECK_THAT(result.err, Contains(text));
  CHECK_THAT(read_file(out + "/failure.txt"), Contains(text));
}

TEST_CASE("the file of a failure has its room before anything fails") {
  const std::string folder = fresh_folder("room"), staging = fresh_folder("staging");
  const std::string path = folder + "/failure.txt", made = staging + "/failure.txt";
  write_file(path, "an earlier run's\n");
  {
    tools::FailureFile file(staging, folder);
    struct stat status = {};
    REQUIRE(stat(made.c_str(), &status) == 0);
    CHECK(status.st_size == 0);
    CHECK(status.st_blocks * 512 >= 16 * 1024);
  }
  CHECK(read_file(path) == "an earlier run's\n");
  {
    tools::FailureFile file(staging, folder);
    std::filesystem::rename(made, path);
  }
  CHECK_FALSE(std::filesystem::exists(path));
  {
    tools::FailureFile file(staging, folder);
    std::filesystem::rename(made, path);
    file.write("rank 1: why");
  }
  CHECK(read_file(path) == "rank 1: why\n");
  CHECK_THROWS_WITH(tools::FailureFile(folder + "/none", folder),
                    Contains("/none/failure.txt cannot be written: No such file or directory"));
}

}  // namespace
}  // namespace tessera::testing
