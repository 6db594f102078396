#pragma once

/// Text to train on: a file, a folder, or the default corpus. All of it is held in memory.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
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

/// How read_whole_file reports errors.
struct WholeFileOptions {
  std::string_view where;                                     ///< tag of its errors
  std::int64_t most = std::int64_t{1} << 62;                  ///< maximum size of such a file in
                                                              ///< bytes
  std::string_view if_missing = "name a file that is there";  ///< advice if it is missing
};

/// Decompresses gzip files. Memory grows only with the data actually read. Throws DataError naming
/// the file if it is missing, not a regular file, damaged, or too large.
std::string read_whole_file(const std::string& path, const WholeFileOptions& options);

// Positions at which a text can be split without changing its tokens.

/// The end of the line that starts at `begin`: after its "\n" and all "\n" that follow it, so an
/// empty line belongs to the line above.
std::size_t line_end(std::string_view text, std::size_t begin);

/// The end of the last line needed to reach `bytes` bytes from `begin`, or more; `bytes` is at
/// least 1.
std::size_t lines_end(std::string_view text, std::size_t begin, std::size_t bytes);

/// Checks whether the default corpus is the version for which losses are documented.

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
