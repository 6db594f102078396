#include "tessera/tensor/io/folder_marker.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "tessera/tensor/error.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

bool is_ours(std::string_view name) { return name == "a" || name == "b"; }

std::string check_text(const std::string& folder) {
  return thrown<StateError>([&] { check_owned("test", folder, "run", is_ours); });
}

std::string foreign(const std::string& path) {
  return "[test] \"" + path +
         "\" is of no run of tessera, and would be replaced; choose another folder";
}

constexpr const char* kFine = "nothing was thrown";

TEST_CASE("a folder is marked for one kind") {
  const std::string folder = fs::path(temporary_path("kinds", "x")).parent_path().string();
  CHECK_FALSE(is_marked(folder, "run"));
  mark_folder("test", folder, "run");
  mark_folder("test", folder, "run");
  CHECK(is_marked(folder, "run"));
  CHECK_FALSE(is_marked(folder, "ru"));
  CHECK_FALSE(is_marked(folder, "step"));
  const std::string text = read_bytes(folder + "/.tessera");
  CHECK(text.starts_with("tessera run\n"));
  CHECK(thrown<StateError>([&] { mark_folder("test", folder, "step"); }) ==
        "[test] \"" + folder +
            "/.tessera\" does not mark a step of tessera; choose another folder");
  CHECK(read_bytes(folder + "/.tessera") == text);
  fs::rename(folder + "/.tessera", folder + "/elsewhere");
  fs::create_symlink("elsewhere", folder + "/.tessera");
  CHECK_FALSE(is_marked(folder, "run"));
  write_bytes(folder + "/.tessera", "tessera");
  CHECK_FALSE(is_marked(folder, "run"));
  CHECK(thrown<CheckpointError>([&] { mark_folder("test", folder + "/none", "run"); }) ==
        "[test] cannot create \"" + folder + "/none/.tessera\": No such file or directory");
}

TEST_CASE("files are ours to replace in a folder with the marker") {
  const std::string folder = fs::path(temporary_path("owned", "x")).parent_path().string();
  CHECK(check_text(folder) == kFine);
  CHECK(check_text(folder + "/missing") == kFine);
  write_bytes(folder + "/c", "mine");
  CHECK(check_text(folder) == kFine);
  CHECK(check_text(folder + "/c") == kFine);  // creating the folder will report it
  write_bytes(folder + "/b", "mine");
  CHECK(check_text(folder) == foreign(folder + "/b"));
  mark_folder("test", folder, "run");
  CHECK(check_text(folder) == kFine);
  fs::create_symlink("b", folder + "/a");
  CHECK(check_text(folder) ==
        "[test] \"" + folder + "/a\" would be replaced, and is a link; choose another folder");
}

TEST_CASE("another file where the marker would be is nobody's marker") {
  const std::string folder = fs::path(temporary_path("other", "x")).parent_path().string();
  write_bytes(folder + "/.tessera", "my settings");
  CHECK(check_text(folder) == foreign(folder + "/.tessera"));
  CHECK(read_bytes(folder + "/.tessera") == "my settings");
}

TEST_CASE("a folder that cannot be read is an error") {
  const std::string path = temporary_path("loop", "loop");
  fs::create_symlink("loop", path);
  CHECK(thrown<CheckpointError>([&] { names_in("test", path); }) ==
        "[test] cannot read \"" + path + "\": Too many levels of symbolic links");
}

}  // namespace
}  // namespace tessera::testing
