// Documents to tokens: the same for any number of threads; the validation part.
#include <rapidcheck.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/models/data/text_files.h"
#include "tessera/models/data/token_file.h"
#include "tessera/models/data/tokenize.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/models/data/token_support.h"

namespace tessera::models::data {
namespace {

using Catch::Matchers::Contains;
using testing::all_of;

std::vector<Document> many_documents(int count) {
  std::vector<Document> documents;
  for (int i = 0; i < count; ++i)
    documents.push_back({.path = "d" + std::to_string(i),
                         .text = testing::plain_text(50 + 37 * (i % 11), 100 + i)});
  return documents;
}

std::string joined(const TextPart& part) {
  std::string text;
  for (const std::string_view one : part.texts) text += one;
  return text;
}

TEST_CASE("tokens are those of the documents in order, an end of text after each") {
  const auto tokenizer = byte_tokenizer();
  const std::vector<Document> documents = {{.path = "a", .text = "ab"}, {.path = "b", .text = "c"}};
  const TokenizedText text = tokenize(documents, *tokenizer, {.validation = 0});
  CHECK(all_of(*text.train) == std::vector<std::int64_t>{'a', 'b', 256, 'c', 256});
  CHECK(text.validation->size() == 0);
  CHECK(text.train_documents == 2);
  CHECK(text.validation_documents == 0);
  CHECK(text.train_bytes == 3);
  CHECK(text.tokenizer == "bytes");
  CHECK(text.vocab_size == 257);
  CHECK(text.tokenizer_fingerprint == tokenizer->fingerprint());
  std::vector<std::int64_t> out(2);
  CHECK_THROWS_WITH(text.train->read(4, out), Contains("2 tokens from 4") && Contains("are 5"));
  CHECK_THROWS_AS(text.train->read(-1, out), InvalidArgument);
  CHECK_THROWS_AS(text.train->read(6, {}), InvalidArgument);
}

TEST_CASE("any number of threads gives the same tokens") {
  const std::string path = testing::fresh_folder("threads") + "/a.model";
  train_sentence_piece(std::vector{testing::plain_text(20'000)}, path, {.vocab_size = 330});
  const auto tokenizer = sentence_piece_tokenizer(path);
  std::vector<Document> documents = many_documents(40);
  documents.push_back({.path = "large", .text = testing::plain_text(400'000)});
  documents.push_back({.path = "one line", .text = std::string(150'000, 'x')});
  const TokenizedText one = tokenize(documents, *tokenizer, {.threads = 1});
  std::vector<std::int64_t> expected;
  for (const Document& document : documents) {
    const auto tokens = tokenizer->encode(document.text);
    expected.insert(expected.end(), tokens.begin(), tokens.end());
    expected.push_back(tokenizer->end_of_text());
  }
  CHECK(all_of(*tokenize(documents, *tokenizer, {.validation = 0}).train) == expected);
  for (const int threads : {2, 3, 8}) {
    const TokenizedText other = tokenize(documents, *tokenizer, {.threads = threads});
    CHECK(all_of(*other.train) == all_of(*one.train));
    CHECK(all_of(*other.validation) == all_of(*one.validation));
  }
}

TEST_CASE("a text's pieces end with lines and are all of it") {
  CHECK(rc::check("pieces of some bytes", [] {
    const std::string text = testing::random_text() + testing::random_text();
    const auto bytes = static_cast<std::size_t>(*rc::gen::inRange(1, 50));
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = lines_end(text, begin, bytes);
      RC_ASSERT(end > begin);
      RC_ASSERT(end == text.size() || (text[end - 1] == '\n' && text[end] != '\n'));
      RC_ASSERT(end == text.size() || end - begin >= bytes);
      begin = end;
    }
  }));
}

TEST_CASE("whole documents are kept by a hash of their text, so that one more moves none") {
  std::vector<Document> documents = many_documents(400);
  const ValidationSplit split = split_for_validation(documents, 0.1);
  const auto total = static_cast<double>(split.train.bytes + split.validation.bytes);
  CHECK(static_cast<double>(split.validation.bytes) / total == Approx(0.1).margin(0.04));
  CHECK(split.train.texts.size() + split.validation.texts.size() == 400);
  const std::string before = joined(split.validation);
  documents.insert(documents.begin() + 50, Document{.path = "new", .text = "new text\n"});
  std::string after = joined(split_for_validation(documents, 0.1).validation);
  if (const std::size_t at = after.find("new text\n"); at != std::string::npos) after.erase(at, 9);
  CHECK(after == before);
}

TEST_CASE("of a few documents the end is kept, cut between characters") {
  const std::vector<Document> one = {{.path = "a", .text = "0123456\xf0\x9f\x98\x80"}};
  const ValidationSplit split = split_for_validation(one, 0.2);
  CHECK(joined(split.train) == "0123456");
  CHECK(joined(split.validation) == "\xf0\x9f\x98\x80");
  const std::vector<Document> two = {{.path = "a", .text = "0123456789"},
                                     {.path = "b", .text = "abcdefghij"}};
  for (const double part : {0.05, 0.1, 0.95}) {
    const ValidationSplit parts = split_for_validation(two, part);
    CHECK(joined(parts.train) + joined(parts.validation) == "0123456789abcdefghij");
    CHECK(parts.validation.bytes == std::llround(20 * part));
  }
}

TEST_CASE("the same document twice lies on one side") {
  std::vector<Document> documents = many_documents(300);
  const std::size_t count = documents.size();
  for (std::size_t i = 0; i < count; ++i) documents.push_back(documents[i]);
  const ValidationSplit split = split_for_validation(documents, 0.2);
  for (const std::string_view text : split.validation.texts)
    CHECK(std::count(split.train.texts.begin(), split.train.texts.end(), text) == 0);
}

TEST_CASE("what cannot be split or encoded is refused") {
  const auto tokenizer = byte_tokenizer();
  const auto run = [&](const std::vector<Document>& documents, const TokenizeOptions& options) {
    tokenize(documents, *tokenizer, options);
  };
  const std::vector<Document> tiny = {{.path = "a", .text = "x"}}, none;
  CHECK_THROWS_WITH(run(tiny, {}), Contains("1 bytes of text are too short"));
  CHECK_THROWS_AS(run(tiny, {}), DataError);
  CHECK_THROWS_WITH(run(none, {.validation = 0}), Contains("0 bytes of text are too short"));
  CHECK_THROWS_WITH(run(tiny, {.validation = 1}), Contains("validation is 1"));
  CHECK_THROWS_WITH(run(tiny, {.validation = -0.1}), Contains("from 0 to below 1"));
  CHECK_THROWS_WITH(run(tiny, {.validation = std::nan("")}), Contains("validation is nan"));
  CHECK_THROWS_WITH(run(tiny, {.threads = -1}), Contains("threads is -1"));
  CHECK_THROWS_WITH(run({{.path = "here", .text = "good\n\xff"}}, {}),
                    Contains("here is not UTF-8") && Contains("position 5"));
}

class FailingTokenizer final : public Tokenizer {
 public:
  const std::string& name() const override { return name_; }
  std::uint64_t fingerprint() const override { return 1; }
  std::int64_t vocab_size() const override { return 2; }
  std::int32_t end_of_text() const override { return 0; }
  std::vector<std::int32_t> encode(std::string_view) const override {
    throw StateError("no tokens today");
  }
  std::string decode(std::span<const std::int32_t>) const override { return ""; }
  const std::vector<std::int64_t>& token_bytes() const override { return bytes_; }

 private:
  std::string name_ = "failing";
  std::vector<std::int64_t> bytes_ = {0, 1};
};

TEST_CASE("what a tokenizer throws on any thread comes out") {
  const int threads = GENERATE(1, 4);
  CHECK_THROWS_WITH(tokenize(many_documents(50), FailingTokenizer(), {.threads = threads}),
                    Contains("no tokens today"));
}

}  // namespace
}  // namespace tessera::models::data
