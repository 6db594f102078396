// Token files: reading returns the written data; damaged and forged files give errors, never wrong
// tokens.
#include "tessera/models/data/token_file.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <rapidcheck.h>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "tessera/models/data/token_file_header.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/models/data/token_support.h"

namespace tessera::models::data {
namespace {

using Catch::Matchers::Contains;
using testing::all_of;
using testing::read_file;
using testing::write_file;

constexpr std::size_t kHeaderBytes = 128;  // of a tokenizer with a short name
constexpr std::size_t kChecksumBytes = 8;  // of the tokens, at the end

TokenizedText small_text() {
  const std::vector<Document> documents = {{.path = "a", .text = testing::plain_text(150)},
                                           {.path = "b", .text = testing::plain_text(70, 2)}};
  return tokenize(documents, *byte_tokenizer(), {.validation = 0.2});
}

std::string small_file() {
  const std::string path = testing::fresh_folder("tokens") + "/small.tokens";
  write_token_file(path, small_text(), *byte_tokenizer());
  return read_file(path);
}

// The text of the DataError for a file of these bytes; "" if there is none.
std::string error_of(const std::string& bytes) {
  static const std::string path = testing::fresh_folder("hostile") + "/x.tokens";
  write_file(path, bytes);
  try {
    const TokenizedText text = open_token_file(path, nullptr);
    all_of(*text.train);
    all_of(*text.validation);
  } catch (const DataError& error) {
    CHECK_THAT(error.what(), Contains(path));
    return error.what();
  }
  return "";
}

template <class T>
std::string with(std::string bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
  return bytes;
}

// A forged file: a changed field with a recomputed checksum.
template <class T>
std::string forged(const std::string& bytes, std::size_t at, T value) {
  const std::string cleared = with(with(bytes, at, value), 88, std::uint64_t{0});
  return with(cleared, 88, std::uint64_t{XXH64(cleared.data(), kHeaderBytes, 0)});
}

TEST_CASE("a file gives what was written") {
  const std::string path = testing::fresh_folder("written") + "/a.tokens";
  const TokenizedText written = small_text();
  const auto tokenizer = byte_tokenizer();
  write_token_file(path, written, *tokenizer);
  CHECK(is_token_file(path));
  const TokenizedText read = open_token_file(path, tokenizer.get());
  CHECK(all_of(*read.train) == all_of(*written.train));
  CHECK(all_of(*read.validation) == all_of(*written.validation));
  CHECK(read.validation->size() > 0);
  CHECK(read.tokenizer == "bytes");
  CHECK(read.tokenizer_fingerprint == tokenizer->fingerprint());
  CHECK(read.vocab_size == 257);
  CHECK(read.train_documents == written.train_documents);
  CHECK(read.validation_documents == written.validation_documents);
  CHECK(read.train_bytes == written.train_bytes);
  CHECK(read.validation_bytes == written.validation_bytes);
  CHECK(std::filesystem::file_size(path) ==
        kHeaderBytes + 2 * static_cast<std::size_t>(read.train->size() + read.validation->size()) +
            kChecksumBytes);
  CHECK(tokenizer_of_token_file(path) == "bytes");
  std::vector<std::int64_t> out(3);
  CHECK_THROWS_AS(read.train->read(read.train->size() - 2, out), InvalidArgument);
}

TEST_CASE("tokens outlive the file's name, and a new file does not touch them") {
  const std::string path = testing::fresh_folder("outlive") + "/a.tokens";
  const auto tokenizer = byte_tokenizer();
  write_token_file(path, small_text(), *tokenizer);
  const auto tokens = open_token_file(path, tokenizer.get()).train;
  const std::vector<std::int64_t> before = all_of(*tokens);
  const std::vector<Document> other = {{.path = "c", .text = "another"}};
  write_token_file(path, tokenize(other, *tokenizer, {.validation = 0}), *tokenizer);
  CHECK(all_of(*tokens) == before);
  CHECK(open_token_file(path, tokenizer.get()).train->size() == 8);
  std::filesystem::remove(path);
  CHECK(all_of(*tokens) == before);
}

// A text with any tokens and vocabulary.
struct Invented {
  TokenizedText text;
  std::unique_ptr<Tokenizer> tokenizer;
};
class InventedTokenizer final : public Tokenizer {
 public:
  InventedTokenizer(std::string name, std::int64_t vocab) : name_(std::move(name)), vocab_(vocab) {}
  const std::string& name() const override { return name_; }
  std::uint64_t fingerprint() const override { return 0xfeedfacecafebeef; }
  std::int64_t vocab_size() const override { return vocab_; }
  std::int32_t end_of_text() const override { return 0; }
  std::vector<std::int32_t> encode(std::string_view) const override { return {}; }
  std::string decode(std::span<const std::int32_t>) const override { return ""; }
  const std::vector<std::int64_t>& token_bytes() const override { return bytes_; }

