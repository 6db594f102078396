#include "tessera/models/data/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "tessera/models/data/token_file_header.h"
#include "tessera/models/data/tokenize.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/io/atomic_file.h"

namespace tessera::models::data {
namespace {

constexpr const char* kWhere = "token_file";
// Tokens per read: of a whole file, and of a sequence (on the stack).
constexpr std::int64_t kWritePiece = std::int64_t{1} << 16;
constexpr std::size_t kReadPiece = 1024;

class TokenChecksum {
 public:
  TokenChecksum() : state_(XXH64_createState()) { XXH64_reset(state_.get(), 0); }
  void add(const void* data, std::size_t bytes) { XXH64_update(state_.get(), data, bytes); }
  std::uint64_t value() const { return XXH64_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH64_state_t* state) const { XXH64_freeState(state); }
  };
  std::unique_ptr<XXH64_state_t, Free> state_;
};

// An open file. It is read by system calls and not mapped: if another process shortens a mapped
// file, touching the missing part ends this process.
class TokenFile {
 public:
  explicit TokenFile(std::string path) : path_(std::move(path)) {
    file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK: opening a pipe
                                                                       // must not block
    if (file_ < 0)
      throw_error<DataError>(kWhere, "{} cannot be opened: {}; name a token file", path_,
                             std::strerror(errno));
    struct stat status {};
    const bool known = ::fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
    bytes_ = known ? static_cast<std::int64_t>(status.st_size) : 0;
    if (bytes_ > 0) return;
    ::close(file_);
    throw_error<DataError>(kWhere, "{} is empty or no regular file; name a token file", path_);
  }
  ~TokenFile() { ::close(file_); }
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t bytes() const { return bytes_; }
  // Reads bytes [begin, begin + count). Thread-safe.
  void read(std::int64_t begin, void* out, std::size_t count) const {
    auto* next = static_cast<char*>(out);
    while (count > 0) {
      const ssize_t got = ::pread(file_, next, count, begin);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0)
        throw_error<DataError>(kWhere, "{} cannot be read at byte {}: {}; look after the disk",
                               path_, begin, std::strerror(errno));
      TESSERA_CHECK_AS(DataError, got > 0, kWhere,
                       "{} had {} bytes when it was opened and ends before byte {} now; leave a "
                       "token file alone while it is used, and make it again",
                       path_, bytes_, begin + 1);
      next += got;
      begin += got;
      count -= static_cast<std::size_t>(got);
    }
  }

 private:
  std::string path_;
  int file_ = -1;
  std::int64_t bytes_ = 0;
};

TokenFileHeader read_header(const TokenFile& file) {
  std::string front(static_cast<std::size_t>(std::min(file.bytes(), kTokenFileLongestHeader)),
                    '\0');
  file.read(0, front.data(), front.size());
  return decode_token_file_header(front, file.bytes(), file.path());
}

// The tokens of one part.
template <class T>
class FileTokens final : public TokenSpan {
 public:
  FileTokens(std::shared_ptr<const TokenFile> file, std::int64_t offset, std::int64_t count,
             std::int64_t vocab_size)
      : file_(std::move(file)), offset_(offset), count_(count), vocab_size_(vocab_size) {}
  std::int64_t size() const override { return count_; }
  void read(std::int64_t begin, std::span<std::int64_t> out) const override {
    check_token_range(begin, out.size(), count_);
    std::array<T, kReadPiece> piece;
    for (std::size_t done = 0; done < out.size(); done += piece.size()) {
      const std::span<T> tokens(piece.data(), std::min(piece.size(), out.size() - done));
      const std::int64_t at = begin + static_cast<std::int64_t>(done);
      read_narrow(at, tokens);
      std::copy(tokens.begin(), tokens.end(), out.begin() + static_cast<std::ptrdiff_t>(done));
    }
  }
  // Reads tokens as they are in the file, and checks that each is in the vocabulary.
  void read_narrow(std::int64_t begin, std::span<T> out) const {
    file_->read(offset_ + begin * static_cast<std::int64_t>(sizeof(T)), out.data(),
                out.size_bytes());
    const auto bad = std::find_if(out.begin(), out.end(), [&](T token) {
      return static_cast<std::int64_t>(token) >= vocab_size_;
    });
    if (bad != out.end())
      throw_error<DataError>(kWhere,
                             "{} has the token {} at position {}, outside the vocabulary of {}; it "
                             "is damaged, make it again",
                             file_->path(), *bad, begin + (bad - out.begin()), vocab_size_);
  }
  void add_to(TokenChecksum& checksum) const {
    std::vector<T> piece(static_cast<std::size_t>(std::min(count_, kWritePiece)));
    for (std::int64_t at = 0; at < count_; at += kWritePiece) {
      piece.resize(static_cast<std::size_t>(std::min(kWritePiece, count_ - at)));
      read_narrow(at, piece);
      checksum.add(piece.data(), piece.size() * sizeof(T));
    }
  }

