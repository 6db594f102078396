// Language models trained by the program: what a run prints and writes, and that generate and eval
// can use it.

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/program/run_program.h"
#include "tessera/tests/support/test_main.h"

namespace tessera::testing {
namespace {

using Catch::Matchers::Contains;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

std::string line_with(const std::string& text, const std::string& part) {
  for (const std::string& line : lines_of(text))
    if (line.find(part) != std::string::npos) return line;
  return "";
}

// The files of a folder whose names begin with `begin`.
Words files_of(const std::string& folder, const std::string& begin) {
  Words found;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(begin)) found.push_back(entry.path());
  return found;
}

// The number of entries in the header of a safetensors file: 8 bytes of length, then JSON.
std::size_t tensors_of(const std::string& bytes) {
  std::uint64_t length = 0;
  REQUIRE(bytes.size() > sizeof(length));
  std::memcpy(&length, bytes.data(), sizeof(length));
  return Json::parse(bytes.substr(sizeof(length), length)).size();
}

TEST_CASE("a run learns, says what it does, and leaves everything in its folder") {
  const TinyRun made = run_tiny("gpt", {"--eval-every", "20", "--steps", "50"});
  for (const char* text :
       {"model      gpt tiny: ", "precision  f32: storage f32, compute f32, reduce f32", "data  ",
        "tokenizer  bytes: 257 tokens", "training   50 steps of 6 x 33 tokens, adamw, 2 ranks",
        " tokens/s  ", " % of peak  ETA ", "trained 50 steps in ", "step 20: validation loss ",
        "step 40: validation loss ", "\nvalidation loss ", " bits per byte\nsample:\n"})
    CHECK_THAT(made.result.out, Contains(text));
  // The peak is measured after the first step, so that this one is not late.
  for (const std::string& line : lines_of(made.result.out)) {
    if (line.starts_with("step ") && line.find(" tokens/s") != std::string::npos)
      CHECK_THAT(line, Contains(" % of peak  ETA "));
  }
  const std::vector<double> losses = made.losses();
  REQUIRE(losses.size() == 50);
  CHECK(losses.back() < 0.7 * losses.front());

  const Words lines = lines_of(made.file("metrics.jsonl"));
  REQUIRE(lines.size() == 50 + 3);
  const Json first = Json::parse(lines.front());
  CHECK(first["samples"] == 6);
  CHECK(first["tokens"] == 6 * 33);
  CHECK(first["tokens_per_s"].get<double>() > 0);
  CHECK(Json::parse(lines.back())["eval"]["bits_per_byte"].get<double>() > 0);
  const Json config = Json::parse(made.file("config.json"));
  CHECK(config["model"] == "gpt");
  CHECK(config["tokenizer"] == "bytes");
  CHECK_FALSE(config.contains("out"));
  CHECK(tensors_of(made.file("model.safetensors")) > 10);
  CHECK_THAT(made.result.out, Contains("sample:\n" + made.file("sample.txt")));
  for (const char* picture : {"loss.svg", "learning_rate.svg", "throughput.svg", "memory.svg"})
    CHECK_THAT(made.file(picture), Contains("<svg"));
  CHECK_THAT(made.file("report.html"), Contains("</html>"));
  const Words events = files_of(made.folder, "events.out.tfevents.");
  REQUIRE(events.size() == 1);
  CHECK(count_events(events.front()) >= 50);
}

TEST_CASE("generate and eval say again what the run said") {
  const TinyRun made = run_tiny("llama", {"--steps", "30"});
  const std::string loss = line_with(made.result.out, "validation loss");
  const ProgramResult sample =
      run_program({"generate", "--run", made.folder, "--max-tokens", "20", "--seed", "1"});
  INFO("standard error: " << sample.err);
  CHECK(sample.exit_code == 0);
  CHECK(sample.out == made.file("sample.txt") + "\n");
  for (const std::string ranks : {"1", "2", "3"}) {
    const ProgramResult eval = run_program({"eval", "--run", made.folder, "--ranks", ranks});
    INFO("standard error: " << eval.err);
    CHECK(eval.out == loss + "\n");
  }
  const Words words = {"generate", "--run", made.folder, "--prompt", "the cat", "--ranks"};
  const auto with = [&](const Words& more) {
    Words all = words;
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all).out;
  };
  CHECK_THAT(with({"1"}), Catch::StartsWith("the cat"));
  CHECK(with({"1", "--temperature", "0"}) == with({"3", "--temperature", "0"}));
  CHECK(with({"1", "--seed", "2"}) != with({"1", "--seed", "3"}));
  const ProgramResult other =
      run_program({"eval", "--run", made.folder, "--data", text_folder() + "/0.txt"});
  CHECK_THAT(other.out, Catch::StartsWith("validation loss "));
  CHECK(other.out != loss + "\n");
}

