// The index of a checkpoint as untrusted text.

#include "tessera/fsdp/checkpoint/index.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>

#include "tessera/tensor/error.h"
#include "tessera/tests/support/throws.h"

namespace tessera::checkpoint {
namespace {

using testing::thrown;

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

Index example() {
  Index index;
  index.files = {
      {.name = "rank-00000.safetensors", .bytes = (1 << 20) + 1, .checksums = {7, kMost}},
      {.name = "b", .bytes = 0, .checksums = {}}};
  index.tensors = {
      {.name = "model.up \"weight\"\n",
       .dtype = DType::kBF16,
       .shape = {4, 3},
       .boxes = {{.box = {.offset = {0, 0}, .extent = {3, 3}}, .file = 0, .begin = 128},
                 {.box = {.offset = {3, 0}, .extent = {1, 3}}, .file = 0, .begin = 146}}},
      {.name = "calls",
       .dtype = DType::kI64,
       .shape = {},
       .boxes = {{.box = {.offset = {}, .extent = {}}, .file = 0, .begin = 1048569}}},
      {.name = "empty", .dtype = DType::kBool, .shape = {0, 5}, .boxes = {}}};
  index.values.set("step", std::int64_t{-7});
  index.values.set("lr", 0.1);
  index.values.set("nan", std::nan("3"));
  index.values.set("on", true);
  index.values.set("text", "");
  return index;
}

TEST_CASE("an index comes back from its text") {
  const Index index = example();
  const Index back = parse_index("index.json", index_text(index));
  CHECK(back.files == index.files);
  CHECK(back.tensors == index.tensors);
  CHECK(index_text(back) == index_text(index));
  CHECK(back.values.size() == 5);
  CHECK(back.values.integer("step") == -7);
  CHECK(std::isnan(back.values.number("nan")));
  CHECK(parse_index("index.json", index_text({})).tensors.empty());
  Index broken;
  broken.values.set("name", "\xff");
  CHECK(thrown<InvalidArgument>([&] { index_text(broken); }) ==
        "[checkpoint.save] a name or text of the state is not UTF-8");
}

// The text with a checksum that is right.
std::string sealed(const std::string& body) {
  return fmt::format("{},\"checksum\":\"{:016x}\"}}\n", body,
                     XXH3_64bits(body.data(), body.size()));
}

std::string refused(const std::string& text) {
  const std::string error = thrown<CheckpointError>([&] { parse_index("DIR/index.json", text); });
  const std::string begin = "[checkpoint.load] \"DIR/index.json\"";
  CHECK(error.starts_with(begin));
  return error.substr(std::min(begin.size(), error.size()));
}

TEST_CASE("an index that is cut, changed or something else") {
  const std::string text = index_text(example());
  for (std::size_t size = 0; size < text.size(); ++size)
    CHECK(refused(text.substr(0, size)).find("damaged") != std::string::npos);
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    CHECK(refused(changed).find("damaged") != std::string::npos);
  }
  CHECK(refused(text + " ").find("it does not end with a checksum") != std::string::npos);
  CHECK(refused(sealed("")).find("it does not end with a checksum") != std::string::npos);
  CHECK(refused(sealed("x")) == " stops being JSON at byte 1");
  CHECK(refused(sealed("{\"a\":[}")).find(" stops being JSON at byte ") == 0);
  CHECK(refused(sealed("{\"tessera_checkpoint\":\"\xff\"")).find(" stops being JSON at byte ") ==
        0);
  CHECK(refused(sealed("{\"a\":1e999")).find(" is no index: ") == 0);
  CHECK(refused(sealed("[1")).find(" stops being JSON at byte ") == 0);
  CHECK(refused(sealed("{\"a\":1,\"a\":2")) == ": the key \"a\" stands twice in an object");
  CHECK(refused(sealed("{\"a\":" + std::string(100'000, '['))) == " nests more than 8 deep");
  CHECK(refused(sealed("{\"b\":1")) == ": the index has no \"tessera_checkpoint\"");
  CHECK(refused(sealed("{\"tessera_checkpoint\":2")) ==
        ": the index has format 2; this build reads format 1");
  for (const char* number : {"-1", "1.0", "1e0", "\"1\"", "true", "null", "18446744073709551616"})
    CHECK(refused(sealed(fmt::format("{{\"tessera_checkpoint\":{}", number))) ==
          ": \"tessera_checkpoint\" of the index is no whole number from 0 to 2^64 - 1");
}

// An index with one of its parts replaced.
std::string with(const std::string& files, const std::string& tensors,
                 const std::string& values = "[]") {
  return sealed(fmt::format(R"({{"tessera_checkpoint":1,"files":{},"tensors":{},"values":{})",
                            files, tensors, values));
}
std::string files(const std::string& name, const std::string& bytes, const std::string& checksums) {
  return fmt::format(R"([{{"name":{},"bytes":{},"xxh3":{}}}])", name, bytes, checksums);
}
const std::string kFile = files("\"a\"", "100", R"(["0000000000000000"])");

TEST_CASE("an index whose files are wrong") {
  CHECK(parse_index("i", with(kFile, "[]")).files.size() == 1);
  const auto of = [](const std::string& list) { return refused(with(list, "[]")); };
  CHECK(of("{}") == ": \"files\" of the index is no list");
  CHECK(of("[3]") == ": file 0 is no object");
  for (const char* name :
       {R"("")", R"("..")", R"("/etc/passwd")", R"("a/b")", R"(".hidden")", R"("a\u0000b")"})
    CHECK(of(files(name, "0", "[]")) == ": \"name\" of file 0 is no name of a file in the folder");
  CHECK(of(files("\"" + std::string(1 << 20, 'a') + "\"", "0", "[]")) ==
        ": \"name\" of file 0 is no name of a file in the folder");
  CHECK(of(files("7", "0", "[]")) == ": \"name\" of file 0 is no text");
  CHECK(of(files("\"a\"", "9223372036854775808", "[]")) ==
        ": \"bytes\" of file 0 is above 2^63 - 1");
  CHECK(of(files("\"a\"", "100", "[]")) ==
        ": \"xxh3\" of file 0 has 0 checksums; 100 bytes are 1 chunks");
  CHECK(of(files("\"a\"", "9223372036854775807", R"(["0000000000000000"])")) ==
        ": \"xxh3\" of file 0 has 1 checksums; 9223372036854775807 bytes are 8796093022208 chunks");
  for (const char* checksum : {"\"0\"", "\"000000000000000G\"", "\"000000000000000A\"", "7"})
    CHECK(of(files("\"a\"", "1", fmt::format("[{}]", checksum))).find("checksum 0 is no ") !=
          std::string::npos);
  const std::string twice = kFile.substr(0, kFile.size() - 1) + "," + kFile.substr(1);
  CHECK(of(twice) == ": file 1 has the name \"a\" of another");
}

std::string box(const std::string& file, const std::string& begin, const std::string& offset,
                const std::string& extent) {
  return fmt::format(R"({{"file":{},"begin":{},"offset":{},"extent":{}}})", file, begin, offset,
                     extent);
}
std::string tensors(const std::string& dtype, const std::string& shape, const std::string& boxes) {
  return fmt::format(R"([{{"name":"w","dtype":{},"shape":{},"boxes":[{}]}}])", dtype, shape, boxes);
}

TEST_CASE("an index whose tensors are wrong") {
  const auto of = [](const std::string& list) { return refused(with(kFile, list)); };
  const std::string right = box("0", "60", "[0]", "[10]");
  CHECK(parse_index("i", with(kFile, tensors("\"f32\"", "[10]", right))).tensors.size() == 1);
  CHECK(of(R"([{"name":""}])") == ": tensor \"\" has no name");
  CHECK(of(R"([{"name":"w\u0000x"}])") == ": tensor 0 has a NUL byte in its name");
  CHECK(of(tensors("\"f8\"", "[10]", right)) ==
        ": \"dtype\" of tensor \"w\" is \"f8\", which is no dtype");
  CHECK(of(tensors("\"f32\"", "[1,1,1,1,1,1,1,1,1]", right)) ==
        ": \"shape\" of tensor \"w\" is no list of at most 8 numbers");
  CHECK(of(tensors("\"f32\"", "[-1]", right)) == ": entry 0 is no whole number from 0 to 2^64 - 1");
  CHECK(of(tensors("\"f32\"", "[9223372036854775808]", right)) == ": entry 0 is above 2^63 - 1");
  // Products that wrap to 0, to 4, and to the right number of bytes; also beside an extent of 0.
  for (const char* shape : {"[4294967296,4294967296]", "[4611686018427387905]",
                            "[4611686018427387914]", "[0,4294967296,4294967296]"})
    CHECK(of(tensors("\"f32\"", shape, right)) ==
          ": \"shape\" of tensor \"w\" has too many elements");
  CHECK(of(tensors("\"f32\"", "[10]", box("1", "0", "[0]", "[10]"))) ==
        ": box 0 of tensor \"w\" is in file 1 of 1");
  CHECK(of(tensors("\"f32\"", "[10]", box("0", "61", "[0]", "[10]"))) ==
        ": box 0 of tensor \"w\" needs 40 bytes from 61 of \"a\", which has 100");
  CHECK(of(tensors("\"f32\"", "[10]", box("0", "18446744073709551615", "[0]", "[10]"))) ==
        ": box 0 of tensor \"w\" needs 40 bytes from 18446744073709551615 of \"a\", which has 100");
  CHECK(of(tensors("\"f32\"", "[10]", box("0", "0", "[1]", "[10]"))) ==
        ": box 0 of tensor \"w\" reaches outside the shape [10] in dim 0");
  CHECK(of(tensors("\"f32\"", "[10]", box("0", "0", "[9223372036854775807]", "[10]"))) ==
        ": box 0 of tensor \"w\" reaches outside the shape [10] in dim 0");
  CHECK(of(tensors("\"f32\"", "[10]", box("0", "0", "[0,0]", "[10,1]"))) ==
        ": box 0 of tensor \"w\" has 2 and 2 dims; the tensor has 1");
  CHECK(of(tensors("\"f32\"", "[10]", box("0", "0", "[0]", "[9]"))) ==
        ": tensor \"w\" is not whole: its boxes have 9 of its 10 elements");
  CHECK(of(tensors("\"f32\"", "[10]", right + "," + box("0", "0", "[9]", "[1]"))) ==
        ": tensor \"w\" is not whole: its boxes [0:10] and [9:10] overlap");
  CHECK(of(tensors("\"f32\"", "[30]",
                   box("0", "60", "[0]", "[10]") + "," + box("0", "60", "[10]", "[10]") + "," +
                       box("0", "60", "[20]", "[10]"))) ==
        ": tensor 0 shares bytes of \"a\" with another");
  const std::string one = tensors("\"f32\"", "[10]", right);
  CHECK(of(one.substr(0, one.size() - 1) + "," + one.substr(1)) ==
        ": tensor 1 has the name \"w\" of another");
}

TEST_CASE("an index whose values are wrong") {
  const auto of = [](const std::string& list) {
    return refused(with(kFile, tensors("\"f32\"", "[1]", box("0", "0", "[0]", "[1]")), list));
  };
  CHECK(of(R"([{"name":"a","kind":"integer","text":"1.5"}])") ==
        ": value 0 \"a\" has no value of its kind");
  CHECK(of(R"([{"name":"a","kind":"code","text":"1"}])") ==
        ": value 0 \"a\" has no value of its kind");
  CHECK(of(R"([{"name":"w","kind":"integer","text":"1"}])") ==
        ": value 0 has no name, or \"w\", which something else has");
  CHECK(of(R"([{"name":"","kind":"integer","text":"1"}])") ==
        ": value 0 has no name, or \"\", which something else has");
  CHECK(of(R"([{"name":"a\u0000","kind":"integer","text":"1"}])") ==
        ": value 0 has a NUL byte in its name");
}

}  // namespace
}  // namespace tessera::checkpoint
