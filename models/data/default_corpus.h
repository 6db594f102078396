#pragma once

/// Checks whether the default corpus is the version for which losses are documented.

#include <span>
#include <string>

#include "tessera/models/data/text_files.h"

namespace tessera::models::data {

/// Whether `path` is kDefaultCorpus, however it is written; also a relative path or a link to it.
bool is_default_corpus(const std::string& path);

struct CorpusVersion {
  std::string package;  ///< version of python3.11-doc, "3.11.2-6+deb12u9"; empty if unknown
  /// A sentence for the user if the version is unknown: Debian changes a few of the files in
  /// security updates, and losses are then only roughly comparable with the documented ones.
  std::string note;
};

/// Compares the number of files, their bytes and a hash of all of them with the known versions.
CorpusVersion default_corpus_version(std::span<const Document> documents);

/// Instructions for a user without the default corpus.
std::string how_to_get_default_corpus();

}  // namespace tessera::models::data
