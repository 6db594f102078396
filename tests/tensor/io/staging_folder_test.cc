#include "tessera/tensor/io/staging_folder.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tessera/tensor/error.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

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

TEST_CASE("where one old file cannot be moved, all stay") {
  // A path that is short enough where it is, and too long in the staging folder.
  constexpr std::size_t kLongestPath = 4095, kPart = 100;
  std::string folder = fs::path(temporary_path("stuck", "x")).parent_path().string();
  const std::string name(kPart, 'b');
  while (folder.size() + 2 * kPart + 2 < kLongestPath) folder += "/" + std::string(kPart, 'd');
  folder += "/" + std::string(kLongestPath - folder.size() - kPart - 2, 'd');
  fs::create_directories(folder);
  write_bytes(folder + "/a", "old");
  write_bytes(folder + "/" + name, "old");
  const StagingFolder next("test", folder + "/next");
  write_bytes(next.path() + "/a", "new");
  const auto is_any = [](std::string_view each) { return each != "next"; };
  CHECK(thrown<CheckpointError>([&] { publish_files("test", next.path(), folder, is_any); }) ==
        "[test] cannot replace \"" + folder + "/" + name + "\": File name too long");
  CHECK(names_in("test", folder) == Names{"a", name, "next"});
  CHECK(read_bytes(folder + "/a") == "old");
  CHECK(read_bytes(next.path() + "/a") == "new");
  CHECK_FALSE(next.is_published());
}

// What a process leaves that is killed between two renames.
void leave_half_published(const std::string& folder, const std::string& staging,
                          const std::string& replaced) {
  fs::create_directory(staging);
  mark_folder("test", staging, "staging");
  fs::create_directory(staging + "/" + replaced);
  fs::rename(folder + "/a", staging + "/" + replaced + "/a");
  fs::rename(folder + "/b", staging + "/" + replaced + "/b");
  write_bytes(folder + "/a", "new");
  write_bytes(staging + "/c", "new");
}

TEST_CASE("what a killed process had taken away comes back, unless all new files were there") {
  const bool all_were_there = GENERATE(false, true);
  const std::string folder = old_folder("halfway"), path = folder + "/next";
  leave_half_published(folder, path, all_were_there ? ".tessera-useless" : ".tessera-replaced");
  {
    const StagingFolder next("test", path);
    CHECK(names_in("test", path) == Names{kMarkerFile});
  }
  CHECK(read_bytes(folder + "/a") == (all_were_there ? "new" : "old"));
  CHECK(fs::exists(folder + "/b") == !all_were_there);
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE("what another process had taken away comes back when its staging folder goes") {
  const std::string folder = old_folder("rank"), path = folder + "/next";
  {
    const StagingFolder next("test", path);
    leave_half_published(folder, path, ".tessera-replaced");
  }
  CHECK(names_in("test", folder) == Names{"a", "b", "mine"});
  for (const char* name : {"a", "b"}) CHECK(read_bytes(folder + "/" + name) == "old");
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
