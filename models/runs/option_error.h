#pragma once

/// The version of the files of a run, and the error of its options.

#include "tessera/tensor/error.h"

namespace tessera::models::runs {

/// Written to config.json; a run of another version cannot be opened.
inline constexpr const char* kVersion = "0.1.0";

/// Options that are invalid or do not fit together, and a folder that holds no run. The text names
/// the option, or the file and its key.
class OptionError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

}  // namespace tessera::models::runs
