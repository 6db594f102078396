// Text from files and folders, valid and invalid; the default corpus.
#include "tessera/models/data/text_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tessera/tensor/error.h"
#include "tessera/tests/models/data/test_data.h"
#include "tessera/tests/support/test_main.h"

namespace tessera::models::data {
namespace {

using Catch::Matchers::Contains;
using testing::write_file;

// The text of a file of these bytes.
std::string text_of(const std::string& bytes) {
  const std::string path = testing::fresh_folder("single") + "/a.txt";
  write_file(path, bytes);
  const std::vector<Document> documents = read_documents(path);
  REQUIRE(documents.size() == 1);
  CHECK(documents[0].path == "a.txt");
  return documents[0].text;
}

// The text of the DataError; "" if there is none.
std::string error_of(const std::string& path) {
  try {
    read_documents(path);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}
std::string error_of_bytes(const std::string& bytes) {
  const std::string path = testing::fresh_folder("bad") + "/a.txt";
  write_file(path, bytes);
  return error_of(path);
}

TEST_CASE("a file is read as it is, but for byte order mark and line ends") {
  CHECK(text_of("one\ntwo") == "one\ntwo");
  CHECK(text_of(" \n") == " \n");
  CHECK(text_of("\xef\xbb\xbfone\r\n\r\ntwo\r\n") == "one\n\ntwo\n");
  CHECK(text_of("a\rb\r\r\n\r") == "a\rb\r\n\r");
  CHECK(text_of("a\xef\xbb\xbf") == "a\xef\xbb\xbf");
  const std::string large = testing::plain_text(1'500'000);
  CHECK(text_of(large) == large);
}

TEST_CASE("a file that gzip packed is unpacked, whatever its name") {
  const std::string path = testing::fresh_folder("packed") + "/a.txt";
  testing::write_gzip(path, "packed\r\n");
  CHECK(read_documents(path).at(0).text == "packed\n");
  const std::string bytes = testing::read_file(path);
  write_file(path, bytes.substr(0, bytes.size() - 3));
  CHECK_THAT(error_of(path), Contains(path + " is truncated"));
  write_file(path, bytes.substr(0, 12) + "xxx" + bytes.substr(15));
  CHECK_THAT(error_of(path), Contains(path));
}

TEST_CASE("a file that is no text is refused with what is wrong") {
  CHECK_THAT(error_of_bytes(""), Contains("/a.txt is empty"));
  CHECK_THAT(error_of_bytes("\xef\xbb\xbf"), Contains("/a.txt is empty"));
  CHECK_THAT(error_of_bytes(std::string("ab\0c", 4)), Contains("zero byte at position 2 of 4"));
  CHECK_THAT(error_of_bytes("one\ntw\xe9o\n"),
             Contains("not UTF-8: byte 0xe9 at position 6 (line 2) of 9"));
  CHECK_THAT(error_of_bytes("cut off \xe2\x82"), Contains("at position 8 (line 1) of 10"));
  CHECK_THAT(error_of_bytes(std::string("\xff\xfe"
                                        "a\0",
                                        4)),
             Contains("iconv -f UTF-16"));
  CHECK_THAT(error_of_bytes("\xfe\xff"), Contains("iconv -f UTF-16"));
}

TEST_CASE("what is not there is refused by name") {
  const std::string folder = testing::fresh_folder("absent");
  CHECK_THAT(error_of(folder + "/none"), Contains(folder + "/none cannot be read: No such file"));
  CHECK_THAT(error_of(folder), Contains(folder + " has no text"));
}

TEST_CASE("pipes and devices are refused without being opened") {
  const std::string pipe = testing::fresh_folder("pipe") + "/pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THAT(error_of(pipe), Contains(pipe + " is a pipe or a device"));
  CHECK_THAT(error_of("/dev/zero"), Contains("/dev/zero is a pipe or a device"));
}

TEST_CASE("what is not to be read is refused by name") {
  if (::geteuid() == 0) {
    testing::skip("root reads everything");
    return;
  }
  const std::string folder = testing::fresh_folder("locked");
  write_file(folder + "/locked", "text");
  ::chmod((folder + "/locked").c_str(), 0);
  CHECK_THAT(error_of(folder + "/locked"), Contains("/locked cannot be opened: Permission denied"));
  CHECK_THAT(error_of(folder), Contains("/locked cannot be opened: Permission denied"));
  std::filesystem::create_directory(folder + "/shut");
  ::chmod((folder + "/shut").c_str(), 0);
  CHECK_THAT(error_of(folder), Contains("/shut"));
  ::chmod((folder + "/shut").c_str(), 0700);
}

TEST_CASE("a folder is its text files in the order of their paths") {
  const std::string folder = testing::fresh_folder("folder");
  for (const char* below : {"/b", "/b/c", "/.git"})
    std::filesystem::create_directory(folder + below);
  write_file(folder + "/z.txt", "last");
  write_file(folder + "/b/c/deep", "deep");
  write_file(folder + "/b.txt", "before b/c: '.' comes before '/'");
  write_file(folder + "/b/.hidden", "hidden");
  write_file(folder + "/.git/config", "hidden");
  write_file(folder + "/b/empty", "");
  write_file(folder + "/b/image", std::string("\x89PNG\0\xff", 6));
  testing::write_gzip(folder + "/b/packed.gz", "packed");
  std::filesystem::create_symlink("z.txt", folder + "/link");
  std::filesystem::create_symlink("nowhere", folder + "/broken");
  std::filesystem::create_directory_symlink("..", folder + "/b/loop");
  std::string found;
  for (const Document& document : read_documents(folder + "/"))
    found += document.path + "=" + document.text.substr(0, 6) + ";";
  CHECK(found == "b.txt=before;b/c/deep=deep;b/packed.gz=packed;link=last;z.txt=last;");
  write_file(folder + "/b/latin1", "caf\xe9");
  CHECK_THAT(error_of(folder), Contains("/b/latin1 is not UTF-8: byte 0xe9 at position 3"));
}

TEST_CASE("the default corpus is known by its version, and any change to it is seen") {
  if (!std::filesystem::exists(kDefaultCorpus)) {
    CHECK_THAT(error_of(kDefaultCorpus), Contains("python3.11-doc") && Contains("path-exclude"));
    testing::skip("python3.11-doc is not there");
    return;
  }
  std::vector<Document> documents = read_documents(kDefaultCorpus);
  CHECK(documents.size() == 497);
  const CorpusVersion found = default_corpus_version(documents);
  INFO(found.note);  // a new version is not a failure of the code: see models/data/README.md
  CHECK(found.package.empty() != found.note.empty());
  documents[40].text[100] ^= 1;
  const CorpusVersion changed = default_corpus_version(documents);
  CHECK(changed.package == "");
  CHECK_THAT(changed.note, Contains("the text has 497 files of 11") && Contains("deb12u9") &&
                               Contains("16ff642e733a4c4e"));
  documents[40].text[100] ^= 1;
  CHECK(default_corpus_version(documents).note == found.note);
  documents.pop_back();
  CHECK_THAT(default_corpus_version(documents).note, Contains("the text has 496 files"));
}

TEST_CASE("the default corpus is recognised however its path is written") {
  CHECK(is_default_corpus(kDefaultCorpus));
  CHECK(is_default_corpus(std::string(kDefaultCorpus) + "/"));
  CHECK(is_default_corpus(std::string(kDefaultCorpus) + "/../_sources//"));
  if (std::filesystem::exists(kDefaultCorpus)) {
    const std::string link = testing::fresh_folder("corpus_link") + "/link";
    std::filesystem::create_directory_symlink(kDefaultCorpus, link);
    CHECK(is_default_corpus(link));
    CHECK(is_default_corpus(std::filesystem::relative(kDefaultCorpus).string()));
  }
  CHECK_FALSE(is_default_corpus("/usr/share/doc"));
  CHECK_FALSE(is_default_corpus(""));
}

TEST_CASE("how to get the default corpus says what removes it") {
  CHECK_THAT(how_to_get_default_corpus(), Contains("python3.11-doc") && Contains("path-exclude"));
}

}  // namespace
}  // namespace tessera::models::data
