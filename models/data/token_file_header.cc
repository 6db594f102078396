#include "tessera/models/data/token_file_header.h"

#include <xxhash.h>

#include <bit>
#include <concepts>
#include <cstring>
#include <limits>

#include "tessera/models/data/tokenize.h"
#include "tessera/models/data/utf8.h"
#include "tessera/tensor/check.h"

namespace tessera::models::data {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are stored little-endian");

constexpr const char* kWhere = "token_file";
constexpr std::uint32_t kVersion = 2;
constexpr std::int64_t kAlignment = 64;
constexpr std::size_t kChecksumAt = 88;
constexpr std::int64_t kMost = std::int64_t{1} << 58;  // leaves room for sums of byte counts

template <std::integral T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <std::integral T>
T get(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

// Of everything before the tokens except the checksum itself.
std::uint64_t checksum_of(std::string_view header) {
  std::string bytes(header);
  bytes.replace(kChecksumAt, 8, 8, '\0');
  return XXH64(bytes.data(), bytes.size(), 0);
}

std::int64_t header_bytes_of(std::int64_t name_bytes) {
  return (kTokenFileFixedBytes + name_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

static_assert(kTokenFileLongestHeader >= kTokenFileFixedBytes + kTokenFileLongestName &&
              kTokenFileLongestHeader % kAlignment == 0);

void check_front(std::string_view file, const std::string& path) {
  TESSERA_CHECK_AS(DataError, file.starts_with(kTokenFileMagic), kWhere,
                   "{} does not begin as token files do; it is another kind of file", path);
  TESSERA_CHECK_AS(DataError, static_cast<std::int64_t>(file.size()) >= kTokenFileFixedBytes,
                   kWhere, "{} is truncated: {} of at least {} bytes; make it again", path,
                   file.size(), kTokenFileFixedBytes);
  const auto version = get<std::uint32_t>(file, 8);
  TESSERA_CHECK_AS(DataError, version == kVersion, kWhere,
                   "{} has version {} of the format, this program reads {}; make it again with "
                   "tessera tokenize",
                   path, version, kVersion);
}

// Returns the length of the name, after checking that the header with its checksum fits the file.
std::int64_t check_header_bytes(std::string_view file, const std::string& path) {
  const auto name_bytes = get<std::int64_t>(file, 80);
  TESSERA_CHECK_AS(DataError, name_bytes >= 0 && name_bytes <= kTokenFileLongestName, kWhere,
                   "{} announces {} bytes of the tokenizer's name, at most {} can be; it is "
                   "damaged",
                   path, name_bytes, kTokenFileLongestName);
  const auto have = static_cast<std::int64_t>(file.size());
  const std::int64_t wanted = header_bytes_of(name_bytes);
  TESSERA_CHECK_AS(DataError, have >= wanted, kWhere,
                   "{} is truncated: {} of the {} bytes of its header; make it again", path, have,
                   wanted);
  const std::string_view header = file.substr(0, static_cast<std::size_t>(wanted));
  const auto stored = get<std::uint64_t>(file, kChecksumAt);
  TESSERA_CHECK_AS(DataError, stored == checksum_of(header), kWhere,
                   "{} has the checksum {:016x} in its header, the header's own is {:016x}; it is "
                   "damaged, make it again",
                   path, stored, checksum_of(header));
  return name_bytes;
}

void check_part(const TokenFileHeader::Part& part, const char* name, const std::string& path) {
  const auto& [tokens, documents, bytes] = part;
  TESSERA_CHECK_AS(DataError, tokens >= 0 && tokens <= kMost, kWhere,
                   "{} announces {} {} tokens; it is damaged", path, tokens, name);
  TESSERA_CHECK_AS(DataError, documents >= 0 && documents <= tokens, kWhere,
                   "{} announces {} {} documents in {} tokens; it is damaged", path, documents,
                   name, tokens);
  TESSERA_CHECK_AS(DataError, bytes >= tokens - documents && bytes <= kMost, kWhere,
                   "{} announces {} bytes of text in {} {} tokens and {} documents; it is damaged",
                   path, bytes, tokens, name, documents);
}

void check_fields(const TokenFileHeader& header, const std::string& path) {
  const std::int64_t vocab = header.vocab_size;
  TESSERA_CHECK_AS(DataError, vocab >= 1 && vocab <= std::numeric_limits<std::int32_t>::max(),
                   kWhere, "{} announces a vocabulary of {}; it is damaged", path, vocab);
  const std::int64_t wanted = token_bytes_for(vocab);
  TESSERA_CHECK_AS(DataError, header.token_bytes == wanted, kWhere,
                   "{} has {} bytes a token, a vocabulary of {} needs {}; it is damaged", path,
                   header.token_bytes, vocab, wanted);
  check_part(header.train, "training", path);
  check_part(header.validation, "validation", path);
  TESSERA_CHECK_AS(DataError, find_invalid_utf8(header.tokenizer) == std::string_view::npos, kWhere,
                   "{} names a tokenizer that is not UTF-8; it is damaged", path);
}

}  // namespace

std::int64_t TokenFileHeader::header_bytes() const {
  return header_bytes_of(static_cast<std::int64_t>(tokenizer.size()));
}

std::int64_t TokenFileHeader::file_bytes() const {
  return header_bytes() + token_bytes * (train.tokens + validation.tokens) + kTokenFileTrailer;
}

std::string encode_token_file_header(const TokenFileHeader& header) {
  std::string bytes(kTokenFileMagic);
  put(bytes, kVersion);
  put(bytes, static_cast<std::uint32_t>(header.token_bytes));
  put(bytes, header.vocab_size);
  put(bytes, header.fingerprint);
  put(bytes, header.train.tokens);
  put(bytes, header.validation.tokens);
  put(bytes, header.train.documents);
  put(bytes, header.validation.documents);
  put(bytes, header.train.bytes);
  put(bytes, header.validation.bytes);
  put(bytes, static_cast<std::int64_t>(header.tokenizer.size()));
  put(bytes, std::uint64_t{0});
  bytes += header.tokenizer;
  bytes.resize(static_cast<std::size_t>(header.header_bytes()), '\0');
  const std::uint64_t checksum = checksum_of(bytes);
  std::memcpy(bytes.data() + kChecksumAt, &checksum, sizeof(checksum));
  return bytes;
}

TokenFileHeader decode_token_file_header(std::string_view front, std::int64_t file_bytes,
                                         const std::string& path) {
  check_front(front, path);
  const std::int64_t name_bytes = check_header_bytes(front, path);
  TokenFileHeader header;
  header.token_bytes = get<std::uint32_t>(front, 12);
  header.vocab_size = get<std::int64_t>(front, 16);
  header.fingerprint = get<std::uint64_t>(front, 24);
  header.train.tokens = get<std::int64_t>(front, 32);
  header.validation.tokens = get<std::int64_t>(front, 40);
  header.train.documents = get<std::int64_t>(front, 48);
  header.validation.documents = get<std::int64_t>(front, 56);
  header.train.bytes = get<std::int64_t>(front, 64);
  header.validation.bytes = get<std::int64_t>(front, 72);
  header.tokenizer = front.substr(kTokenFileFixedBytes, static_cast<std::size_t>(name_bytes));
  check_fields(header, path);
  TESSERA_CHECK_AS(DataError, header.file_bytes() == file_bytes, kWhere,
                   "{} has {} bytes, its header announces {}: {} + {} tokens of {} bytes; it is "
                   "damaged, make it again",
                   path, file_bytes, header.file_bytes(), header.train.tokens,
                   header.validation.tokens, header.token_bytes);
  return header;
}

}  // namespace tessera::models::data
