#include "tessera/tensor/io/staging_folder.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tessera/tensor/error.h"
#include "tessera/tests/tensor/io/safetensors_support.h"
#include "tessera/tests/tensor/throws.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

bool is_ours(std::string_view name) { return name == "a" || name == "b" || name == "c"; }

// A folder with Tessera's old `a` and `b`, and the user's `mine`.
std::string old_folder(const std::string& test) {
  const std::string folder = fs::path(temporary_path(test, "x")).parent_path().string();
  for (const char* name : {"a", "b", "mine"}) write_bytes(folder + "/" + name, "old");
  return folder;
}

TEST_CASE("staged files take the place of all old ones together") {
  const std::string folder = old_folder("publish");
  const StagingFolder next("test", folder + "/next");
  write_bytes(next.path() + "/b", "new");
  write_bytes(next.path() + "/c", "new");
  CHECK_FALSE(next.is_published());
  CHECK(names_in("test", folder) == Names{"a", "b", "mine", "next"});
  CHECK(read_bytes(folder + "/b") == "old");
  publish_files("test", next.path(), folder, is_ours);
  CHECK(next.is_published());
  CHECK(names_in("test", folder) == Names{"b", "c", "mine"});
  CHECK(read_bytes(folder + "/b") == "new");
  CHECK(read_bytes(folder + "/c") == "new");
  CHECK(read_bytes(folder + "/mine") == "old");
}

TEST_CASE("nothing is touched where one old file is no regular one") {
  const std::string folder = old_folder("irregular");
  const StagingFolder next("test", folder + "/next");
  write_bytes(next.path() + "/a", "new");
  const std::string odd = GENERATE("a", "b", "c");  // with a successor, and without
  fs::remove(folder + "/" + odd);
  fs::create_directory(folder + "/" + odd);
  const Names before = names_in("test", folder);
  CHECK(thrown<CheckpointError>([&] { publish_files("test", next.path(), folder, is_ours); }) ==
        "[test] cannot replace \"" + folder + "/" + odd +
            "\": it is a folder, and only a regular file is replaced; choose another path");
  CHECK(names_in("test", folder) == before);
  for (const std::string name : {"a", "b"})
    if (name != odd) CHECK(read_bytes(folder + "/" + name) == "old");
  CHECK_FALSE(next.is_published());
}

TEST_CASE("a staging folder that is not published goes, one of a killed process too") {
  const std::string folder = old_folder("leftover"), path = folder + "/next";
  { const StagingFolder next("test", path); }
  CHECK_FALSE(fs::exists(path));
  fs::create_directory(path);  // killed right after creating it
  { const StagingFolder next("test", path); }
  CHECK_FALSE(fs::exists(path));
  const StagingFolder* left = new StagingFolder("test", path);  // never destroyed
  write_bytes(left->path() + "/a", "half");
  {
    const StagingFolder next("test", path);
    CHECK(names_in("test", path) == Names{kMarkerFile});
  }
  CHECK_FALSE(fs::exists(path));
  delete left;
}

TEST_CASE("what somebody else has at the staging folder's path stays") {
  const std::string folder = old_folder("foreign"), path = folder + "/mine.d";
  const std::string text = "[test] \"" + path +
                           "\" is in the way, and was not made by tessera; move it, or choose "
                           "another path";
  const auto refused = [&] { return thrown<StateError>([&] { StagingFolder("test", path); }); };
  fs::create_directory(path);
  write_bytes(path + "/notes", "mine");
  CHECK(refused() == text);
  CHECK(read_bytes(path + "/notes") == "mine");
  fs::remove_all(path);
  fs::create_symlink("mine", path);
  CHECK(refused() == text);
  CHECK(fs::is_symlink(path));
  CHECK(thrown<CheckpointError>([&] { StagingFolder("test", folder + "/none/next"); }) ==
        "[test] cannot create \"" + folder + "/none/next\": No such file or directory");
}

}  // namespace
}  // namespace tessera::testing
