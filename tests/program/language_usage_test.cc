// Invalid input to the commands for language models: exit code, one line on standard error with a
// suggestion, nothing on standard output.

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/program/run_program.h"

namespace tessera::testing {
namespace {

using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

void check_refused(const Words& words, int exit_code, const std::string& text) {
  const ProgramResult result = run_program(words);
  INFO("standard error: " << result.err);
  CHECK(result.exit_code == exit_code);
  CHECK(result.out.empty());
  CHECK_THAT(result.err, Contains(text));
  CHECK(lines_of(result.err).size() == 1);
  CHECK_THAT(result.err, Catch::StartsWith("tessera: "));
}

TEST_CASE("a name that is not known is answered with the nearest one") {
  check_refused({"trian"}, 2, "unknown command \"trian\"; there is: train, generate");
  check_refused({"trian"}, 2, "did you mean train?");
  check_refused({"train", "lama"}, 2, "did you mean llama?");
  check_refused({"train", "gpt", "--precison", "bf16"}, 2,
                "unknown option --precison; did you mean --precision?");
  check_refused({"train", "gpt", "--see=1"}, 2, "unknown option --see; did you mean --seed?");
  check_refused({"train", "gpt", "--kv-heads", "2"}, 2, "unknown option --kv-heads");
  check_refused({"train", "gpt", "--precision", "bf61"}, 2, "did you mean bf16?");
  check_refused({"train", "gpt", "--preset", "gpt-2"}, 2, "did you mean gpt2?");
  check_refused({"train", "gpt", "--shard", "ful"}, 2, "did you mean full?");
  check_refused({"generate", "--promt", "x"}, 2, "did you mean --prompt?");
  check_refused({"completion", "bsh"}, 2, "bash or zsh; did you mean bash?");
  check_refused({"completion"}, 2, "completion needs a shell: bash or zsh");
  check_refused({"train", "--ranks", "2", "gpt"}, 2, "--ranks stands before the model");
}

TEST_CASE("values that do not fit are refused with code 2") {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"--layers", "0"},          {"--dim", "x"},           {"--seq-len", "0"},
      {"--dropout", "1"},         {"--micro-batch", "-1"},  {"--optimizer", "adam"},
      {"--min-lr", "-1"},         {"--warmup", "1.5"},      {"--beta1", "1"},
      {"--beta2", "-0.1"},        {"--clip-grad", "-1"},    {"--recompute", "some"},
      {"--tensor-parallel", "0"}, {"--mesh", "2x2x2"},      {"--eval-every", "x"},
      {"--sample-tokens", "-1"},  {"--tensorboard", "yes"}, {"--nnodes", "0"},
      {"--node-rank", "-1"},      {"--preset", "huge"},     {"--precision", "f8"},
      {"--profile", "-1"},        {"--profile", "all"}};
  for (const auto& [option, value] : wrong) {
    CAPTURE(option, value);
    check_refused({"train", "gpt", option, value}, 2, option);
  }
  check_refused({"train", "moe", "--capacity-factor", "-1"}, 2, "--capacity-factor");
  check_refused({"train", "gpt", "--steps", "1", "--epochs", "1"}, 2, "excludes");
}

TEST_CASE("options that do not fit together are refused with code 2") {
  check_refused(train_tiny("gpt", {"--ranks", "4", "--mesh", "3"}), 2, "--mesh: 3 is 3 ranks");
  check_refused(train_tiny("gpt", {"--ranks", "3", "--tensor-parallel", "2"}), 2,
                "--tensor-parallel: 3 ranks");
  check_refused(train_tiny("gpt", {"--min-lr", "2", "--lr", "1"}), 2, "--min-lr: 2 is above");
  check_refused(train_tiny("gpt", {"--trace"}), 2, "--trace writes trace.json into the folder");
  check_refused(train_tiny("gpt", {"--trace", "--profile", "2", "--out", fresh_folder("both")}), 2,
                "--profile: measures steps that --trace may record at the same time; leave one of "
                "the two out");
  check_refused(train_tiny("gpt", {"--nnodes", "2", "--launch", "threads"}), 2, "--nnodes");
  check_refused(train_tiny("gpt", {"--nnodes", "2"}), 2, "--rdzv-endpoint");
  check_refused(train_tiny("gpt", {"--nnodes", "2", "--rdzv-endpoint", "localhost:29431",
                                   "--node-rank", "2"}),
                2, "--node-rank: 2 is not below --nnodes 2");
}

