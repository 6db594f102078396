// Files made to harm a reader: each is refused with an error that names the file, what is wrong and where, and
// changes neither the model nor a file. Their details are tested beside the parsers; here they go the
// way that a user's load goes.

#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

#include "tessera/fsdp/checkpoint/checkpoint.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/nn/state/state_file.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

struct HostileFile {
  std::string name;
  std::string bytes;
  std::string rule;  // part of the message
  // False for a valid file of another model. What refuses it, load_state_dict, has no file.
  bool names_file = true;
};

std::string length(std::uint64_t number) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(number >> (8 * i) & 0xFF);
  return out;
}

HostileFile header(const std::string& name, const std::string& text, const std::string& rule,
                   std::size_t elements = 0) {
  return {name, safetensors_bytes(text, std::string(elements, '\0')), rule};
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{}]}})", name, dtype,
                     shape, offsets);
}

HostileFile tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets, const std::string& rule, std::size_t elements = 4) {
  return header(name, "{" + entry("w", dtype, shape, offsets) + "}", rule, elements);
}

// The length of the header, and where the file ends. `valid` is a file of the model.
std::vector<HostileFile> wrong_lengths(const std::string& valid) {
  const std::size_t header_end =
      8 + static_cast<unsigned char>(valid[0]) +
      (static_cast<std::size_t>(static_cast<unsigned char>(valid[1])) << 8);
  return {
      {"empty", "", "is truncated"},
      {"one byte", "1", "is truncated"},
      {"seven bytes", "1234567", "is truncated"},
      {"header of no bytes", length(0), "does not begin with {"},
      {"header beyond the file", length(1000) + "{}", "is truncated"},
      {"header above the cap", length(100'000'001) + "{}", "at most 100000000 are read"},
      {"header of 2^63 bytes", length(std::uint64_t{1} << 63) + "{}", "at most 100000000 are read"},
      {"header of 2^64 - 1 bytes", length(~std::uint64_t{0}) + "{}", "at most 100000000 are read"},
      {"header of 2^64 - 8 bytes", length(~std::uint64_t{7}) + "{}", "at most 100000000 are read"},
      {"cut in the header", valid.substr(0, header_end / 2), "is truncated"},
      {"cut behind the header", valid.substr(0, header_end), "is truncated"},
      {"cut in the last tensor", valid.substr(0, valid.size() - 3), "is truncated"},
  };
}