 private:
  std::string name_;
  std::int64_t vocab_;
  std::vector<std::int64_t> bytes_;
};
Invented invented(std::vector<std::int64_t> train, std::vector<std::int64_t> validation,
                  std::int64_t vocab, const std::string& name) {
  const auto train_size = static_cast<std::int64_t>(train.size());
  const auto validation_size = static_cast<std::int64_t>(validation.size());
  return {.text = {.train = std::make_shared<testing::GivenTokens>(std::move(train)),
                   .validation = std::make_shared<testing::GivenTokens>(std::move(validation)),
                   .tokenizer = name,
                   .tokenizer_fingerprint = 0xfeedfacecafebeef,
                   .vocab_size = vocab,
                   .train_documents = 0,
                   .validation_documents = 0,
                   .train_bytes = 4 * train_size,
                   .validation_bytes = 4 * validation_size},
          .tokenizer = std::make_unique<InventedTokenizer>(name, vocab)};
}

TEST_CASE("property: any tokens of any vocabulary come back, in 2 bytes each or in 4") {
  const std::string path = testing::fresh_folder("property") + "/a.tokens";
  CHECK(rc::check("with names of any length", [&] {
    const auto vocab = *rc::gen::element<std::int64_t>(1, 2, 257, 65'535, 65'536, 65'537, 1 << 30);
    const auto tokens =
        rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, vocab));
    const std::vector<std::int64_t> train = *tokens, validation = *tokens;
    const std::string name(static_cast<std::size_t>(*rc::gen::inRange(0, 200)), 'n');
    const Invented one = invented(train, validation, vocab, name);
    write_token_file(path, one.text, *one.tokenizer);
    const TokenizedText read = open_token_file(path, one.tokenizer.get());
    RC_ASSERT(all_of(*read.train) == train);
    RC_ASSERT(all_of(*read.validation) == validation);
    RC_ASSERT(read.vocab_size == vocab);
    RC_ASSERT(read.tokenizer == name);
  }));
}

TEST_CASE("what must not be written leaves the old file") {
  const std::string folder = testing::fresh_folder("unwritten"), path = folder + "/a.tokens";
  write_file(path, "old");
  const auto write = [&](const Invented& one) { write_token_file(path, one.text, *one.tokenizer); };
  CHECK_THROWS_WITH(write(invented({0, 5}, {}, 5, "x")), Contains("token 5 is outside"));
  CHECK_THROWS_WITH(write(invented({0}, {-1}, 5, "x")), Contains("token -1 is outside"));
  CHECK_THROWS_WITH(write(invented({0}, {}, 5, std::string(5000, 'x'))), Contains("5000 bytes"));
  CHECK_THROWS_WITH(write_token_file(path, small_text(), InventedTokenizer("other", 257)),
                    Contains("made by the tokenizer bytes, not by other"));
  CHECK(read_file(path) == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);
  CHECK_THROWS_AS(write_token_file(folder + "/none/a", small_text(), *byte_tokenizer()),
                  CheckpointError);
}

TEST_CASE("a file of any other length is refused") {
  const std::string good = small_file();
  REQUIRE(error_of(good) == "");
  for (std::size_t size = 0; size < good.size(); ++size)
    CHECK(error_of(good.substr(0, size)) != "");
  CHECK_THAT(error_of(good + "x"), Contains("its header announces"));
  CHECK_THAT(error_of(good.substr(0, good.size() - 2)), Contains("its header announces"));
  CHECK_THAT(error_of(good.substr(0, 50)), Contains("truncated: 50 of at least 96"));
  CHECK_THAT(error_of(good.substr(0, 100)), Contains("truncated: 100 of the 128"));
  CHECK_THAT(error_of(""), Contains("is empty or no regular file"));
}

TEST_CASE("every flipped bit of a header is seen") {
  const std::string good = small_file();
  for (std::size_t at = 0; at < kHeaderBytes; ++at)
    for (int bit = 0; bit < 8; ++bit)
      CHECK(error_of(with(good, at, static_cast<char>(good[at] ^ (1 << bit)))) != "");
}

TEST_CASE("every flipped bit of the tokens and of their checksum is seen when a file is opened") {
  const std::string good = small_file(), path = testing::fresh_folder("flipped") + "/x.tokens";
  for (std::size_t at = kHeaderBytes; at < good.size(); ++at) {
    write_file(path, with(good, at, static_cast<char>(good[at] ^ (1 << at % 8))));
    CHECK_THROWS_AS(open_token_file(path, nullptr), DataError);
  }
  // Another valid token, which only the checksum detects.
  const auto first = static_cast<char>(good[kHeaderBytes] ^ 1);
  CHECK_THAT(error_of(with(good, kHeaderBytes, first)),
             Contains("of its tokens at its end") && Contains("is damaged, make it again"));
}

TEST_CASE("a file of an earlier version is refused with what makes a new one") {
  CHECK_THAT(error_of(forged(small_file(), 8, 1)),
             Contains("has version 1 of the format, this program reads 2; make it again with "
                      "tessera tokenize"));
}

TEST_CASE("a file that becomes shorter while it is used is an error, not a signal") {
  const std::string path = testing::fresh_folder("shorter") + "/a.tokens";
  const auto tokenizer = byte_tokenizer();
  const std::vector<Document> documents = {{.path = "a", .text = testing::plain_text(50'000)}};
  write_token_file(path, tokenize(documents, *tokenizer, {.validation = 0}), *tokenizer);
  const auto tokens = open_token_file(path, tokenizer.get()).train;
  std::filesystem::resize_file(path, 5'000);
  std::vector<std::int64_t> out(1'500);
  tokens->read(0, out);
  CHECK_THROWS_WITH(tokens->read(2'000, out),
                    Contains(path + " had ") && Contains("ends before byte 5001 now"));
  CHECK_THROWS_AS(tokens->read(40'000, out), DataError);
}

TEST_CASE("a token that was put there while the file is used is seen when it is read") {
  const std::string path = testing::fresh_folder("changed") + "/a.tokens";
  write_token_file(path, small_text(), *byte_tokenizer());
  const auto tokens = open_token_file(path, nullptr).train;
  write_file(path, with(read_file(path), kHeaderBytes + 6, std::uint16_t{257}));
  CHECK_THROWS_WITH(all_of(*tokens),
                    Contains("the token 257 at position 3, outside the vocabulary of 257"));
}

TEST_CASE("every field is checked, also where the checksum was made to fit") {
  const std::string good = small_file();
  REQUIRE(error_of(forged(good, 16, std::int64_t{257})) == "");
  constexpr std::int64_t kHuge = std::int64_t{1} << 62, kMinus = -1;
  CHECK_THAT(error_of(forged(good, 8, 3)), Contains("version 3"));
  CHECK_THAT(error_of(forged(good, 12, 4)), Contains("4 bytes a token"));
  CHECK_THAT(error_of(forged(good, 12, 0)), Contains("0 bytes a token"));
  CHECK_THAT(error_of(forged(good, 16, std::int64_t{0})), Contains("a vocabulary of 0"));
  CHECK_THAT(error_of(forged(good, 16, kMinus)), Contains("a vocabulary of -1"));
  CHECK_THAT(error_of(forged(good, 16, std::int64_t{70'000})), Contains("2 bytes a token"));
  for (const std::int64_t value : {kHuge, kMinus, std::numeric_limits<std::int64_t>::max()}) {
    CHECK_THAT(error_of(forged(good, 32, value)), Contains("training tokens"));
    CHECK_THAT(error_of(forged(good, 40, value)), Contains("validation tokens"));
    CHECK_THAT(error_of(forged(good, 48, value)), Contains("training documents"));
    CHECK_THAT(error_of(forged(good, 56, value)), Contains("validation documents"));
    CHECK_THAT(error_of(forged(good, 64, value)), Contains("training tokens"));
    CHECK_THAT(error_of(forged(good, 72, value)), Contains("validation tokens"));
    CHECK_THAT(error_of(forged(good, 80, value)), Contains("bytes of the tokenizer's name"));
  }
  // Sums that overflow must not look like the size of the file.
  std::string largest = good;
  for (const std::size_t field : {32, 40, 64, 72})
    largest = forged(largest, field, std::int64_t{1} << 58);
  CHECK_THAT(error_of(largest), Contains("its header announces"));
  for (const std::size_t field : {32, 40, 64, 72})
    largest = forged(largest, field, (std::int64_t{1} << 58) + 1);
  CHECK_THAT(error_of(largest), Contains("training tokens"));
  CHECK_THAT(error_of(forged(good, 32, std::int64_t{1} << 60)), Contains("training tokens"));
  CHECK_THAT(error_of(forged(good, 32, std::int64_t{7})),
             Contains("training documents") || Contains("its header announces"));
  CHECK_THAT(error_of(forged(good, 64, std::int64_t{3})), Contains("3 bytes of text"));
  CHECK_THAT(error_of(forged(good, 80, std::int64_t{4000})), Contains("truncated"));
  CHECK_THAT(error_of(forged(good, 96, '\xff')), Contains("not UTF-8"));
}

TEST_CASE("a token outside the vocabulary is named when a file is opened") {
  const std::string good = small_file();
  CHECK_THAT(error_of(with(good, kHeaderBytes + 6, std::uint16_t{257})),
             Contains("the token 257 at position 3, outside the vocabulary of 257"));
  CHECK_THAT(error_of(with(good, good.size() - kChecksumBytes - 2, std::uint16_t{0xffff})),
             Contains("the token 65535 at position"));
}

TEST_CASE("property: a spoiled file is refused or gives tokens of the vocabulary") {
  const std::string good = small_file();
  CHECK(rc::check("bytes overwritten, cut out, put in", [&] {
    std::string bytes = good;
    for (int i = *rc::gen::inRange(1, 6); i > 0; --i) {
      const auto at =
          static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(bytes.size())));
      const auto value = static_cast<char>(*rc::gen::inRange(0, 256));
      const int kind = *rc::gen::inRange(0, 4);
      if (kind < 2) bytes[at] = value;
      if (kind == 2) bytes.erase(at, 2);
      if (kind == 3) bytes.insert(at, 2, value);
    }
    error_of(bytes);  // reads all tokens; any exception but DataError fails the test
  }));
}

TEST_CASE("files of another tokenizer or of another kind are refused") {
  const std::string folder = testing::fresh_folder("other"), path = folder + "/a.tokens";
  write_token_file(path, small_text(), *byte_tokenizer());
  const InventedTokenizer other("other", 257);
  CHECK_THROWS_WITH(open_token_file(path, &other),
                    Contains("made by the tokenizer bytes") && Contains("the one given, other"));
  CHECK_THROWS_AS(open_token_file(path, &other), DataError);
  CHECK(open_token_file(path, nullptr).tokenizer == "bytes");
  write_file(folder + "/text", "plain text, longer than a header of tokens is, and then some more");
  CHECK_THROWS_WITH(open_token_file(folder + "/text", nullptr), Contains("another kind of file"));
  CHECK_THROWS_WITH(open_token_file(folder + "/none", nullptr), Contains("No such file"));
  CHECK_THROWS_WITH(open_token_file(folder, nullptr), Contains("no regular file"));
  CHECK_FALSE(is_token_file(folder + "/text"));
  CHECK_FALSE(is_token_file(folder + "/none"));
  CHECK_FALSE(is_token_file(folder));
  const std::string pipe = folder + "/pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_FALSE(is_token_file(pipe));
  CHECK_THROWS_WITH(open_token_file(pipe, nullptr), Contains("no regular file"));
  write_file(folder + "/short", "\x89TOK");
  CHECK_FALSE(is_token_file(folder + "/short"));
}

}  // namespace
}  // namespace tessera::models::data