TEST_CASE("a run that was trained with CUDA graphs is evaluated on any number of ranks") {
  const TinyRun made = run_tiny("gpt", {"--steps", "2", "--ranks", "1"});
  Json config = Json::parse(made.file("config.json"));
  config["cuda_graphs"] = true;
  write_file(made.folder + "/config.json", config.dump());
  const ProgramResult found = run_program({"eval", "--run", made.folder, "--ranks", "2"});
  INFO("standard error: " << found.err);
  CHECK(found.exit_code == 0);
}

TEST_CASE("texts begin with what is asked for, typed or read") {
  const TinyRun made = run_tiny("gpt", {"--steps", "5", "--sample-prompt", "my sister sees"});
  CHECK_THAT(made.file("sample.txt"), Catch::StartsWith("my sister sees"));
  const Words words = {"generate", "--run", made.folder, "--max-tokens", "5", "--prompt"};
  const auto with = [&](const std::string& prompt, const std::string& input) {
    Words all = words;
    all.push_back(prompt);
    return run_program(all, {.input = input});
  };
  CHECK_THAT(with("-", "a bird\n").out, Catch::StartsWith("a bird\n"));
  CHECK(with("-", "a bird\n").out == with("a bird\n", "").out);
  CHECK(with("", "").exit_code == 0);
  const ProgramResult wrong = with("a \xff", "");
  CHECK(wrong.exit_code == 2);
  CHECK_THAT(wrong.err, Contains("--prompt: byte 2 is not UTF-8"));
  Words read = words;
  read.push_back("-");
  for (const std::string from : {"< /", "<&-"}) {
    const ProgramResult unread =
        run_program(read, {.through = {"bash", "-c", "exec \"$0\" \"$@\" " + from}});
    CHECK(unread.exit_code == 2);
    CHECK_THAT(unread.err, Contains("--prompt: standard input cannot be read: "));
  }
}

TEST_CASE("the configuration of a run repeats it, also as it is printed") {
  const TinyRun made = run_tiny("moe", {"--steps", "5", "--lr", "0.003", "--ranks", "3"});
  Words words = train_tiny("moe", {"--steps", "5", "--lr", "0.003", "--ranks", "3"});
  words.push_back("--print-config");
  const std::string printed = fresh_folder("printed") + "/config.json";
  write_file(printed, run_program(words).out);
  for (const std::string& config : {made.folder + "/config.json", printed}) {
    const std::string folder = fresh_folder("again");
    const ProgramResult again = run_program({"train", "moe", "--config", config, "--out", folder});
    INFO("standard error: " << again.err);
    REQUIRE(again.exit_code == 0);
    CHECK(TinyRun{again, folder}.metrics() == made.metrics());
    CHECK(read_file(folder + "/config.json") == made.file("config.json"));
  }
}

TEST_CASE("a tokenizer is learned, its file is trained on, and the run keeps the model") {
  // A terminal would execute the path's control characters if they were not escaped.
  const std::string folder = fresh_folder("to\x1b[0mkens"), shown = R"(/to\x1b[0mkens/text.tokens)";
  const std::string file = folder + "/text.tokens";
  const ProgramResult made = run_program({"tokenize", "--data", text_folder(), "--out", file,
                                          "--train-tokenizer", "300", "--validation", "0.1"});
  INFO("standard error: " << made.err);
  REQUIRE(made.exit_code == 0);
  CHECK_THAT(made.out, Contains(shown + ".model, bpe of 300 tokens, trained in ") &&
                           Contains(" bytes each") && Contains(shown + " written in "));
  const TinyRun run = run_tiny("gpt", {"--data", file, "--steps", "5"});
  CHECK_THAT(run.result.out,
             Contains(shown + ": 40 documents, ") && Contains(shown + ".model: 300 tokens"));
  CHECK(run.file("tokenizer.model") == read_file(file + ".model"));
  std::filesystem::remove(file + ".model");  // the run has its own copy
  const ProgramResult text = run_program({"generate", "--run", run.folder, "--prompt", "the cat"});
  INFO("standard error: " << text.err);
  CHECK(text.exit_code == 0);
  CHECK_THAT(text.out, Catch::StartsWith("the cat"));
}