std::vector<HostileFile> wrong_headers() {
  const std::string good = entry("w", "U8", "4", "0,4");
  std::string many = "{";
  for (int i = 0; i < 200'000; ++i) many += entry(std::to_string(i), "U8", "0", "0,0") + ",";
  return {
      header("not UTF-8", "{\"\xff\":{}}", "stops being JSON at byte 10"),
      header("not JSON", "{w}", "stops being JSON at byte 9"),
      header("a list", "[]", "does not begin with {"),
      header("text behind the JSON", "{" + good + "}x", "stops being JSON", 4),
      header("nested deeply", R"({"w":{"shape":)" + std::string(100'000, '[') + "}}",
             "\"shape\" of \"w\""),
      header("a name twice", "{" + good + "," + good + "}", "\"w\" stands twice", 4),
      header("a key twice", R"({"w":{"dtype":"U8","dtype":"U8"}})",
             "\"dtype\" of \"w\" stands twice"),
      header("many tensors and no end", many, "stops being JSON"),
  };
}

std::vector<HostileFile> wrong_numbers() {
  return {
      tensor("a number as text", "U8", "\"4\"", "0,4", "\"shape\" of \"w\" is text"),
      tensor("a fraction", "U8", "4.5", "0,4", "not whole, or too large"),
      tensor("a negative number", "U8", "-4", "0,4", "\"shape\" of \"w\" is a negative number"),
      tensor("an exponent", "U8", "4e0", "0,4", "not whole, or too large"),
      tensor("a number above 2^64", "U8", "18446744073709551616", "0,4", "not whole, or too large"),
      tensor("an extent of 2^63", "U8", "9223372036854775808", "0,4",
             "tensor \"w\" has an extent of"),
      tensor("an unknown dtype", "F99", "4", "0,4", "has dtype F99, which Tessera has not"),
      tensor("too many dims", "U8", "1,1,1,1,1,1,1,1,1,1", "0,1",
             "tensor \"w\" has more than 8 dims", 1),
      tensor("a product that wraps to 0", "U8", "4294967296,4294967296", "0,0",
             "has too many elements", 0),
      tensor("a product that wraps to 4", "U8", "4611686018427387905,4", "0,4",
             "has too many elements"),
      tensor("bytes that wrap", "F64", "2305843009213693952", "0,0", "has too many elements", 0),
      tensor("too many elements in no bytes", "U8", "4611686018427387904,8,0", "0,0",
             "has too many elements", 0),
  };
}

std::vector<HostileFile> wrong_ranges() {
  const std::string good = entry("w", "U8", "4", "0,4");
  return {
      tensor("a range that goes backwards", "U8", "4", "4,0", "which go backwards"),
      tensor("a range beyond the file", "U8", "4", "0,8", "is truncated"),
      tensor("a range of 2^64 - 1", "U8", "4", "0,18446744073709551615", "is truncated"),
      tensor("a range that is too short", "F32", "4", "0,4", "F32 [4] needs 16"),
      tensor("three offsets", "U8", "4", "0,2,4", "has 3 data_offsets, not 2"),
      header("an overlap",
             "{" + entry("a", "U8", "3", "0,3") + "," + entry("b", "U8", "2", "2,4") + "}",
             "overlaps tensor \"a\"", 4),
      header("a hole",
             "{" + entry("a", "U8", "1", "0,1") + "," + entry("b", "U8", "1", "3,4") + "}",
             "belong to no tensor", 4),
      header("bytes at the end", "{" + good + "}", "at its end belong to no tensor", 1000),
      header("metadata that is no text", R"({"__metadata__":{"k":1}})",
             "\"k\" of \"__metadata__\" is a number"),
      header("no dtype", R"({"w":{"shape":[4],"data_offsets":[0,4]}})", "has no \"dtype\"", 4),
      header("no shape", R"({"w":{"dtype":"U8","data_offsets":[0,4]}})", "has no \"shape\"", 4),
      header("no range", R"({"w":{"dtype":"U8","shape":[4]}})", "has no \"data_offsets\"", 4),
  };
}

std::vector<HostileFile> wrong_entries() {
  std::vector<HostileFile> misfits = {
      header("a name with a path", "{" + entry("../../w", "U8", "4", "0,4") + "}",
             "\"../../w\" (u8 [4]) is unexpected", 4),
      header("a name of 1 MiB", "{" + entry(std::string(1 << 20, 'n'), "U8", "4", "0,4") + "}",
             "n\" (u8 [4]) is unexpected", 4),
      header("another shape", "{" + entry("0.weight", "F32", "2,2", "0,16") + "}",
             "\"0.weight\" has shape [2, 2]", 16),
      header("another kind of dtype", "{" + entry("0.weight", "I64", "3,2", "0,48") + "}",
             "\"0.weight\" is i64 (integer)", 48),
  };
  for (HostileFile& file : misfits) file.names_file = false;
  std::vector<HostileFile> files = {
      header("an empty name", "{" + entry("", "U8", "4", "0,4") + "}",
             "has a tensor without a name", 4),
      header("a name with NUL", "{" + entry("w\\u0000x", "U8", "4", "0,4") + "}",
             "has a tensor with a NUL byte in its name, behind \"w\"", 4),
  };
  files.insert(files.end(), misfits.begin(), misfits.end());
  return files;
}

std::vector<HostileFile> safetensors_corpus(const std::string& valid) {
  std::vector<HostileFile> all;
  for (const std::vector<HostileFile>& files :
       {wrong_lengths(valid), wrong_headers(), wrong_numbers(), wrong_ranges(), wrong_entries()})
    all.insert(all.end(), files.begin(), files.end());
  return all;
}

// Every file below a folder, with its bytes.
std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> out;
  for (const auto& each : fs::recursive_directory_iterator(folder))
    if (each.is_regular_file()) out[each.path().string()] = read_bytes(each.path().string());
  return out;
}

std::map<std::string, std::vector<float>> values_of(nn::Module& net) {
  std::map<std::string, std::vector<float>> out;
  for (const auto& [name, parameter] : net.named_parameters())
    out[name] = parameter.local().tensor().to_vector<float>();
  return out;
}

struct Net {
  Net() {
    model.add<nn::Linear>({.in = 2, .out = 3});
    model.add<nn::Linear>({.in = 3, .out = 1});
    nn::initialize(model, {.seed = 1});
  }
  nn::Sequential model;
};

// The text of whichever of the two errors a load may throw.
std::string refusal(const std::function<void()>& load) {
  try {
    load();
  } catch (const CheckpointError& error) {
    return error.what();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// The load is refused with the rule and `names`; model and files are as before.
void check_refused(Net& net, const fs::path& folder, const std::string& rule,
                   const std::string& names, const std::function<void()>& load) {
  const auto before = values_of(net.model);
  const auto files = contents(folder);
  const std::string error = refusal(load);
  INFO(error.substr(0, 400));
  CHECK(error.find(rule) != std::string::npos);
  CHECK(error.find(names) != std::string::npos);
  CHECK(values_of(net.model) == before);
  CHECK(contents(folder) == files);
}

TEST_CASE("hostile safetensors files", "[checkpoint]") {
  const std::string path = temporary_path("hostile_files", "model.safetensors");
  const fs::path folder = fs::path(path).parent_path();
  Net net;
  nn::save_state(path, nn::state_dict(net.model));
  const std::vector<HostileFile> corpus = safetensors_corpus(read_bytes(path));
  CHECK(corpus.size() == 50);
  struct rusage begin = {}, end = {};
  ::getrusage(RUSAGE_SELF, &begin);
  for (const HostileFile& file : corpus) {
    INFO(file.name);
    write_bytes(path, file.bytes);
    check_refused(net, folder, file.rule, file.names_file ? "\"" + path + "\"" : "",
                  [&] { nn::load_state_dict(net.model, nn::load_state(path)); });
  }
  ::getrusage(RUSAGE_SELF, &end);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep freed memory
  CHECK(end.ru_maxrss - begin.ru_maxrss < 200 * 1024);  // KiB: twice the cap of a header
#endif
}

// index.json with one text replaced by another, and a checksum that is right.
void edit_index(const fs::path& folder, const std::string& from, const std::string& to) {
  const std::string path = (folder / "index.json").string();
  std::string body = read_bytes(path);
  body.erase(body.rfind(",\"checksum\":"));
  const std::size_t at = body.find(from);
  REQUIRE(at != std::string::npos);
  body.replace(at, from.size(), to);
  write_bytes(path, fmt::format("{},\"checksum\":\"{:016x}\"}}\n", body,
                                XXH3_64bits(body.data(), body.size())));
}

constexpr const char* kRankFile = "rank-00000.safetensors";

struct HostileCheckpoint {
  std::string name;
  std::function<void(const fs::path& folder)> damage;
  std::string rule;
  bool names_file = true;
};

// `outside` is a valid rank file outside of the checkpoint.
std::vector<HostileCheckpoint> wrong_indexes(const std::string& outside) {
  const std::string name = fmt::format("\"{}\"", kRankFile);
  const auto index = [](const std::string& from, const std::string& to) {
    return [=](const fs::path& folder) { edit_index(folder, from, to); };
  };
  return {
      {"a file outside the folder", index(name, "\"../outside\""),
       "is no name of a file in the folder"},
      {"an absolute file", index(name, "\"" + outside + "\""),
       "is no name of a file in the folder"},
      {"two boxes for one range",
       index("\"extent\":[3,2]}",
             "\"extent\":[3,2]},{\"file\":0,\"begin\":0,\"offset\":[0,0],\"extent\":[3,2]}"),
       "tensor \"model.0.weight\" is not whole: its boxes [0:3, 0:2] and [0:3, 0:2] overlap"},
      {"a box outside its tensor",
       index("\"offset\":[0,0],\"extent\":[3,2]", "\"offset\":[1,0],\"extent\":[3,2]"),
       "box 0 of tensor \"model.0.weight\" reaches outside the shape [3, 2] in dim 0"},
      {"a tensor that is not covered", index("\"extent\":[3,2]", "\"extent\":[2,2]"),
       "tensor \"model.0.weight\" is not whole: its boxes have 4 of its 6 elements"},
      {"a range beyond the file", index("\"begin\":", "\"begin\":1000000"),
       "box 0 of tensor \"model.0.weight\" needs 24 bytes from 1000000"},
      {"an extent that wraps", index("\"shape\":[3,2]", "\"shape\":[9223372036854775807,2]"),
       "\"shape\" of tensor \"model.0.weight\" has too many elements"},
      {"another shape than the model's",
       [](const fs::path& folder) {
         edit_index(folder, "\"shape\":[3,2]", "\"shape\":[2,3]");
         edit_index(folder, "\"extent\":[3,2]", "\"extent\":[2,3]");
       },
       "\"0.weight\" has shape [2, 3]", false},
      {"another dtype",
       index("\"dtype\":\"f32\",\"shape\":[3,2]", "\"dtype\":\"i32\",\"shape\":[3,2]"),
       "\"0.weight\" is i32", false},
      {"an unknown dtype",
       index("\"dtype\":\"f32\",\"shape\":[3,2]", "\"dtype\":\"f99\",\"shape\":[3,2]"),
       "\"dtype\" of tensor \"model.0.weight\" is \"f99\", which is no dtype"},
  };
}

std::vector<HostileCheckpoint> wrong_files() {
  return {
      {"a wrong checksum of the index",
       [](const fs::path& folder) {
         const std::string path = (folder / "index.json").string();
         std::string text = read_bytes(path);
         text[text.size() - 4] = text[text.size() - 4] == '0' ? '1' : '0';
         write_bytes(path, text);
       },
       "index.json\" is damaged: it has the checksum"},
      {"a flipped bit",
       [](const fs::path& folder) {
         const std::string path = (folder / kRankFile).string();
         std::string bytes = read_bytes(path);
         bytes[bytes.size() - 1] = static_cast<char>(bytes[bytes.size() - 1] ^ 1);
         write_bytes(path, bytes);
       },
       "\" is damaged: bytes [0, 332) have the checksum"},
      {"no rank file", [](const fs::path& folder) { fs::remove(folder / kRankFile); },
       "tensor \"model.0.weight\": cannot open"},
      {"a short rank file", [](const fs::path& folder) { fs::resize_file(folder / kRankFile, 9); },
       "has 9 bytes; 332 were written"},
      {"a long rank file",
       [](const fs::path& folder) {
         const std::string path = (folder / kRankFile).string();
         write_bytes(path, read_bytes(path) + "polyglot");
       },
       "has 340 bytes; 332 were written"},
      {"a folder in place of a file",
       [](const fs::path& folder) {
         fs::remove(folder / kRankFile);
         fs::create_directory(folder / kRankFile);
       },
       "rank-00000.safetensors\" is not a regular file"},
      {"a pipe in place of a file",
       [](const fs::path& folder) {
         fs::remove(folder / kRankFile);
         REQUIRE(::mkfifo((folder / kRankFile).c_str(), 0600) == 0);
       },
       "rank-00000.safetensors\" is not a regular file"},
      {"a device in place of a file",
       [](const fs::path& folder) {
         fs::remove(folder / kRankFile);
         fs::create_symlink("/dev/zero", folder / kRankFile);
       },
       "rank-00000.safetensors\" is not a regular file"},
      {"a pipe in place of the index",
       [](const fs::path& folder) {
         fs::remove(folder / "index.json");
         REQUIRE(::mkfifo((folder / "index.json").c_str(), 0600) == 0);
       },
       "index.json\" is not a regular file"},
      {"no index", [](const fs::path& folder) { fs::remove(folder / "index.json"); },
       "cannot open"},
  };
}

TEST_CASE("hostile checkpoints", "[checkpoint]") {
  const std::string valid = temporary_path("hostile_checkpoints", "step-1");
  const fs::path parent = fs::path(valid).parent_path();
  const std::string outside = (parent / "outside").string();
  Net net;
  checkpoint::save(valid, {.model = &net.model});
  write_bytes(outside, read_bytes(valid + "/" + kRankFile));
  std::vector<HostileCheckpoint> cases = wrong_indexes(outside);
  for (HostileCheckpoint& each : wrong_files()) cases.push_back(std::move(each));
  CHECK(cases.size() == 20);
  for (const HostileCheckpoint& each : cases) {
    INFO(each.name);
    const fs::path folder = parent / "step-2";
    fs::remove_all(folder);
    fs::copy(valid, folder, fs::copy_options::recursive);
    each.damage(folder);
    check_refused(net, parent, each.rule, each.names_file ? folder.string() : "",
                  [&] { checkpoint::load(folder.string(), {.model = &net.model}); });
  }
}

}  // namespace
}  // namespace tessera::testing
