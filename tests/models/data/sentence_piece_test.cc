// Training SentencePiece: the same file each time, without output; errors. Also model files that
// are damaged or lose bytes.
#include <sentencepiece_trainer.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>

#include "tessera/models/data/tokenizer.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/support/output.h"

namespace tessera::models::data {
namespace {

using Catch::Matchers::Contains;
using testing::output_of;
using testing::read_file;

std::vector<std::string> texts() {
  return {testing::plain_text(30'000), testing::plain_text(10'000, 2)};
}

std::string learned(const SentencePieceTraining& options) {
  const std::string path = testing::fresh_folder("learned") + "/a.model";
  train_sentence_piece(texts(), path, options);
  return read_file(path);
}

TEST_CASE("the same texts and options give the same model, others another") {
  const std::string type = GENERATE("bpe", "unigram");
  const SentencePieceTraining all{.vocab_size = 310, .model_type = type};
  CHECK(learned(all) == learned(all));
  const SentencePieceTraining part{.vocab_size = 305, .model_type = type, .max_bytes = 8'000};
  SentencePieceTraining other = part;
  other.seed = 2;
  CHECK(learned(part) == learned(part));
  CHECK(learned(part) != learned(other));
}

TEST_CASE("nothing is printed, be it learned, refused or opened") {
  CHECK(output_of([] { learned({.vocab_size = 350}); }) == "");
  CHECK(output_of([] {
          CHECK_THROWS_AS(learned({.vocab_size = 90'000, .model_type = "unigram"}), DataError);
        }) == "");
  const std::string path = testing::fresh_folder("noise") + "/a.model";
  testing::write_file(path, "no model at all");
  CHECK(output_of([&] { CHECK_THROWS_AS(sentence_piece_tokenizer(path), DataError); }) == "");
}

TEST_CASE("what cannot be learned is refused with the reason, and leaves no file") {
  const std::string folder = testing::fresh_folder("refused"), path = folder + "/a.model";
  const auto train = [&](const std::vector<std::string>& given,
                         const SentencePieceTraining& options) {
    train_sentence_piece(given, path, options);
  };
  CHECK_THROWS_WITH(train(texts(), {.model_type = "word"}), Contains("it must be bpe or unigram"));
  CHECK_THROWS_WITH(train(texts(), {.vocab_size = 259}), Contains("259 are taken by the bytes"));
  CHECK_THROWS_AS(train(texts(), {.vocab_size = 2'000'000}), InvalidArgument);
  CHECK_THROWS_WITH(train(texts(), {.max_bytes = 0}), Contains("max_bytes is 0"));
  CHECK_THROWS_WITH(train({}, {}), Contains("no text to learn from"));
  CHECK_THROWS_WITH(train({"", "\t\t"}, {}), Contains("no text to learn from"));
  CHECK_THROWS_WITH(train({"good", "b\xff"}, {}), Contains("at position 1 of 2"));
  CHECK_THROWS_WITH(train({"hello world"}, {.vocab_size = 4096}),
                    Contains("1 lines") && Contains("Vocabulary size too high (4096)"));
  CHECK_THROWS_WITH(train({"abcdefghijkl"}, {.vocab_size = 260}),
                    Contains("Vocabulary size is smaller than required_chars"));
  CHECK_THROWS_AS(train({"hello world"}, {.vocab_size = 4096}), DataError);
  CHECK(std::filesystem::is_empty(folder));
  CHECK_THROWS_AS(train_sentence_piece(texts(), folder + "/none/a.model", {.vocab_size = 350}),
                  CheckpointError);
}

TEST_CASE("a line without end, for which SentencePiece would end the program, is learned from") {
  const std::string path = testing::fresh_folder("long") + "/a.model";
  train_sentence_piece(std::vector{std::string(70'000, 'a')}, path, {.vocab_size = 264});
  const auto tokenizer = sentence_piece_tokenizer(path);
  CHECK(tokenizer->vocab_size() == 264);
  CHECK(tokenizer->encode("aa  aa").size() <= 4);  // a space is in the vocabulary even if no text
                                                   // contains one
}

TEST_CASE("files that are no models are refused by name") {
  const std::string path = testing::fresh_folder("files") + "/a.model";
  CHECK_THROWS_WITH(sentence_piece_tokenizer(path),
                    Contains(path + " cannot be read") && Contains("name the new place"));
  const std::string model = learned({.vocab_size = 300});
  for (const std::string& bytes : {std::string(), std::string("text"), std::string(100, '\0'),
                                   model.substr(0, model.size() / 2)}) {
    testing::write_file(path, bytes);
    CHECK_THROWS_WITH(sentence_piece_tokenizer(path), Contains(path));
    CHECK_THROWS_AS(sentence_piece_tokenizer(path), DataError);
  }
}

TEST_CASE("a model with a flipped byte is refused by its checksum") {
  const std::string path = testing::fresh_folder("flipped") + "/a.model";
  const std::string model = learned({.vocab_size = 300});
  const std::string text = testing::plain_text(300, 9) + "\xf0\x9f\x98\x80\xe2\x96\x81";
  // Its last field: a mark of 18 bytes and 16 digits. A model without the mark was made elsewhere.
  const std::size_t mark = model.size() - 34, digits = model.size() - 16;
  REQUIRE(model.substr(mark + 4, 14) == "tessera-xxh64:");
  for (std::size_t at = 0; at < model.size(); at += at < mark ? 23 : 1) {
    std::string flipped = model;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
    testing::write_file(path, flipped);
    try {
      const auto tokenizer = sentence_piece_tokenizer(path);
      CHECK((at >= mark && at < digits));
      CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
    } catch (const DataError& error) {
      if (at < mark || at >= digits)
        CHECK_THAT(error.what(), Contains(path + " has the checksum "));
    }
  }
}

// A model made by SentencePiece itself with this setting.
std::string foreign_model(const std::string& setting, const std::string& value) {
  const std::string folder = testing::fresh_folder("foreign");
  testing::write_file(folder + "/text", testing::plain_text(20'000) + "\xef\xac\x81\n");
  std::unordered_map<std::string, std::string> settings = {{"input", folder + "/text"},
                                                           {"model_prefix", folder + "/made"},
                                                           {"vocab_size", "300"},
                                                           {"model_type", "bpe"},
                                                           {"byte_fallback", "true"},
                                                           {"hard_vocab_limit", "false"},
                                                           {"normalization_rule_name", "identity"},
                                                           {"remove_extra_whitespaces", "false"},
                                                           {"add_dummy_prefix", "false"},
                                                           {"minloglevel", "3"}};
  settings[setting] = value;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings);
  REQUIRE(status.ok());
  return folder + "/made.model";
}

TEST_CASE("a model that keeps texts may come from elsewhere, one that does not is refused") {
  const auto tokenizer = sentence_piece_tokenizer(foreign_model("vocab_size", "310"));
  CHECK(tokenizer->decode(tokenizer->encode("  a\tb\n")) == "  a\tb\n");
  const auto reason = [](const std::string& setting, const std::string& value) -> std::string {
    try {
      sentence_piece_tokenizer(foreign_model(setting, value));
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  CHECK_THAT(reason("byte_fallback", "false"), Contains("without byte fallback"));
  CHECK_THAT(reason("eos_id", "-1"), Contains("no end-of-sentence piece"));
  CHECK_THAT(reason("add_dummy_prefix", "true"), Contains("does not give back \"a\""));
  CHECK_THAT(reason("remove_extra_whitespaces", "true"), Contains("does not give back"));
  CHECK_THAT(reason("normalization_rule_name", "nmt_nfkc"), Contains("does not give back"));
}

}  // namespace
}  // namespace tessera::models::data
