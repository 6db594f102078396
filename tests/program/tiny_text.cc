#include "tessera/tests/program/tiny_text.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <nlohmann/json.hpp>
#include <regex>

#include "tessera/tests/models/data/idx_writer.h"

namespace tessera::testing {

std::string text_folder() {
  static const std::string folder = [] {
    const std::string made = fresh_folder("text");
    const std::vector<std::string> who = {"the cat", "a dog", "the old man", "my sister", "a bird"};
    const std::vector<std::string> does = {"sees", "likes", "finds", "follows", "draws"};
    std::size_t draw = 1;
    const auto one_of = [&](const std::vector<std::string>& words) {
      draw = draw * 1103515245 + 12345;
      return words[draw / 65536 % words.size()];
    };
    for (int document = 0; document < 40; ++document) {
      std::string text;
      for (int sentence = 0; sentence < 12; ++sentence)
        text += one_of(who) + " " + one_of(does) + " " + one_of(who) + ".\n";
      write_file(made + "/" + std::to_string(document) + ".txt", text);
    }
    return made;
  }();
  return folder;
}

std::vector<std::string> train_tiny(const std::string& model,
                                    const std::vector<std::string>& more) {
  std::vector<std::string> words = {"train",  model,         "--preset",        "tiny",
                                    "--data", text_folder(), "--sample-tokens", "20"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TinyRun run_tiny(const std::string& model, const std::vector<std::string>& more,
                 const ProgramOptions& options) {
  static int runs = 0;
  TinyRun made{.result = {}, .folder = fresh_folder("tiny" + std::to_string(++runs))};
  std::vector<std::string> words = train_tiny(model, {"--out", made.folder});
  words.insert(words.end(), more.begin(), more.end());
  made.result = run_program(words, options);
  INFO("standard error: " << made.result.err);
  REQUIRE(made.result.exit_code == 0);
  return made;
}

std::string TinyRun::file(const std::string& name) const { return read_file(folder + "/" + name); }

std::vector<std::string> TinyRun::metrics() const {
  static const std::regex clock(R"re("(step_ms|tokens_per_s)":[^,]*,)re");
  std::vector<std::string> lines;
  for (const std::string& line : lines_of(file("metrics.jsonl")))
    lines.push_back(std::regex_replace(line, clock, ""));
  return lines;
}

std::vector<double> TinyRun::losses() const {
  std::vector<double> losses;
  for (const std::string& line : metrics())
    if (const auto json = nlohmann::json::parse(line); json.contains("loss"))
      losses.push_back(json["loss"]);
  return losses;
}

int count_events(const std::string& path) {
  const std::string bytes = read_file(path);
  int count = 0;
  for (std::size_t at = 0; at < bytes.size(); ++count) {
    std::uint64_t length = 0;
    if (at + sizeof(length) > bytes.size()) return -1;
    std::memcpy(&length, bytes.data() + at, sizeof(length));
    at += length + 16;
    if (at > bytes.size()) return -1;
  }
  return count;
}

}  // namespace tessera::testing
