#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "tessera/models/data/held_tokens.h"
#include "tessera/models/data/text_lines.h"
#include "tessera/models/data/token_file.h"
#include "tessera/models/data/utf8.h"
#include "tessera/models/data/validation_split.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/rank_context.h"

namespace tessera::models::data {
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
