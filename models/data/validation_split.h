#pragma once

/// The part of a text that is kept for validation.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/models/data/text_files.h"

namespace tessera::models::data {

/// Documents, or parts of one. They are views into the documents that were split.
struct TextPart {
  std::vector<std::string_view> texts;
  std::int64_t bytes = 0;
};

struct ValidationSplit {
  TextPart train;
  TextPart validation;
};

/// The rule of TokenizeOptions::validation. Throws InvalidArgument for a fraction outside [0, 1),
/// and DataError if one of the two parts would be empty.
ValidationSplit split_for_validation(std::span<const Document> documents, double validation);

}  // namespace tessera::models::data
