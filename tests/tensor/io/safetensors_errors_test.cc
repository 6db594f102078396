// Invalid safetensors files, and files that cannot be written.
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <random>

#include "tessera/tensor/error.h"
#include "tessera/tensor/io/safetensors.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera {
namespace {

using namespace testing;

// The error of opening a file with these bytes, with the file's path as FILE.
std::string opening(const std::string& bytes) {
  const std::string path = temporary_path("safetensors_errors", "bad.safetensors");
  write_bytes(path, bytes);
  std::string text = thrown<CheckpointError>([&] { SafetensorsFile file(path); });
  if (const std::size_t at = text.find(path); at != std::string::npos) {
    text.replace(at, path.size(), "FILE");
  }
  return text;
}

std::string with_header(const std::string& header, std::size_t elements = 0) {
  return opening(safetensors_bytes(header, std::string(elements, '\0')));
}

// One tensor "a" with the given description.
std::string with_tensor(const std::string& fields, std::size_t elements = 0) {
  return with_header(R"({"a":{)" + fields + "}}", elements);
}

std::string info(const std::string& name, const std::string& offsets, int extent) {
  return "\"" + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(extent) +
         R"(],"data_offsets":[)" + offsets + "]}";
}

TEST_CASE("safetensors: truncated files and wrong lengths") {
  CHECK(
      opening("") ==
      "[SafetensorsFile] \"FILE\" is truncated: it has 0 bytes, the length of the header needs 8");
  CHECK(
      opening("1234567") ==
      "[SafetensorsFile] \"FILE\" is truncated: it has 7 bytes, the length of the header needs 8");
  CHECK(opening(std::string("\x03\0\0\0\0\0\0\0{}", 10)) ==
        "[SafetensorsFile] \"FILE\" is truncated: it has 10 bytes, and the header ends at byte 11");
  CHECK(opening(std::string("\x01\xE1\xF5\x05\0\0\0\0{}", 10)) ==
        "[SafetensorsFile] \"FILE\": byte 0 says that the header has 100000001 bytes; at most "
        "100000000 are read. Is this a safetensors file?");
  CHECK(opening(std::string(8, '\xFF') + "{}") ==
        "[SafetensorsFile] \"FILE\": byte 0 says that the header has 18446744073709551615 bytes; "
        "at most 100000000 are read. Is this a safetensors file?");
  CHECK(with_header("{" + info("a", "0,4", 4) + "}", 3) ==
        "[SafetensorsFile] \"FILE\" is truncated: it has 64 bytes, 3 of them elements, and tensor "
        "\"a\" has data_offsets [0, 4]");
  CHECK(with_header("{" + info("a", "0,4", 4) + "}", 5) ==
        "[SafetensorsFile] \"FILE\": bytes [65, 66) at its end belong to no tensor");
  CHECK(with_header("{}", 1) ==
        "[SafetensorsFile] \"FILE\": bytes [10, 11) at its end belong to no tensor");
}

TEST_CASE("safetensors: headers that are not JSON") {
  const std::string no_object =
      "[SafetensorsFile] \"FILE\": the header at byte 8 does not begin with {; this is no "
      "safetensors file";
  CHECK(with_header("") == no_object);
  CHECK(with_header("  {}") == no_object);
  CHECK(with_header("[]") == no_object);
  const auto stops = [](int byte) {
    return "[SafetensorsFile] \"FILE\": the header stops being JSON at byte " +
           std::to_string(byte);
  };
  CHECK(with_header("{x}") == stops(9));
  CHECK(with_header("{") == stops(9));
  CHECK(with_header("{}x") == stops(10));
  CHECK(with_header(std::string("{}\0", 3)) == stops(10));
  CHECK(with_header("{\"\xFF\":{}}") == stops(10));
  CHECK(with_header(R"({"a":{"shape":[1e999]}})") == stops(27));
}

TEST_CASE("safetensors: headers of another form") {
  const auto refused = [](const std::string& what) {
    return "[SafetensorsFile] \"FILE\": " + what +
           " in its header, which is not what the format allows there";
  };
  CHECK(with_header(R"({"a":null})") == refused("\"a\" is null"));
  CHECK(with_header(R"({"a":[]})") == refused("\"a\" is a list"));
  CHECK(with_header(R"({"a":true})") == refused("\"a\" is true or false"));
  CHECK(with_header(R"({"a":1})") == refused("\"a\" is a number"));
  CHECK(with_header(R"({"a":"x"})") == refused("\"a\" is text"));
  CHECK(with_header(R"({"__metadata__":"x"})") == refused("\"__metadata__\" is text"));
  CHECK(with_header(R"({"__metadata__":{"k":1}})") ==
        refused("\"k\" of \"__metadata__\" is a number"));
  CHECK(with_header(R"({"__metadata__":{"k":{}}})") ==
        refused("\"k\" of \"__metadata__\" is an object"));
  CHECK(with_tensor(R"("shape":[-1])") == refused("\"shape\" of \"a\" is a negative number"));
  CHECK(with_tensor(R"("shape":[1.5])") ==
        refused("\"shape\" of \"a\" is a number that is not whole, or too large,"));
  CHECK(with_tensor(R"("shape":[18446744073709551616])") ==
        refused("\"shape\" of \"a\" is a number that is not whole, or too large,"));
  CHECK(with_tensor(R"("shape":[[1]])") == refused("\"shape\" of \"a\" is a list"));
  CHECK(with_tensor(R"("shape":["1"])") == refused("\"shape\" of \"a\" is text"));
  CHECK(with_tensor(R"("shape":3)") == refused("\"shape\" of \"a\" is a number"));
  CHECK(with_tensor(R"("dtype":[])") == refused("\"dtype\" of \"a\" is a list"));
  CHECK(with_tensor(R"("more":"x")") == refused("\"more\" of \"a\" is text"));
  const std::string deep(100'000, '[');
  CHECK(with_tensor(R"("shape":)" + deep) == refused("\"shape\" of \"a\" is a list"));
}

TEST_CASE("safetensors: tensors that are described wrongly") {
  CHECK(with_header("{" + info("a", "0,1", 1) + "," + info("a", "1,2", 1) + "}", 2) ==
        "[SafetensorsFile] \"FILE\": \"a\" stands twice in its header");
  CHECK(with_header(R"({"__metadata__":{"k":"1","k":"2"}})") ==
        "[SafetensorsFile] \"FILE\": \"k\" of \"__metadata__\" stands twice in its header");
  CHECK(with_tensor(R"("dtype":"U8","dtype":"U8")") ==
        "[SafetensorsFile] \"FILE\": \"dtype\" of \"a\" stands twice in its header");
  CHECK(with_tensor(R"("shape":[],"data_offsets":[0,1])", 1) ==
        "[SafetensorsFile] \"FILE\": tensor \"a\" has no \"dtype\" in the header");
  CHECK(with_tensor(R"("dtype":"U8","data_offsets":[0,1])", 1) ==
        "[SafetensorsFile] \"FILE\": tensor \"a\" has no \"shape\" in the header");
  CHECK(with_tensor(R"("dtype":"U8","shape":[])", 1) ==
        "[SafetensorsFile] \"FILE\": tensor \"a\" has no \"data_offsets\" in the header");
  CHECK(with_tensor(R"("dtype":"U8","shape":[],"data_offsets":[0,1,2])", 1) ==
        "[SafetensorsFile] \"FILE\": tensor \"a\" has 3 data_offsets, not 2");
  CHECK(with_tensor(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])", 1) ==
        "[SafetensorsFile] \"FILE\": tensor \"a\" has more than 8 dims");
  CHECK(with_tensor(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1])", 1) ==
        "[SafetensorsFile] \"FILE\": tensor \"a\" has an extent of 9223372036854775808");
}

TEST_CASE("safetensors: ranges that do not fit") {
  CHECK(with_header("{" + info("a", "1,0", 1) + "}", 1) ==
        "[SafetensorsFile] \"FILE\": tensor \"a\" has data_offsets [1, 0], which go backwards");
  CHECK(with_header("{" + info("a", "0,2", 3) + "}", 2) ==
        "[SafetensorsFile] \"FILE\": tensor \"a\" at bytes [61, 63) has 2 bytes; U8 [3] needs 3");
  CHECK(with_header("{" + info("a", "0,2", 2) + "," + info("b", "1,3", 2) + "}", 3) ==
        "[SafetensorsFile] \"FILE\": tensor \"b\" at bytes [114, 116) overlaps tensor \"a\" at "
        "bytes [113, 115)");
  CHECK(with_header("{" + info("a", "0,1", 1) + "," + info("b", "2,3", 1) + "}", 3) ==
        "[SafetensorsFile] \"FILE\": bytes [114, 115) before tensor \"b\" at bytes [115, 116) "
        "belong to no tensor");
  CHECK(with_header("{" + info("a", "0,18446744073709551615", 1) + "}", 1) ==
        "[SafetensorsFile] \"FILE\" is truncated: it has 81 bytes, 1 of them elements, and tensor "
        "\"a\" has data_offsets [0, 18446744073709551615]");
  const std::string shape = R"("shape":[4611686018427387904,8,0],"data_offsets":[0,0])";
  CHECK(with_tensor(R"("dtype":"U8",)" + shape) ==
        "[SafetensorsFile] \"FILE\": tensor \"a\" of U8 [4611686018427387904, 8, 0] has too many "
        "elements");
  CHECK(with_tensor(R"("dtype":"NEW",)" + shape) ==
        "[SafetensorsFile] \"FILE\": tensor \"a\" of NEW [4611686018427387904, 8, 0] has too many "
        "elements");
  CHECK(with_tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])", 2) ==
        "[SafetensorsFile] \"FILE\": tensor \"a\" of F4 [3] does not fill whole bytes");
  CHECK(with_tensor(R"("dtype":"F4","shape":[4],"data_offsets":[0,2])", 2) == "nothing was thrown");
  CHECK(with_tensor(R"("dtype":"F4","shape":[3,0],"data_offsets":[0,0])") == "nothing was thrown");
  CHECK(with_tensor(R"("dtype":"NEW","shape":[3],"data_offsets":[0,2])", 2) ==
        "nothing was thrown");
}

