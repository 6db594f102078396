#pragma once

/// Is the default corpus the text that stated losses belong to?

#include <span>
#include <string>

#include "tessera/models/data/text_files.h"

namespace tessera::models::data {

/// Is `path` kDefaultCorpus, however it is written? Relative paths and links too where it is there.
bool is_default_corpus(const std::string& path);

struct CorpusVersion {
  std::string package;  ///< version of python3.11-doc, "3.11.2-6+deb12u9"; empty: none that we know
  /// A sentence for the user where the version is unknown: Debian changes a few files of it with
  /// security updates. Losses then compare only roughly with stated ones.
  std::string note;
};

/// Looks at the number of files, their bytes and a hash of all of them.
CorpusVersion default_corpus_version(std::span<const Document> documents);

/// What to do where the default corpus is missing.
std::string how_to_get_default_corpus();

}  // namespace tessera::models::data
