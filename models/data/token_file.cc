#include "tessera/models/data/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "tessera/models/data/held_tokens.h"
#include "tessera/models/data/token_file_header.h"
#include "tessera/tensor/atomic_file.h"
#include "tessera/tensor/check.h"

namespace tessera::models::data {
namespace {

constexpr const char* kWhere = "token_file";
constexpr std::int64_t kWritePiece = std::int64_t{1} << 16;  // tokens

// A file's bytes in the address space, read-only.
class Mapping {
 public:
  explicit Mapping(std::string path) : path_(std::move(path)) {
    const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // of a pipe too
    if (file < 0) fail("opened");
    struct stat status {};
    const bool known = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    size_ = known ? static_cast<std::size_t>(status.st_size) : 0;
    if (size_ > 0) data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
    const int cause = errno;
    ::close(file);
    errno = cause;
    TESSERA_CHECK_AS(DataError, size_ > 0, kWhere,
                     "{} is empty or no regular file; name a token file", path_);
    if (data_ == MAP_FAILED) fail("mapped");
  }
  ~Mapping() {
    if (data_ != MAP_FAILED) ::munmap(data_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const std::string& path() const { return path_; }
  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  [[noreturn]] void fail(const char* action) const {
    throw_error<DataError>(kWhere, "{} cannot be {}: {}; name a token file", path_, action,
                           std::strerror(errno));
  }

  std::string path_;
  std::size_t size_ = 0;
  void* data_ = MAP_FAILED;
};

template <class T>
class MappedTokens final : public TokenSpan {
 public:
  MappedTokens(std::shared_ptr<const Mapping> file, std::int64_t offset, std::int64_t count,
               std::int64_t vocab_size)
      : file_(std::move(file)),
        tokens_(reinterpret_cast<const T*>(file_->bytes().data() + offset)),
        count_(count),
        vocab_size_(vocab_size) {}
  std::int64_t size() const override { return count_; }
  void read(std::int64_t begin, std::span<std::int64_t> out) const override {
    check_token_range(begin, out.size(), count_);
    std::copy_n(tokens_ + begin, out.size(), out.begin());
    const auto bad = std::find_if(out.begin(), out.end(),
                                  [&](std::int64_t token) { return token >= vocab_size_; });
    if (bad != out.end())
      throw_error<DataError>(kWhere,
                             "{} has the token {} at position {}, outside the vocabulary of {}; it "
                             "is damaged, make it again",
                             file_->path(), *bad, begin + (bad - out.begin()), vocab_size_);
  }

 private:
  std::shared_ptr<const Mapping> file_;
  const T* tokens_;  // aligned: the header has a multiple of 64 bytes
  std::int64_t count_;
  std::int64_t vocab_size_;
};

template <class T>
void write_tokens(AtomicFile& file, const TokenSpan& tokens, std::int64_t vocab_size) {
  std::vector<std::int64_t> wide;
  std::vector<T> narrow;
  for (std::int64_t begin = 0; begin < tokens.size(); begin += kWritePiece) {
    wide.resize(static_cast<std::size_t>(std::min(kWritePiece, tokens.size() - begin)));
    tokens.read(begin, wide);
    narrow.clear();
    for (const std::int64_t token : wide) {
      TESSERA_CHECK(token >= 0 && token < vocab_size, kWhere,
                    "token {} is outside the vocabulary of {}", token, vocab_size);
      narrow.push_back(static_cast<T>(token));
    }
    file.write(narrow.data(), narrow.size() * sizeof(T));
  }
}

template <class T>
std::pair<std::shared_ptr<const TokenSpan>, std::shared_ptr<const TokenSpan>> map_parts(
    std::shared_ptr<const Mapping> file, const TokenFileHeader& header) {
  const std::int64_t begin = header.header_bytes(), train = header.train.tokens;
  return {std::make_shared<MappedTokens<T>>(file, begin, train, header.vocab_size),
          std::make_shared<MappedTokens<T>>(file, begin + header.token_bytes * train,
                                            header.validation.tokens, header.vocab_size)};
}

TokenFileHeader header_of(const TokenizedText& text) {
  return {.token_bytes = token_bytes_for(text.vocab_size),
          .vocab_size = text.vocab_size,
          .fingerprint = text.tokenizer_fingerprint,
          .train = {.tokens = text.train->size(),
                    .documents = text.train_documents,
                    .bytes = text.train_bytes},
          .validation = {.tokens = text.validation->size(),
                         .documents = text.validation_documents,
                         .bytes = text.validation_bytes},
          .tokenizer = text.tokenizer};
}

}  // namespace

void write_token_file(const std::string& path, const TokenizedText& text,
                      const Tokenizer& tokenizer) {
  TESSERA_CHECK(text.tokenizer_fingerprint == tokenizer.fingerprint() &&
                    text.vocab_size == tokenizer.vocab_size(),
                kWhere, "the tokens for {} were made by the tokenizer {}, not by {}; give that one",
                path, text.tokenizer, tokenizer.name());
  TESSERA_CHECK(static_cast<std::int64_t>(text.tokenizer.size()) <= kTokenFileLongestName, kWhere,
                "the tokenizer's name has {} bytes, {} is the most; give its file a shorter path",
                text.tokenizer.size(), kTokenFileLongestName);
  const TokenFileHeader header = header_of(text);
  const std::string front = encode_token_file_header(header);
  AtomicFile file(kWhere, path);
  file.write(front.data(), front.size());
  for (const TokenSpan* part : {text.train.get(), text.validation.get()})
    header.token_bytes == 2 ? write_tokens<std::uint16_t>(file, *part, text.vocab_size)
                            : write_tokens<std::uint32_t>(file, *part, text.vocab_size);
  file.commit();
}

TokenizedText open_token_file(const std::string& path, const Tokenizer* tokenizer) {
  const auto file = std::make_shared<const Mapping>(path);
  const TokenFileHeader header = decode_token_file_header(file->bytes(), path);
  TESSERA_CHECK_AS(DataError,
                   tokenizer == nullptr || tokenizer->fingerprint() == header.fingerprint, kWhere,
                   "{} was made by the tokenizer {} of {} tokens with the fingerprint {:016x}; the "
                   "one given, {}, has {} and {:016x}; make the file again with it, or give that "
                   "one",
                   path, header.tokenizer, header.vocab_size, header.fingerprint, tokenizer->name(),
                   tokenizer->vocab_size(), tokenizer->fingerprint());
  auto [train, validation] = header.token_bytes == 2 ? map_parts<std::uint16_t>(file, header)
                                                     : map_parts<std::uint32_t>(file, header);
  return {.train = std::move(train),
          .validation = std::move(validation),
          .tokenizer = header.tokenizer,
          .tokenizer_fingerprint = header.fingerprint,
          .vocab_size = header.vocab_size,
          .train_documents = header.train.documents,
          .validation_documents = header.validation.documents,
          .train_bytes = header.train.bytes,
          .validation_bytes = header.validation.bytes};
}

bool is_token_file(const std::string& path) {
  // Opening a pipe would wait for its other end, and take what is in it.
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::array<char, kTokenFileMagic.size()> front{};
  std::ifstream file(path, std::ios::binary);
  file.read(front.data(), front.size());
  return file.good() && std::string_view(front.data(), front.size()) == kTokenFileMagic;
}

}  // namespace tessera::models::data