TEST_CASE("CUDA graphs of what cannot be recorded are refused with code 2") {
  check_refused(train_tiny("gpt", {"--cuda-graphs"}), 2, "--cuda-graphs: is for GPUs");
  check_refused(train_tiny("gpt", {"--tf32"}), 2, "--tf32: is for GPUs");
  check_refused(train_tiny("gpt", {"--nccl-buffers", "registered"}), 2, "--nccl-buffers: are on");
  const auto refused = [](const std::string& model, const Words& more, const std::string& text) {
    Words words = train_tiny(model, {"--cuda-graphs", "--device", "cuda", "--dropout", "0"});
    words.insert(words.end(), more.begin(), more.end());
    check_refused(words, 2, text);
  };
  refused("gpt", {"--dropout", "0.25"}, "--cuda-graphs: would drop the same activations");
  refused("gpt", {"--precision", "f16"}, "--cuda-graphs: would repeat one loss scale");
  refused("moe", {}, "--cuda-graphs: the host reads which experts");
  refused("gpt", {"--trace", "--out", fresh_folder("graphs")}, "--trace: shows single operations");
  refused("gpt", {"--profile", "2"}, "--profile: shows single operations");
}

TEST_CASE("sizes that make no model are refused with code 2") {
  check_refused(train_tiny("gpt", {"--heads", "3"}), 2, "20");
  check_refused(train_tiny("llama", {"--kv-heads", "3"}), 2, "3");
  check_refused(train_tiny("moe", {"--top-k-experts", "99"}), 2, "99");
  check_refused(train_tiny("gpt", {"--ranks", "3", "--tensor-parallel", "3"}), 2,
                "3 ranks cannot share 4 of --heads evenly");
  check_refused(train_tiny("gpt", {"--sample-prompt", "a \xff"}), 2, "byte 2 is not UTF-8");
}

TEST_CASE("a configuration of another kind is refused with the nearest key") {
  const std::string path = fresh_folder("config") + "/config.json";
  const auto check = [&](const std::string& json, const std::string& text) {
    write_file(path, json);
    check_refused({"train", "gpt", "--config", path}, 2, text);
  };
  check(R"({"micro_bach": 2})", "unknown key \"micro_bach\"; did you mean micro_batch?");
  check(R"({"model": "llama"})", "is for the model \"llama\", not \"gpt\"");
  check(R"({"steps": 1, "epochs": 1})", "has both \"steps\" and \"epochs\"");
  check(R"({"preset": "smal"})", "did you mean small?");
  check(R"({"checked": "true"})", "\"checked\" cannot be \"true\"");
  check(R"({"out": true})", "\"out\" cannot be true");
  check(R"({"data": 5})", "\"data\" cannot be 5");
  check(R"({"timeout": "3"})", "\"timeout\" cannot be \"3\"");
  check(R"({"lr": 1, "lr": 2})", "has the key \"lr\" twice");
  check(R"({"lr": 1e400})", "has a number that is too large");
  check(R"({"layers": [1]})", "\"layers\" cannot be [1]");
}

