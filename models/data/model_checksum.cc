#include "tessera/models/data/model_checksum.h"

#include <xxhash.h>

#include "tessera/tensor/check.h"

namespace tessera::models::data {
namespace {

// Field 20001, in the extension range of SentencePiece, followed by 30 bytes of text.
constexpr std::string_view kFront = "\x8a\xe2\x09\x1etessera-xxh64:";
constexpr std::size_t kDigits = 16;

std::string digits_of(std::string_view model) {
  return fmt::format("{:016x}", XXH64(model.data(), model.size(), 0));
}

}  // namespace

std::string checksum_field(std::string_view model) {
  return std::string(kFront) + digits_of(model);
}

void check_checksum_field(std::string_view model, const std::string& path, std::string_view where) {
  const std::size_t field = kFront.size() + kDigits;
  if (model.size() < field || !model.substr(model.size() - field).starts_with(kFront)) return;
  const std::string_view stored = model.substr(model.size() - kDigits);
  const std::string found = digits_of(model.substr(0, model.size() - field));
  TESSERA_CHECK_AS(DataError, stored == found, where,
                   "{} has the checksum {} at its end, its own is {}; it is damaged, take a copy "
                   "of it or learn it again",
                   path, stored, found);
}

}  // namespace tessera::models::data