 private:
  std::shared_ptr<const TokenFile> file_;
  std::int64_t offset_;
  std::int64_t count_;
  std::int64_t vocab_size_;
};

template <class T>
void write_tokens(AtomicFile& file, const TokenSpan& tokens, std::int64_t vocab_size,
                  TokenChecksum& checksum) {
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
    checksum.add(narrow.data(), narrow.size() * sizeof(T));
  }
}

struct Parts {
  std::shared_ptr<const TokenSpan> train;
  std::shared_ptr<const TokenSpan> validation;
};

// Both parts, after all of their tokens were read once.
template <class T>
Parts open_parts(const std::shared_ptr<const TokenFile>& file, const TokenFileHeader& header) {
  const std::int64_t begin = header.header_bytes(),
                     middle = begin + header.token_bytes * header.train.tokens;
  const auto part = [&](std::int64_t offset, std::int64_t tokens) {
    return std::make_shared<const FileTokens<T>>(file, offset, tokens, header.vocab_size);
  };
  const auto train = part(begin, header.train.tokens);
  const auto validation = part(middle, header.validation.tokens);
  TokenChecksum checksum;
  train->add_to(checksum);
  validation->add_to(checksum);
  std::uint64_t stored = 0;
  file->read(file->bytes() - kTokenFileTrailer, &stored, sizeof(stored));
  const std::uint64_t found = checksum.value();
  TESSERA_CHECK_AS(DataError, stored == found, kWhere,
                   "{} has the checksum {:016x} of its tokens at its end, the tokens' own is "
                   "{:016x}; it is damaged, make it again",
                   file->path(), stored, found);
  return {.train = train, .validation = validation};
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
  TokenChecksum tokens_sum;
  for (const TokenSpan* part : {text.train.get(), text.validation.get()})
    header.token_bytes == 2 ? write_tokens<std::uint16_t>(file, *part, text.vocab_size, tokens_sum)
                            : write_tokens<std::uint32_t>(file, *part, text.vocab_size, tokens_sum);
  const std::uint64_t checksum = tokens_sum.value();
  file.write(&checksum, sizeof(checksum));
  file.commit();
}

TokenizedText open_token_file(const std::string& path, const Tokenizer* tokenizer) {
  const auto file = std::make_shared<const TokenFile>(path);
  const TokenFileHeader header = read_header(*file);
  TESSERA_CHECK_AS(DataError,
                   tokenizer == nullptr || tokenizer->fingerprint() == header.fingerprint, kWhere,
                   "{} was made by the tokenizer {} of {} tokens with the fingerprint {:016x}; the "
                   "one given, {}, has {} and {:016x}; make the file again with it, or give that "
                   "one",
                   path, header.tokenizer, header.vocab_size, header.fingerprint, tokenizer->name(),
                   tokenizer->vocab_size(), tokenizer->fingerprint());
  Parts parts = header.token_bytes == 2 ? open_parts<std::uint16_t>(file, header)
                                        : open_parts<std::uint32_t>(file, header);
  return {.train = std::move(parts.train),
          .validation = std::move(parts.validation),
          .tokenizer = header.tokenizer,
          .tokenizer_fingerprint = header.fingerprint,
          .vocab_size = header.vocab_size,
          .train_documents = header.train.documents,
          .validation_documents = header.validation.documents,
          .train_bytes = header.train.bytes,
          .validation_bytes = header.validation.bytes};
}

std::string tokenizer_of_token_file(const std::string& path) {
  return read_header(TokenFile(path)).tokenizer;
}

bool is_token_file(const std::string& path) {
  // Opening a pipe would wait for its other end, and reading would consume its data.
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::array<char, kTokenFileMagic.size()> front{};
  std::ifstream file(path, std::ios::binary);
  file.read(front.data(), front.size());
  return file.good() && std::string_view(front.data(), front.size()) == kTokenFileMagic;
}

}  // namespace tessera::models::data
