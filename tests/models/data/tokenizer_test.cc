// Both tokenizers keep every byte of every text, for any split at lines.
#include "tessera/models/data/tokenizer.h"

#include <rapidcheck.h>
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>

#include "tessera/models/data/text_files.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/models/data/test_data.h"

namespace tessera::models::data {
namespace {

using Catch::Matchers::Contains;

// Trained once: by byte pairs and by the unigram model.
const Tokenizer& trained(const std::string& type) {
  static const auto make = [](const std::string& kind) {
    const std::string path = testing::fresh_folder("tokenizer_" + kind) + "/text.model";
    const std::vector<std::string> texts = {testing::plain_text(40'000), "\xc3\xa9t\xc3\xa9\n"};
    const std::int64_t size = kind == "bpe" ? 400 : 310;  // unigram finds no more
    train_sentence_piece(texts, path, {.vocab_size = size, .model_type = kind});
    return sentence_piece_tokenizer(path);
  };
  static const auto bpe = make("bpe"), unigram = make("unigram");
  return type == "bpe" ? *bpe : *unigram;
}

const Tokenizer& tokenizer_named(const std::string& name) {
  static const auto bytes = open_tokenizer("bytes");
  return name == "bytes" ? *bytes : trained(name);
}

std::int64_t bytes_of(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens) {
  std::int64_t bytes = 0;
  for (const std::int32_t token : tokens)
    bytes += tokenizer.token_bytes().at(static_cast<std::size_t>(token));
  return bytes;
}

// The first violated property of any text; "" if none is.
std::string wrong(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<std::int32_t> tokens = tokenizer.encode(text);
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= tokenizer.vocab_size()) return "a token outside";
    if (token == tokenizer.end_of_text()) return "an end of text";
  }
  if (tokenizer.decode(tokens) != text) return "not the text again: " + tokenizer.decode(tokens);
  std::string one_by_one;
  for (const std::int32_t& token : tokens) one_by_one += tokenizer.decode({&token, 1});
  if (one_by_one != text) return "not the text again, one by one";
  if (bytes_of(tokenizer, tokens) != static_cast<std::int64_t>(text.size())) return "bytes";
  std::vector<std::int32_t> line_by_line;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = line_end(text, begin);
    const auto line = tokenizer.encode(std::string_view(text).substr(begin, end - begin));
    line_by_line.insert(line_by_line.end(), line.begin(), line.end());
    begin = end;
  }
  return line_by_line == tokens ? "" : "other tokens line by line";
}

TEST_CASE("property: every byte of every text comes back") {
  const Tokenizer& tokenizer = tokenizer_named(GENERATE("bytes", "bpe", "unigram"));
  CHECK(rc::check("and the tokens' bytes add up, and lines do not know each other", [&] {
    const std::string text = testing::random_text();
    RC_ASSERT(wrong(tokenizer, text) == "");
  }));
}

TEST_CASE("texts at the edges come back") {
  const Tokenizer& tokenizer = tokenizer_named(GENERATE("bytes", "bpe", "unigram"));
  std::string all;
  for (std::uint32_t point = 0; point < 0x3000; ++point) all += testing::utf8_of(point);
  std::string wide;
  while (wide.size() < 9'000) wide += "\xf0\x9f\x98\x80";
  for (const std::string& text :
       {std::string(), std::string(" "), std::string(1000, ' '), std::string("\n"),
        std::string(5000, '\n'), std::string(1, '\0'), std::string("a\0b", 3), all, wide,
        std::string(20'000, 'x'), "x" + wide, std::string(70'000, ' ') + "end",
        std::string("\xe2\x96\x81 \xe2\x96\x81\xe2\x96\x81the")})
    CHECK(wrong(tokenizer, text) == "");
}

TEST_CASE("the end of a text is no text, and nothing lies outside the vocabulary") {
  const Tokenizer& tokenizer = tokenizer_named(GENERATE("bytes", "bpe", "unigram"));
  const std::int32_t end = tokenizer.end_of_text();
  CHECK(tokenizer.decode(std::vector{end, end}) == "");
  CHECK(tokenizer.token_bytes().at(static_cast<std::size_t>(end)) == 0);
  CHECK(static_cast<std::int64_t>(tokenizer.token_bytes().size()) == tokenizer.vocab_size());
  const auto size = static_cast<std::int32_t>(tokenizer.vocab_size());
  CHECK_THROWS_AS(tokenizer.decode(std::vector{size}), InvalidArgument);
  CHECK_THROWS_WITH(tokenizer.decode(std::vector{-1}), Contains("token -1 is outside"));
}

TEST_CASE("a text that is not UTF-8 is refused with the position") {
  const Tokenizer& tokenizer = tokenizer_named(GENERATE("bytes", "bpe", "unigram"));
  CHECK_THROWS_AS(tokenizer.encode("abc\xff"), DataError);
  CHECK_THROWS_WITH(tokenizer.encode("abc\xffz"), Contains("byte 0xff at position 3 of 5"));
}

TEST_CASE("bytes are their own tokens") {
  const auto tokenizer = byte_tokenizer();
  CHECK(tokenizer->name() == "bytes");
  CHECK(tokenizer->vocab_size() == 257);
  CHECK(tokenizer->end_of_text() == 256);
  CHECK(tokenizer->encode("a\xc3\xa9") == std::vector<std::int32_t>{0x61, 0xc3, 0xa9});
}

TEST_CASE("SentencePiece learns words and indentation") {
  const Tokenizer& tokenizer = tokenizer_named(GENERATE("bpe", "unigram"));
  const std::string text = testing::plain_text(10'000, 7);
  CHECK(tokenizer.encode(text).size() * 3 < text.size());
  CHECK(tokenizer.encode("    ").size() <= 2);
  CHECK(tokenizer.encode("returns").size() <= 2);
}

TEST_CASE("a fingerprint is that of the model, whatever its name") {
  const Tokenizer& bpe = tokenizer_named("bpe");
  const std::string copy = testing::fresh_folder("copied") + "/other name.model";
  testing::write_file(copy, testing::read_file(bpe.name()));
  const auto opened = open_tokenizer(copy);
  CHECK(opened->name() == copy);
  CHECK(opened->fingerprint() == bpe.fingerprint());
  CHECK(bpe.fingerprint() != tokenizer_named("unigram").fingerprint());
  CHECK(bpe.fingerprint() != byte_tokenizer()->fingerprint());
  CHECK(byte_tokenizer()->fingerprint() == byte_tokenizer()->fingerprint());
}

}  // namespace
}  // namespace tessera::models::data
