#include "tessera/models/data/tokenize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <xxhash.h>

#include "tessera/models/data/text_files.h"
#include "tessera/models/data/token_file.h"
#include "tessera/models/data/utf8.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/rank_context.h"

namespace tessera::models::data {
namespace {

constexpr const char* kSplitWhere = "tokenize";

void add(TextPart& part, std::string_view text) {
  if (text.empty()) return;
  part.texts.push_back(text);
  part.bytes += static_cast<std::int64_t>(text.size());
}

ValidationSplit split_by_hash(std::span<const Document> documents, double validation) {
  ValidationSplit split;
  const double limit = validation * 0x1p64;
  for (const Document& document : documents) {
    const std::uint64_t hash = XXH64(document.text.data(), document.text.size(), 0);
    add(static_cast<double>(hash) < limit ? split.validation : split.train, document.text);
  }
  return split;
}

// Keeps the last bytes, split between two characters.
ValidationSplit split_at_end(std::span<const Document> documents, double validation,
                             std::int64_t bytes) {
  ValidationSplit split;
  auto left = static_cast<std::size_t>(std::llround(static_cast<double>(bytes) * (1 - validation)));
  for (const Document& document : documents) {
    const std::string_view text = document.text;
    const std::size_t cut = character_begin(text, left);
    add(split.train, text.substr(0, cut));
    add(split.validation, text.substr(cut));
    left = cut < text.size() ? 0 : left - text.size();
  }
  return split;
}

}  // namespace

ValidationSplit split_for_validation(std::span<const Document> documents, double validation) {
  TESSERA_CHECK(validation >= 0 && validation < 1, kSplitWhere,
                "validation is {}; it is a part of the text, from 0 to below 1", validation);
  ValidationSplit split = split_by_hash(documents, validation);
  const std::int64_t bytes = split.train.bytes + split.validation.bytes;
  const double wanted = validation * static_cast<double>(bytes);
  const auto chosen = static_cast<double>(split.validation.bytes);
  if (chosen < wanted / 2 || chosen > 2 * wanted || split.train.bytes == 0)
    split = split_at_end(documents, validation, bytes);
  TESSERA_CHECK_AS(DataError,
                   split.train.bytes > 0 && (split.validation.bytes > 0 || validation == 0),
                   kSplitWhere,
                   "{} bytes of text are too short: {} of them to train and {} to validate; give "
                   "more text",
                   bytes, split.train.bytes, split.validation.bytes);
  return split;
}

namespace {

template <class T>
class HeldTokens final : public TokenSpan {
 public:
  explicit HeldTokens(std::vector<std::vector<std::int32_t>>&& pieces) {
    std::size_t count = 0;
    for (const auto& piece : pieces) count += piece.size();
    tokens_.reserve(count);
    for (auto& piece : pieces) {
      const std::vector<std::int32_t> tokens = std::exchange(piece, {});
      std::transform(tokens.begin(), tokens.end(), std::back_inserter(tokens_),
                     [](std::int32_t token) { return static_cast<T>(token); });
    }
  }
  std::int64_t size() const override { return static_cast<std::int64_t>(tokens_.size()); }
  void read(std::int64_t begin, std::span<std::int64_t> out) const override {
    check_token_range(begin, out.size(), size());
    std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
  }

 private:
  std::vector<T> tokens_;
};

}  // namespace

std::shared_ptr<const TokenSpan> hold_tokens(std::vector<std::vector<std::int32_t>>&& pieces,
                                             std::int64_t vocab_size) {
  if (token_bytes_for(vocab_size) == 2)
    return std::make_shared<HeldTokens<std::uint16_t>>(std::move(pieces));
  return std::make_shared<HeldTokens<std::uint32_t>>(std::move(pieces));
}

void check_token_range(std::int64_t begin, std::size_t count, std::int64_t size) {
  TESSERA_CHECK(begin >= 0 && begin <= size && static_cast<std::uint64_t>(size - begin) >= count,
                "token_span", "{} tokens from {} are asked for, but there are {}", count, begin,
                size);
}

namespace {

constexpr const char* kWhere = "tokenize";
constexpr std::size_t kPieceBytes = std::size_t{1} << 17;

// The text that a thread encodes at a time: whole lines of a document.
struct Piece {
  std::string_view text;
  bool ends_document = false;
};

std::vector<Piece> cut_at_lines(const TextPart& part) {
  std::vector<Piece> pieces;
  for (const std::string_view text : part.texts)
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = lines_end(text, begin, kPieceBytes);
      pieces.push_back(
          {.text = text.substr(begin, end - begin), .ends_document = end == text.size()});
      begin = end;
    }
  return pieces;
}

// Calls work(0) ... work(count - 1) on several threads. Rethrows the first of their exceptions.
template <class Work>
void share_out(std::size_t count, int threads, const Work& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const std::shared_ptr<RankContext> context = current_rank_context();
  const auto run = [&] {
    const RankScope scope(context);
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  std::vector<std::jthread> helpers;
  for (int thread = 1; thread < threads; ++thread) helpers.emplace_back(run);
  run();
  helpers.clear();
  if (failure) std::rethrow_exception(failure);
}

std::shared_ptr<const TokenSpan> encode(const TextPart& part, const Tokenizer& tokenizer,
                                        int threads) {
  const std::vector<Piece> pieces = cut_at_lines(part);
  std::vector<std::vector<std::int32_t>> tokens(pieces.size());
  share_out(pieces.size(), threads, [&](std::size_t i) {
    tokens[i] = tokenizer.encode(pieces[i].text);
    if (pieces[i].ends_document) tokens[i].push_back(tokenizer.end_of_text());
  });
  return hold_tokens(std::move(tokens), tokenizer.vocab_size());
}

void check_documents(std::span<const Document> documents) {
  for (const Document& document : documents) {
    const std::size_t bad = find_invalid_utf8(document.text);
    TESSERA_CHECK_AS(DataError, bad == std::string_view::npos, kWhere,
                     "{} is not UTF-8: byte {:#04x} at position {}; convert it to UTF-8",
                     document.path, static_cast<std::uint8_t>(document.text[bad]), bad);
  }
}

}  // namespace

TokenizedText tokenize(std::span<const Document> documents, const Tokenizer& tokenizer,
                       const TokenizeOptions& options) {
  TESSERA_CHECK(options.threads >= 0, kWhere, "threads is {}; it must be 0 or more",
                options.threads);
  check_documents(documents);
  const ValidationSplit split = split_for_validation(documents, options.validation);
  const int threads = options.threads > 0 ? options.threads : current_rank_context()->threads();
  return {.train = encode(split.train, tokenizer, threads),
          .validation = encode(split.validation, tokenizer, threads),
          .tokenizer = tokenizer.name(),
          .tokenizer_fingerprint = tokenizer.fingerprint(),
          .vocab_size = tokenizer.vocab_size(),
          .train_documents = static_cast<std::int64_t>(split.train.texts.size()),
          .validation_documents = static_cast<std::int64_t>(split.validation.texts.size()),
          .train_bytes = split.train.bytes,
          .validation_bytes = split.validation.bytes};
}

}  // namespace tessera::models::data