TEST_CASE("text that cannot be learned from ends the run with code 1") {
  const auto check = [](const std::string& data, const std::string& text) {
    check_refused({"train", "gpt", "--preset", "tiny", "--data", data}, 1, text);
  };
  check("/no/such/text", "/no/such/text");
  const std::string folder = fresh_folder("spoiled");
  check(folder, folder);
  write_file(folder + "/a.txt", "good text\n\xff\xfe bad");
  check(folder, "a.txt");
  write_file(folder + "/a.txt", "short");
  check(folder, "");
  const std::string pipe = fresh_folder("pipe") + "/text";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  check(pipe, pipe + " is neither a regular file nor a folder");
  check("/dev/zero", "/dev/zero is neither");
  check_refused(train_tiny("gpt", {"--tokenizer", "/no/such.model"}), 1, "/no/such.model");
}

TEST_CASE("what is no run of a language model cannot be continued") {
  const std::string folder = fresh_folder("no run");
  for (const std::string command : {"generate", "eval"}) {
    CAPTURE(command);
    const auto check = [&](int code, const std::string& text) {
      check_refused({command, "--run", folder}, code, text);
    };
    std::filesystem::remove(folder + "/config.json");
    check_refused({command}, 2, "--run is needed");
    check_refused({command, "--run", "/no/such"}, 2, "there is no folder /no/such");
    check(2, "has no config.json, so it holds no run");
    write_file(folder + "/config.json", R"({"tessera": "0.0.9", "model": "gpt"})");
    check(2, "is of tessera \"0.0.9\", this is 0.1.0");
    write_file(folder + "/config.json", R"({"tessera": 1, "model": 7})");
    check(2, "is of tessera \"\", this is 0.1.0");
    write_file(folder + "/config.json", R"({"tessera": "0.1.0", "model": 7})");
    check(2, "is of the model \"\"");
    write_file(folder + "/config.json", R"({"tessera": "0.1.0", "model": "mlp"})");
    check(1, "has no model.safetensors and no complete checkpoint");
    write_file(folder + "/config.json", R"({"tessera": "0.1.0", "model": "gpt"})");
    check(1, "has no model.safetensors and no complete checkpoint");
    write_file(folder + "/config.json", R"({"tessera": "0.1.0", "model": "gpt", "colour": 1})");
    check(2, "unknown key \"colour\"");
  }
}

TEST_CASE("weights that do not fit a run are refused in words for a shell") {
  const TinyRun run = run_tiny("gpt", {"--steps", "2"});
  const std::string model = run.folder + "/model.safetensors", config = run.folder + "/config.json";
  const std::string good = read_file(model), options = read_file(config);
  const auto check = [&](const std::string& bytes, const std::string& text) {
    write_file(model, bytes);
    for (const std::string command : {"eval", "generate"}) {
      const ProgramResult result = run_program({command, "--run", run.folder, "--ranks", "2"});
      INFO("standard error: " << result.err);
      CHECK(result.exit_code == 1);
      CHECK(lines_of(result.err).size() == 1);
      CHECK_THAT(result.err, Contains(text) && !Contains("strict") &&
                                 Contains("take a copy of the folder, or train again"));
    }
  };
  check(good.substr(0, good.size() - 4), "is truncated");
  check("no weights", "model.safetensors");
  const auto with_layers = [&](const std::string& layers) {
    write_file(config, std::regex_replace(options, std::regex(R"("layers": \d+)"),
                                          "\"layers\": " + layers));
  };
  with_layers("3");
  check(good, "model.safetensors lacks \"");
  with_layers("1");
  check(good, ", which the model of config.json does not have");
}

TEST_CASE("weights that are not numbers give an error instead of a loss") {
  const TinyRun run = run_tiny("gpt", {"--steps", "2"});
  const std::string path = run.folder + "/model.safetensors";
  std::string bytes = read_file(path);
  bytes.replace(bytes.size() - 4, 4, std::string("\x00\x00\xc0\x7f", 4));  // NaN in f32
  write_file(path, bytes);
  check_refused({"eval", "--run", run.folder}, 1, "the loss is nan: parameter \"");
}