TEST_CASE("safetensors: files that cannot be read") {
  const std::string path = temporary_path("safetensors_unreadable", "a.safetensors");
  CHECK(thrown<CheckpointError>([&] { SafetensorsFile file(path); }) ==
        "[SafetensorsFile] cannot open \"" + path + "\": No such file or directory");
  const std::string folder = std::filesystem::path(path).parent_path().string();
  CHECK(thrown<CheckpointError>([&] { SafetensorsFile file(folder); }) ==
        "[SafetensorsFile] \"" + folder + "\" is not a regular file");

  write_safetensors(path, {{"x", zeros({3}, {.dtype = DType::kU8})}});
  const SafetensorsFile file(path);
  const std::uint64_t end = file.info("x").end;
  REQUIRE(::truncate(path.c_str(), static_cast<off_t>(end - 2)) == 0);
  CHECK(thrown<CheckpointError>([&] { file.read("x"); }) ==
        "[SafetensorsFile] \"" + path + "\" ended at byte " + std::to_string(end - 2) +
            ", 2 bytes before what was there when it was opened");
}

TEST_CASE("safetensors: what cannot be written") {
  const std::string path = temporary_path("safetensors_unwritable", "a.safetensors");
  const Tensor x = zeros({3});
  const auto writing = [&](const std::vector<std::pair<std::string, Tensor>>& tensors,
                           const SafetensorsMetadata& metadata = {}) {
    return thrown<InvalidArgument>([&] { write_safetensors(path, tensors, metadata); });
  };
  CHECK(writing({{"a", x}, {"a", x}}) == "[write_safetensors] tensor \"a\" stands twice");
  CHECK(writing({{"__metadata__", x}}) ==
        "[write_safetensors] a tensor cannot be called \"__metadata__\": that is the format's name "
        "for its texts");
  CHECK(writing({{"a", {}}}) == "[write_safetensors] tensor \"a\" is undefined");
  CHECK(writing({}, {{"k", "1"}, {"k", "2"}}) == "[write_safetensors] metadata \"k\" stands twice");
  CHECK(writing({{"\xC3(", x}}) ==
        "[write_safetensors] tensor \"\\ufffd(\" is not UTF-8; encode binary data as text");
  CHECK(writing({}, {{"k", "\xFF"}}) ==
        "[write_safetensors] metadata \"k\": \"\\ufffd\" is not UTF-8; encode binary data as text");
  CHECK(writing({}, {{"\xFF", ""}}) ==
        "[write_safetensors] metadata \"\\ufffd\" is not UTF-8; encode binary data as text");
  CHECK(writing({}, {{"k", std::string(kMaxSafetensorsHeader, 'x')}}) ==
        "[write_safetensors] names, shapes and metadata make a header of 100000032 bytes; at most "
        "100000000 can be read back");
  CHECK(thrown<StateError>([&] {
          write_safetensors(path, {{"a", zeros({3}, {.device = kNull})}});
        }) ==
        "[write_safetensors] tensor \"a\" of shape [3] is on the null device and has no values: a "
        "plan cannot be saved");
  CHECK_FALSE(std::filesystem::exists(path));
}

