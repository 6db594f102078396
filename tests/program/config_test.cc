// Configurations: --print-config, the files of --config, the list of presets, help and the README.

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "tessera/models/runs/language_family.h"
#include "tessera/models/runs/train_options.h"
#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/program/run_program.h"

namespace tessera::testing {
namespace {

using Catch::Matchers::Contains;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

const Words kModels = {"mlp", "transformer", "gpt", "llama", "moe"};

std::string print_config(Words words) {
  words.push_back("--print-config");
  const ProgramResult result = run_program(words);
  INFO("standard error: " << result.err);
  REQUIRE(result.exit_code == 0);
  return result.out;
}

TEST_CASE("what --print-config prints is the same configuration again") {
  const std::string path = fresh_folder("printed") + "/config.json";
  for (const std::string& model : kModels) {
    CAPTURE(model);
    const Words words = {"train",    model, "--lr",     "0.123456789012345678",
                         "--ranks",  "3",   "--seed",   "18446744073709551615",
                         "--epochs", "2",   "--checked"};
    const std::string printed = print_config(words);
    write_file(path, printed);
    CHECK(print_config({"train", model, "--config", path}) == printed);
    const Json json = Json::parse(printed);
    CHECK(json["model"] == model);
    CHECK(json["lr"].get<double>() == 0.123456789012345678);
    CHECK(json["seed"].get<std::uint64_t>() == 18446744073709551615u);
    CHECK(json["checked"] == true);
    CHECK(json["epochs"] == 2);
    CHECK_FALSE(json.contains("steps"));
  }
}

TEST_CASE("every option may stand in a file, and the command line wins") {
  const std::string path = fresh_folder("file") + "/config.json";
  write_file(path, R"({"preset": "tiny", "layers": 3, "steps": 7, "tensorboard": "off"})");
  const auto json = [&](const Words& more) {
    Words words = {"train", "gpt", "--config", path};
    words.insert(words.end(), more.begin(), more.end());
    return Json::parse(print_config(words));
  };
  CHECK(json({})["preset"] == "tiny");
  CHECK(json({})["layers"] == 3);
  CHECK(json({})["dim"] == 20);  // the preset's
  CHECK(json({})["steps"] == 7);
  CHECK(json({"--layers", "1"})["layers"] == 1);
  CHECK(json({"--preset", "gpt2"})["dim"] == 768);
  CHECK(json({"--preset", "gpt2"})["layers"] == 12);  // another preset, with all its values
  CHECK(json({"--preset", "gpt2"})["tensorboard"] == "off");
  CHECK(json({"--preset", "tiny"})["layers"] == 3);
  CHECK(json({"--epochs", "1"})["epochs"] == 1);
  CHECK_FALSE(json({"--epochs", "1"}).contains("steps"));
}

TEST_CASE("the list of presets counts by shapes") {
  const ProgramResult two = run_program({"train", "--list"});
  REQUIRE(two.exit_code == 0);
  const ProgramResult one = run_program({"train", "--list", "--ranks", "1", "--precision", "bf16"});
  REQUIRE(one.exit_code == 0);
  const auto row = [](const std::string& text, const std::string& begin) {
    for (const std::string& line : lines_of(text))
      if (std::regex_search(line, std::regex("^" + begin))) return line;
    return std::string();
  };
  // 124,439,808 parameters: 497.8 MB in f32 on one rank, AdamW twice that.
  CHECK(std::regex_search(row(one.out, "gpt +gpt2 "),
                          std::regex("124.4 M +497.8 MB +497.8 MB +995.5 MB +2.0 GB")));
  CHECK(std::regex_search(row(two.out, "gpt +gpt2 "), std::regex("124.4 M +248.9 MB")));
  CHECK_THAT(row(two.out, "llama +llama-7b "), Contains("6.7 B"));
  CHECK_THAT(row(two.out, "mlp +base "), Contains("235.1 k"));
  for (const std::string& name : models::runs::language_family_names())
    for (const std::string& preset : models::runs::language_family(name).presets())
      CHECK_FALSE(row(two.out, name + " +" + preset + " ").empty());
  CHECK_THAT(one.out, Contains("Not counted: activations"));
  CHECK_THAT(one.out, Contains("in bf16"));
}

// The options of `tessera train MODEL` before any is typed.
struct TrainTable {
  explicit TrainTable(const std::string& model) : options(models::runs::default_options(model)) {
    models::runs::fill_table(table, options);
  }
  models::runs::TrainOptions options;
  models::runs::OptionTable table;
};

TEST_CASE("help names every option with its default under a heading") {
  for (const std::string& model : kModels) {
    const ProgramResult help = run_program({"train", model, "--help"});
    CHECK(help.exit_code == 0);
    const TrainTable train(model);
    for (const models::runs::Option& option : train.table.options()) {
      CAPTURE(model, option.name);
      CHECK_THAT(help.out, Contains("\n" + option.group + ":\n"));
      CHECK_THAT(help.out, Contains("--" + option.name));
      const std::string words = std::regex_replace(help.out, std::regex("\\s+"), " ");
      CHECK_THAT(words, Contains("[" + option.default_text() + "]"));
    }
    for (const std::string& line : lines_of(help.out)) CHECK(line.size() <= 100);
  }
  for (const Words& words : {Words{"--help"}, Words{"train", "--help"}, Words{"generate", "--help"},
                             Words{"tokenize", "--help"}, Words{"eval", "--help"}})
    CHECK_THAT(run_program(words).out, Contains("usage: tessera"));
  // eval takes an mlp too, whose folder holds what every run leaves.
  CHECK_THAT(run_program({"eval", "--help"}).out,
             Contains("images") && !Contains("language model that was trained"));
  CHECK_THAT(run_program({"train", "mlp", "--help"}).out,
             Contains("model.safetensors") && Contains("report.html"));
}

// Rows of the tables of options in the program's README, by the bold words in front of each table.
using Rows = std::map<std::string, std::string>;  // option, default
std::map<std::string, Rows> readme_tables() {
  std::ifstream readme("tools/program/README.md");
  REQUIRE(readme.good());
  static const std::regex row(R"(^\| `--([a-z0-9-]+)` \| ([^|]*) \|.*)");
  static const std::regex heading(R"(^\*\*Options of ([a-z ]+)\.\*\*.*)");
  std::map<std::string, Rows> tables;
  std::string name;
  for (std::string line; std::getline(readme, line);) {
    std::smatch match;
    if (std::regex_match(line, match, heading)) name = match[1];
    if (!name.empty() && std::regex_match(line, match, row))
      tables[name][match[1]] = std::regex_replace(match[2].str(), std::regex("`"), "");
    if (line.starts_with("## ")) name.clear();
  }
  return tables;
}

TEST_CASE("the page's tables have the options and defaults of --help") {
  const auto tables = readme_tables();
  REQUIRE(tables.size() == 3);
  std::map<std::string, std::size_t> used;
  for (const std::string& model : kModels) {
    Rows rows = tables.at("every model");
    const Rows own = tables.at(model == "mlp" ? "mlp" : "language models");
    for (const auto& [option, value] : own) {
      CAPTURE(model, option);
      CHECK(rows.emplace(option, value).second);  // in one table only
    }
    const TrainTable train(model);
    for (const models::runs::Option& option : train.table.options()) {
      CAPTURE(model, option.name);
      REQUIRE(rows.contains(option.name));
      ++used[option.name];
      CHECK(rows[option.name] == (option.of_preset ? "the preset's" : option.default_text()));
    }
  }
  for (const auto& [name, rows] : tables)
    for (const auto& [option, value] : rows) {
      CAPTURE(name, option);
      CHECK(used[option] > 0);
    }
}

}  // namespace
}  // namespace tessera::testing