TEST_CASE("what the file system refuses is said in words of ours") {
  const std::string name(5000, 'x');
  check_refused({"eval", "--run", "/tmp/" + name}, 2, "File name too long; name a folder that");
  const std::string gone = fresh_folder("gone");
  const ProgramResult result = run_program(
      {"eval", "--run", "x"},
      {.through = {"bash", "-c", "cd " + gone + " && rmdir " + gone + " && exec \"$0\" \"$@\""}});
  INFO("standard error: " << result.err);
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.err, Contains("the current folder cannot be used: No such file or directory"));
  CHECK(lines_of(result.err).size() == 1);
}

TEST_CASE("a configuration that is not UTF-8 is refused, and the earlier run stays") {
  const std::string folder = fresh_folder("in\xff"), run = run_tiny("gpt", {"--steps", "2"}).folder;
  const std::string before = read_file(run + "/metrics.jsonl");
  std::filesystem::create_directory_symlink(run, folder + "/run");
  std::filesystem::create_directory_symlink(text_folder(), folder + "/text");
  const auto refused = [&](Words words, const std::string& option) {
    const ProgramResult result =
        run_program(words, {.through = {"bash", "-c", "cd \"$0\" && exec \"$@\"", folder}});
    INFO("standard error: " << result.err);
    CHECK(result.exit_code == 2);
    CHECK(lines_of(result.err).size() == 1);
    CHECK_THAT(result.err, Contains("--" + option + ": byte ") &&
                               Contains("is not UTF-8, and a configuration has no other text"));
  };
  refused(train_tiny("gpt", {"--data", "text", "--print-config"}), "data");
  refused(train_tiny("gpt", {"--data", "text", "--out", run, "--steps", "1"}), "data");
  refused(train_tiny("gpt", {"--out", "run", "--steps", "1"}), "out");
  CHECK(read_file(run + "/metrics.jsonl") == before);
}

TEST_CASE("damaged token files and tokenizers are refused by name") {
  const std::string folder = fresh_folder("damaged"), tokens = folder + "/a.tokens";
  REQUIRE(run_program(
              {"tokenize", "--data", text_folder(), "--out", tokens, "--train-tokenizer", "300"})
              .exit_code == 0);
  const auto flip = [](const std::string& path, std::size_t at) {
    std::string bytes = read_file(path);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    write_file(path, bytes);
  };
  const auto check = [&](const std::string& text) {
    check_refused({"train", "gpt", "--preset", "tiny", "--data", tokens}, 1, text);
  };
  flip(tokens, std::filesystem::file_size(tokens) / 2);
  check(tokens + " has the ");
  flip(tokens, std::filesystem::file_size(tokens) / 2);
  flip(tokens + ".model", std::filesystem::file_size(tokens + ".model") / 2);
  check(tokens + ".model has the checksum ");
  check_refused({"train", "gpt", "--preset", "tiny", "--tokenizer", text_folder() + "/0.txt"}, 1,
                "make one with tessera tokenize --train-tokenizer");
}

TEST_CASE("tokenize says what it cannot do") {
  check_refused({"tokenize", "--data", text_folder()}, 2, "--out is needed");
  check_refused({"tokenize", "--out", "x", "--type", "word"}, 2, "--type");
  check_refused({"tokenize", "--out", "x", "--train-tokenizer", "259"}, 2, "--train-tokenizer");
  check_refused({"tokenize", "--out", "x", "--validation", "1"}, 2, "--validation");
  check_refused({"tokenize", "--out", "x", "--data", "/no/such"}, 1, "/no/such");
  const std::string text = text_folder() + "/0.txt", before = read_file(text);
  check_refused({"tokenize", "--data", text, "--out", text}, 2, "is what --data reads");
  check_refused({"tokenize", "--data", text_folder(), "--out", text_folder() + "/x"}, 2,
                "the folder of --data");
  CHECK(read_file(text) == before);
  check_refused({"tokenize", "--out", "/no/such/folder/x", "--data", text_folder()}, 1,
                "/no/such/folder/x");
}

}  // namespace
}  // namespace tessera::testing