// Files in the folder of `path`.
std::size_t files_beside(const std::string& path) {
  const std::filesystem::directory_iterator files(std::filesystem::path(path).parent_path());
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

TEST_CASE("safetensors: a file that cannot be completed leaves the old one") {
  const std::string path = temporary_path("safetensors_atomic", "a.safetensors");
  write_safetensors(path, {{"x", full({2}, 1)}});
  const std::string before = read_bytes(path);
  const SafetensorsFile open_file(path);
  CHECK(files_beside(path) == 1);

  rlimit usual = {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &usual) == 0);
  const rlimit small = {.rlim_cur = 4096, .rlim_max = usual.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string text = thrown<CheckpointError>([&] {
    write_safetensors(path, {{"x", zeros({4000})}});
  });
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &usual) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(text == "[write_safetensors] cannot write \"" + path + "\": File too large");
  CHECK(read_bytes(path) == before);
  CHECK(files_beside(path) == 1);

  // An open file keeps its contents when another file replaces it.
  write_safetensors(path, {{"x", full({2}, 2)}});
  CHECK(open_file.read("x").to_vector<float>() == std::vector<float>{1, 1});
  CHECK(SafetensorsFile(path).read("x").to_vector<float>() == std::vector<float>{2, 2});

  const std::string nowhere = path + ".d/a.safetensors";
  CHECK(thrown<CheckpointError>([&] { write_safetensors(nowhere, {}); }) ==
        "[write_safetensors] cannot create \"" + nowhere + "\": No such file or directory");
  std::filesystem::create_directory(path + ".d");
  CHECK(thrown<CheckpointError>([&] { write_safetensors(path + ".d", {}); }) ==
        "[write_safetensors] cannot replace \"" + path +
            ".d\": it is a folder, and only a regular file is replaced; choose another path");
  CHECK(files_beside(path) == 2);
}