TEST_CASE("bytes in a token file train as the text itself") {
  const std::string file = fresh_folder("bytes") + "/text.tokens";
  REQUIRE(run_program({"tokenize", "--data", text_folder(), "--out", file}).exit_code == 0);
  CHECK(run_tiny("gpt", {"--data", file, "--steps", "4"}).metrics() ==
        run_tiny("gpt", {"--steps", "4"}).metrics());
}

TEST_CASE("a trace of a few steps is written, and a folder of an earlier run is used again") {
  const TinyRun made = run_tiny("gpt", {"--steps", "8", "--trace"});
  CHECK(Json::parse(made.file("trace.json")).contains("traceEvents"));
  const ProgramResult again =
      run_program(train_tiny("gpt", {"--steps", "2", "--out", made.folder, "--tensorboard", "off",
                                     "--sample-tokens", "0"}));
  REQUIRE(again.exit_code == 0);
  CHECK(again.out.find("sample:") == std::string::npos);
  for (const char* gone : {"trace.json", "sample.txt", "events.out.tfevents."})
    CHECK(files_of(made.folder, gone).empty());
}

TEST_CASE("a profile of some steps is printed, written, and part of the report") {
  const Words common = {"--profile", "2", "--steps", "5", "--sample-tokens", "0"};
  for (const Words& more :
       {Words{"--launch", "threads", "--ranks", "3"}, Words{"--recompute", "full"},
        Words{"--shard", "replicate"}, Words{"--ranks", "4", "--shard", "hybrid"},
        Words{"--shard", "grad", "--cpu-compute", "queued"}}) {
    Words words = common;
    words.insert(words.end(), more.begin(), more.end());
    const TinyRun made = run_tiny("gpt", words);
    const std::string table = made.file("profile.txt");
    CAPTURE(more, table);
    CHECK_THAT(made.result.out, Contains(table));
    CHECK_THAT(table, Catch::StartsWith("profile of rank 0 of "));
    for (const char* text : {" 2 steps of ", "\nforward ", "\nbackward ", "\noptimizer ",
                             "\nmatmul ", "\nblocks.* ", "\noutside of operations"})
      CHECK_THAT(table, Contains(text));
    CHECK((table.find("\nrecompute ") != std::string::npos) == (more.front() == "--recompute"));
    CHECK((table.find("\nreduce_scatter ") != std::string::npos) ==
          (more != Words{"--shard", "replicate"}));
    CHECK_THAT(made.file("report.html"), Contains("<h2>Profile</h2>"));
    CHECK(Json::parse(made.file("config.json"))["profile"] == 0);  // a repetition has none
  }
  // Fewer steps than asked for, another model, and nothing written.
  const ProgramResult result = run_program(train_tiny("llama", {"--profile", "9", "--steps", "3"}));
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, Contains("profile of rank 0 of 2") && Contains(" 3 steps of "));
}

TEST_CASE("the first step is shown before the machine's peak is known") {
  const ProgramResult result = run_program(train_tiny("gpt", {"--steps", "2"}));
  REQUIRE(result.exit_code == 0);
  std::vector<std::string> shown;
  for (const std::string& line : lines_of(result.out))
    if (line.starts_with("step ")) shown.push_back(line);
  REQUIRE(shown.size() == 2);
  CHECK(shown[0].find("of peak") == std::string::npos);
  CHECK_THAT(shown[1], Contains(" % of peak  ETA "));
}

TEST_CASE("a run that diverges names the first bad tensor, and leaves a report") {
  const std::string folder = fresh_folder("diverged");
  const ProgramResult result = run_program(
      train_tiny("gpt", {"--lr", "1e30", "--min-lr", "0", "--warmup", "0", "--out", folder}));
  CHECK(result.exit_code == 1);
  REQUIRE(failures_in(result.err).size() == 1);
  CHECK_THAT(failures_in(result.err).front(), Contains("not finite"));
  CHECK_THAT(failures_in(result.err).front(),
             Contains(lines_of(read_file(folder + "/failure.txt")).front()));
  CHECK_THAT(read_file(folder + "/report.html"), Contains("</html>"));
}

TEST_CASE("a terminal shows one line that is rewritten, and evaluations that stay") {
  if (!has_terminals()) return skip("needs a pseudo-terminal, and this machine has none");
  const TinyRun made = run_tiny("gpt", {"--steps", "20", "--eval-every", "10"}, {.terminal = true});
  CHECK_THAT(made.result.out, Contains("\rstep 20/20  loss "));
  CHECK_THAT(made.result.out, Contains("\r\033[Kstep 10: validation loss "));
}

}  // namespace
}  // namespace tessera::testing
