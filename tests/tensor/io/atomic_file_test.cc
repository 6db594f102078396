// What an AtomicFile may replace. The safetensors tests check that a file appears complete.
#include "tessera/tensor/io/atomic_file.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

void write_atomic(const std::string& path, const std::string& text) {
  AtomicFile file("test", path);
  file.write(text.data(), text.size());
  file.commit();
}

std::string refusal(const std::string& path, const std::string& kind) {
  return "[test] cannot replace \"" + path + "\": it is " + kind +
         ", and only a regular file is replaced; choose another path";
}

auto files_in(const std::string& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

TEST_CASE("a regular file is replaced, and nothing else") {
  const std::string file = temporary_path("kinds", "file");
  const std::string folder = fs::path(file).parent_path().string();
  write_atomic(file, "first");
  write_atomic(file, "second");
  CHECK(read_bytes(file) == "second");
  fs::create_directory(folder + "/folder");
  fs::create_symlink("file", folder + "/link");
  fs::create_symlink("nothing", folder + "/dangling");
  REQUIRE(mkfifo((folder + "/pipe").c_str(), 0600) == 0);
  const int socket_file = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = {}};
  const std::string usual = fs::current_path().string();
  fs::current_path(folder);  // the full name may be too long for a socket
  std::strcpy(name.sun_path, "socket");
  REQUIRE(bind(socket_file, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0);
  fs::current_path(usual);
  close(socket_file);
  const auto before = files_in(folder);
  const std::vector<std::pair<std::string, std::string>> others = {
      {folder + "/folder", "a folder"}, {folder + "/link", "a link"},
      {folder + "/dangling", "a link"}, {folder + "/pipe", "a pipe"},
      {folder + "/socket", "a socket"}, {"/dev/null", "a device"}};
  for (const auto& [path, kind] : others) {
    CAPTURE(path);
    CHECK(irregular_file(path) == kind);
    CHECK(thrown<CheckpointError>([&] { write_atomic(path, "x"); }) == refusal(path, kind));
  }
  CHECK(irregular_file(file).empty());
  CHECK(irregular_file(folder + "/missing").empty());
  CHECK(files_in(folder) == before);
  CHECK(read_bytes(file) == "second");
}

TEST_CASE("what comes to the path while a file is written is not replaced") {
  const std::string path = temporary_path("comes", "file");
  AtomicFile file("test", path);
  file.write("new", 3);
  write_bytes(path + ".other", "old");
  fs::create_symlink("file.other", path);
  CHECK(thrown<CheckpointError>([&] { file.commit(); }) == refusal(path, "a link"));
  CHECK(fs::is_symlink(path));
  CHECK(read_bytes(path) == "old");
}

TEST_CASE("the leftover of a writer that was killed is known by its name") {
  const std::string path = temporary_path("killed", "weights.bin");
  const AtomicFile file("test", path);
  const fs::path left = *fs::directory_iterator(fs::path(path).parent_path());
  CHECK(is_temporary_of(left.filename().string(), "weights.bin"));
  CHECK_FALSE(is_temporary_of(left.filename().string(), "weights"));
  for (const char* other : {"weights.bin", "weights.bin.tmp", "weights.bin.0123456789abcde.tmp",
                            "weights.bin.0123456789abcdeg.tmp", "weights.bin.0123456789abcdef.tmpx",
                            "weights.bin_0123456789abcdef.tmp"})
    CHECK_FALSE(is_temporary_of(other, "weights.bin"));
}

}  // namespace
}  // namespace tessera::testing