// Opens and reads everything; an error of Tessera is fine, anything else is not.
void read_all(const std::string& path) {
  try {
    const SafetensorsFile file(path);
    for (const SafetensorsInfo& info : file.tensors()) {
      if (info.dtype) file.read(info.name);
    }
  } catch (const CheckpointError&) {
  }
}

TEST_CASE("safetensors: no change of a file's bytes does worse than an error") {
  const std::string path = temporary_path("safetensors_fuzz", "a.safetensors");
  write_safetensors(path,
                    {{"up.weight", arange(15).view({3, 5})},
                     {"none", zeros({0, 3}, {.dtype = DType::kF16})},
                     {"flag", zeros({}, {.dtype = DType::kBool})}},
                    {{"key", "text"}});
  const std::string whole = read_bytes(path);
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write_bytes(path, whole.substr(0, bytes));
    CHECK(thrown<CheckpointError>([&] { SafetensorsFile file(path); }).find(path) !=
          std::string::npos);
  }
  const std::string likely("{}[]\":,0123456789-.eE \\u\0\xFF", 26);
  std::mt19937 random(7);
  for (int round = 0; round < 6000; ++round) {
    std::string bytes = whole;
    for (int changes = 1 + round % 4; changes > 0; --changes) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 1:
          bytes[at] = likely[random() % likely.size()];
          break;
        case 2:
          bytes.erase(at, 1 + random() % 9);
          break;
        default:
          bytes.insert(at, 1 + random() % 3, likely[random() % likely.size()]);
      }
      if (bytes.empty()) break;
    }
    if (bytes.size() > 8 && round % 2 == 0) {  // a plausible length, so that the header is read
      const std::size_t length = bytes.size() - 8 - std::min<std::size_t>(bytes.size() - 8, 61);
      for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xFF);
    }
    write_bytes(path, bytes);
    read_all(path);
  }
}

}  // namespace
}  // namespace tessera
