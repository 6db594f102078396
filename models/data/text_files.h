#pragma once

/// Text to train on: a file, a folder, or the default corpus. All of it is held in memory.

#include <string>
#include <vector>

namespace tessera::models::data {

struct Document {
  std::string path;  ///< relative to the folder; for a single file, its name
  std::string text;  ///< UTF-8, not empty
};

/// The reStructuredText sources of Python's documentation, from Debian's package python3.11-doc:
/// English prose and code, 11 MB, licence PSF.
inline constexpr const char* kDefaultCorpus = "/usr/share/doc/python3.11/html/_sources";

/// Reads a file, or all regular files below a folder in bytewise order of their paths. Gzip files
/// are decompressed, a byte order mark is removed, and "\r\n" becomes "\n". In a folder, hidden
/// files and folders, empty files and binary files (with a zero byte) are skipped, and links to
/// folders are not followed. Throws DataError naming the file: missing, a pipe or device,
/// unreadable, a damaged gzip file, not UTF-8 (with the position); a single file that is empty or
/// binary; a folder without any text. If kDefaultCorpus is missing, the error says which package to
/// install.
std::vector<Document> read_documents(const std::string& path);

}  // namespace tessera::models::data
