// Invalid input: exit code, one line on standard error with the reason, nothing on standard output.

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/tensor/device.h"
#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/program/run_program.h"

namespace tessera::testing {
namespace {

using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

std::string data_folder() {
  static const std::string folder = [] {
    const std::string made = fresh_folder("data");
    write_fashion_mnist(made);
    return made;
  }();
  return folder;
}

Words train_on(const std::string& data, const Words& more = {}) {
  Words words = {"train", "mlp", "--data", data, "--hidden", "8", "--steps", "2", "--batch", "16"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void check_refused(const Words& words, int exit_code, const std::string& text) {
  const ProgramResult result = run_program(words);
  INFO("standard error: " << result.err);
  CHECK(result.exit_code == exit_code);
  CHECK(result.out.empty());
  CHECK_THAT(result.err, Contains(text));
  CHECK(lines_of(result.err).size() == 1);
  CHECK_THAT(result.err, Catch::StartsWith("tessera: "));
}

Words train(const Words& more) { return train_on(data_folder(), more); }

TEST_CASE("a command line that means nothing is refused with code 2") {
  check_refused({}, 2, "a command is needed: train");
  check_refused({"train"}, 2, "a model is needed: mlp");
  check_refused({"dance"}, 2, "unknown command \"dance\"; there is: train");
  check_refused({"train", "foo"}, 2, "unknown model \"foo\"; there is: mlp");
  check_refused(train({"--foo"}), 2, "unknown option --foo");
  check_refused(train({"stray"}), 2, "unknown argument stray");
  check_refused(train({"--epochs", "3"}), 2, "--epochs excludes --steps");
  check_refused({"--verison"}, 2, "unknown option --verison; did you mean --version?");
  check_refused({"--verbose"}, 2, "unknown option --verbose");
  check_refused({"--ranks", "2", "train", "mlp"}, 2,
                "--ranks stands before its command; write it behind: tessera train mlp --ranks");
  check_refused({"train", "--ranks", "2", "mlp"}, 2,
                "--ranks stands before the model; write it behind: tessera train mlp --ranks");
  check_refused({"train", "--list", "mlp"}, 2,
                "--list is about all models; leave mlp out: tessera train --list");
  // Options of future versions are unknown options.
  for (const Words& later : {Words{"--check-races"}, Words{"--quietly"}})
    check_refused(train(later), 2, "unknown option " + later.front());
}

TEST_CASE("a value out of its range is refused with code 2") {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"--ranks", "0"},
      {"--ranks", "-1"},
      {"--ranks", "two"},
      {"--ranks", "1025"},
      {"--batch", "0"},
      {"--lr", "0"},
      {"--lr", "nan"},
      {"--lr", "inf"},
      {"--momentum", "1"},
      {"--weight-decay", "-1"},
      {"--seed", "-1"},
      {"--timeout", "0"},
      {"--launch", "fork"},
      {"--device", "tpu"},
      {"--precision", "bf8"},
      {"--preset", "huge"},
      {"--hidden", "8,0"},
      {"--activation", "tanh"},
      {"--cpu-compute", "later"},
      {"--seed", "99999999999999999999999"},
      {"--seed", "18446744073709551616"},
      {"--seed", "1.5"},
      {"--seed", ""},
      {"--seed", "0x10"},
      {"--ranks", "4294967298"},
      {"--ranks", "99999999999999999999999"},
      {"--batch", "010"},
      {"--batch", "18446744073709551617"},
      {"--hidden", "10,,10"},
      {"--hidden", ",10"},
      {"--hidden", "10,"},
      {"--hidden", ""},
      {"--hidden", "10,99999999999999999999999"},
      {"--timeout", "0.0001"},
      {"--timeout", "1e7"}};
  for (const auto& [option, value] : wrong) {
    CAPTURE(option, value);
    check_refused({"train", "mlp", option, value}, 2, option);
  }
  check_refused({"train", "mlp", "--steps", "99999999999999999999999"}, 2, "--steps");
  check_refused({"train", "mlp", "--epochs", "99999999999999999999999"}, 2, "--epochs");
  check_refused({"train", "mlp", "--steps", "0"}, 2, "--steps");
  check_refused({"train", "mlp", "--epochs", "0"}, 2, "--epochs");
}

TEST_CASE("a device that cannot be trained on is refused with code 2") {
  // More ranks than any host has GPUs. Without a GPU, that is the reason.
  check_refused(train({"--device", "cuda", "--ranks", "1000"}), 2, "--device cuda: ");
}

TEST_CASE("data that cannot be read ends the run with code 1") {
  check_refused(train_on("/no/such/folder"), 1,
                "/no/such/folder/train-images-idx3-ubyte.gz does not exist");
  const std::string spoiled = fresh_folder("spoiled");
  write_fashion_mnist(spoiled);
  const std::string images = spoiled + "/train-images-idx3-ubyte.gz";
  SECTION("another kind of file") {
    write_file(images, "GIF89a and some more text");
    check_refused(train_on(spoiled), 1, "magic number 0x47494638");
  }
  SECTION("a damaged file, found by the ranks, of which each thing is said once") {
    std::string bytes = read_file(images);
    bytes[bytes.size() - 5] ^= 1;
    write_file(images, bytes);
    const std::string launch = GENERATE("threads", "processes");
    const Words words = train_on(spoiled, {"--ranks", "1", "--launch", launch});
    check_refused(words, 1, images + " cannot be decompressed: incorrect data check");
    const std::string text = run_program(words).err;
    for (const std::string& part : {std::string("rank 0"), images})
      CHECK(text.find(part) == text.rfind(part));
  }
  SECTION("a file that ends early, found by the ranks") {
    const std::string bytes = read_file(images);
    write_file(images, bytes.substr(0, bytes.size() / 2));
    const std::string launch = GENERATE("threads", "processes");
    check_refused(train_on(spoiled, {"--ranks", "3", "--launch", launch}), 1, "is truncated");
  }
}

TEST_CASE("a folder that cannot be written ends the run with code 1") {
  check_refused(train({"--out", "/dev/null/run"}), 1, "/dev/null/run cannot be made");
}

TEST_CASE("a configuration file that does not fit is refused with code 2") {
  const std::string path = fresh_folder("config") + "/config.json";
  const auto check = [&](const std::string& json, const std::string& text) {
    write_file(path, json);
    check_refused(train({"--config", path}), 2, text);
  };
  check(R"({"ranks": 2, "colour": "red"})", "unknown key \"colour\"");
  check(R"({"config": "other.json"})", "unknown key \"config\"");
  check(R"({"ranks": 0})", "--ranks");
  check(R"({"ranks": [1, 2]})", "\"ranks\" cannot be [1,2]");
  check(R"({"seed": 99999999999999999999999})", "--seed");
  check(R"({"ranks": null})", "\"ranks\" cannot be null");
  check(R"({"model": "gpt"})", "is for the model \"gpt\"");
  check(R"({"steps": 1, "epochs": 1})", "both \"steps\" and \"epochs\"");
  check(R"([1])", "is not a JSON object");
  check(R"({"ranks")", "is not JSON from byte");
  check(R"({"ranks": [[[1]]]})", "\"ranks\" cannot be [[[1]]]");
  check("{\"ranks\": " + std::string(100'000, '['), "has values inside one another, more than 8");
  check(std::string(100'000, '['), "has values inside one another");
  for (const std::string wrong : {R"("8,,8")", "[8, 0]", "[]"}) {
    write_file(path, R"({"hidden": )" + wrong + "}");
    check_refused({"train", "mlp", "--config", path}, 2, "hidden");
  }
  check_refused(train({"--config", "/"}), 2, "/ is not a regular file");
  const std::string pipe = path + ".pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  check_refused(train({"--config", pipe}), 2, pipe + " is not a regular file");
  check_refused(train({"--config", "/no/such.json"}), 2, "/no/such.json cannot be read");
}

TEST_CASE("a place where nodes cannot meet is refused with code 2") {
  const auto at = [](const std::string& endpoint, const Words& more = {}) {
    Words words = train({"--nnodes", "2", "--timeout", "0.3", "--rdzv-endpoint", endpoint});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  check_refused(at("localhost:x"), 2, "--rdzv-endpoint takes host:port with a port");
  check_refused(
      at("192.0.2.1:29400"), 2,
      "other hosts can reach 192.0.2.1:29400, so the processes of this run need a secret");
  check_refused(at("192.0.2.1:29400", {"--rdzv-secret-file", "/no/such"}), 2,
                "--rdzv-secret-file /no/such: No such file or directory");
  const std::string secret = fresh_folder("secret") + ".txt";
  write_file(secret, "0123456789abcdef");
  std::filesystem::permissions(secret, std::filesystem::perms{0600});
  check_refused(at("192.0.2.1:29400", {"--rdzv-secret-file", secret}), 2,
                "cannot listen at 192.0.2.1:29400");
  check_refused(at("127.0.0.1:29478"), 2, "node 1 of 2 did not come to 127.0.0.1:29478");
  check_refused(at("127.0.0.1:29479", {"--local-addr", "192.0.2.1"}), 2,
                "--local-addr 192.0.2.1 is no address of this host");
}

TEST_CASE("control characters of names are escaped") {
  check_refused(train({"--config", "/no/such\n\x1b[31mfile"}), 2,
                "/no/such\\n\\x1b[31mfile cannot be read");
  check_refused(train_on("/no\nsuch"), 1, "/no\\nsuch");
  const std::string path = fresh_folder("keys") + "/config.json";
  write_file(path, R"({"a\n\u001b[2Jb\u009b": 1})");
  check_refused(train({"--config", path}), 2, R"(unknown key "a\n\x1b[2Jb\x9b")");
  check_refused({"dance\n\x1b[2J"}, 2, R"(unknown command "dance\n\x1b[2J")");
}

TEST_CASE("help names every option with its default, version the version") {
  const ProgramResult help = run_program({"train", "mlp", "--help"});
  CHECK(help.exit_code == 0);
  CHECK(help.err.empty());
  for (const char* text : {"--data PATH",
                           "[/usr/share/datasets/fashion-mnist]",
                           "--ranks N",
                           "[2]",
                           "--launch auto|threads|processes",
                           "[auto]",
                           "--device cpu|cuda",
                           "--precision f32|bf16|f16|f64",
                           "--batch N",
                           "[256]",
                           "--lr X",
                           "[0.1]",
                           "--momentum X",
                           "[0.9]",
                           "--epochs N",
                           "--steps N",
                           "--out PATH",
                           "--config PATH",
                           "--timeout X",
                           "[300]",
                           "--preset base|small|deep",
                           "the preset's: 256,128"})
    CHECK_THAT(help.out, Contains(text));
  const ProgramResult version = run_program({"--version"});
  CHECK(version.exit_code == 0);
  CHECK(version.out == "tessera 0.1.0\n");
  const ProgramResult short_help = run_program({"train", "mlp", "-h"});
  CHECK(short_help.exit_code == 0);
  CHECK(short_help.out == help.out);
}

}  // namespace
}  // namespace tessera::testing
