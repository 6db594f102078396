#include "tessera/models/data/validation_split.h"

#include <xxhash.h>

#include <cmath>

#include "tessera/models/data/utf8.h"
#include "tessera/tensor/check.h"

namespace tessera::models::data {
namespace {

constexpr const char* kWhere = "tokenize";

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
  TESSERA_CHECK(validation >= 0 && validation < 1, kWhere,
                "validation is {}; it is a part of the text, from 0 to below 1", validation);
  ValidationSplit split = split_by_hash(documents, validation);
  const std::int64_t bytes = split.train.bytes + split.validation.bytes;
  const double wanted = validation * static_cast<double>(bytes);
  const auto chosen = static_cast<double>(split.validation.bytes);
  if (chosen < wanted / 2 || chosen > 2 * wanted || split.train.bytes == 0)
    split = split_at_end(documents, validation, bytes);
  TESSERA_CHECK_AS(DataError,
                   split.train.bytes > 0 && (split.validation.bytes > 0 || validation == 0), kWhere,
                   "{} bytes of text are too short: {} of them to train and {} to validate; give "
                   "more text",
                   bytes, split.train.bytes, split.validation.bytes);
  return split;
}

}  // namespace tessera::models::data
