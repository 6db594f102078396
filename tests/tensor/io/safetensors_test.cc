// Safetensors files: reading back what was written, byte for byte in the format, and reading a file
// of the reference implementation.
#include "tessera/tensor/io/safetensors.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera {
namespace {

using namespace testing;
using Names = std::vector<std::string>;

Names names(const SafetensorsFile& file) {
  Names out;
  for (const SafetensorsInfo& info : file.tensors()) out.push_back(info.name);
  return out;
}

// Whether the bits of both are equal: NaN equals NaN, and 0 differs from -0. Without elements the
// pointers are null.
bool same(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  return dispatch_all(a.dtype(), "same", [&]<class T>() {
    const std::vector<T> x = a.to_vector<T>(), y = b.to_vector<T>();
    if constexpr (std::is_same_v<T, bool>) {
      return x == y;
    } else {
      if (x.empty()) return true;
      return std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
    }
  });
}

TEST_CASE("safetensors: every dtype and shape comes back") {
  const std::string path = temporary_path("safetensors_round_trip", "a.safetensors");
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : {Shape{}, Shape{7}, Shape{0, 3}, Shape{3, 5, 2}, Shape{1, 1}}) {
      Tensor values = cast(remainder(arange(shape.numel(), {.dtype = DType::kI64}), 5), dtype);
      tensors.emplace_back(std::string(dtype_name(dtype)) + shape.str(), values.view(shape));
    }
  }
  write_safetensors(path, tensors);
  const SafetensorsFile file(path);
  REQUIRE(file.tensors().size() == tensors.size());
  CHECK(file.metadata().empty());
  CHECK(file.path() == path);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    INFO(name);
    CHECK(file.tensors()[i].name == name);  // the order given
    CHECK(file.info(name).dtype == tensor.dtype());
    CHECK(file.info(name).shape == tensor.shape());
    CHECK(file.info(name).begin % dtype_size(tensor.dtype()) == 0);
    CHECK(same(file.read(name), tensor));
  }
}

TEST_CASE("safetensors: values that have no equal, strides, and one storage twice") {
  const std::string path = temporary_path("safetensors_values", "a.safetensors");
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Tensor special =
      Tensor::from_vector<double>({0.0, -0.0, kInf, -kInf, std::nan("5"), 5e-324}, {6});
  const Tensor base = arange(24).view({4, 6});
  const Tensor transposed = base.transpose(0, 1), stepped = base.slice(1, 1, 6, 2);
  const Tensor expanded = base.select(0, 1).expand({3, 6});
  write_safetensors(path, {{"special", special},
                           {"transposed", transposed},
                           {"stepped", stepped},
                           {"expanded", expanded},
                           {"base", base}});
  const SafetensorsFile file(path);
  CHECK(same(file.read("special"), special));
  CHECK(same(file.read("transposed"), transposed));
  CHECK(same(file.read("stepped"), stepped));
  CHECK(same(file.read("expanded"), expanded));
  CHECK(same(file.read("base"), base));
  CHECK(file.read("transposed").is_contiguous());
}

TEST_CASE("safetensors: the bytes are those of the format") {
  const std::string path = temporary_path("safetensors_bytes", "a.safetensors");
  // The elements of the f64 come first, although its name is second.
  write_safetensors(path,
                    {{"b", Tensor::from_vector<std::uint8_t>({1, 2, 3}, {3})},
                     {"a", Tensor::from_vector<double>({1.0}, {1})},
                     {"on", Tensor::from_vector<bool>({true, false}, {2, 1})}},
                    {{"k\"", "v"}, {"", ""}});
  const std::string header =
      R"({"__metadata__":{"k\"":"v","":""},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]},)"
      R"("a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
      R"("on":{"dtype":"BOOL","shape":[2,1],"data_offsets":[11,13]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  const std::string elements("\0\0\0\0\0\0\xF0\x3F\1\2\3\1\0", 13);
  CHECK(read_bytes(path) == safetensors_bytes(padded, elements));

  write_safetensors(path, {});
  CHECK(read_bytes(path) == safetensors_bytes("{}      ", ""));
  CHECK(SafetensorsFile(path).tensors().empty());
}

TEST_CASE("safetensors: a file of the reference implementation") {
  // Written by safetensors 0.8.0 for Python.
  const std::string header = R"({"__metadata__":{"format":"pt","note":"ünï"},)"
                             R"("count":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                             R"("b.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},)"
                             R"("a":{"dtype":"BF16","shape":[3],"data_offsets":[32,38]},)"
                             R"("none":{"dtype":"F16","shape":[0,3],"data_offsets":[38,38]},)"
                             R"("i8":{"dtype":"I8","shape":[1],"data_offsets":[38,39]},)"
                             R"("é\n\"q":{"dtype":"U8","shape":[1],"data_offsets":[39,40]},)"
                             R"("flag":{"dtype":"BOOL","shape":[3],"data_offsets":[40,43]}})";
  const std::string elements(
      "\x07\0\0\0\0\0\0\0\0\0\xc0\x3f\0\0\0\xc0\0\0\x40\x40\0\0\x80\x40\0\0\xa0\x40\0\0\xc8\x40"
      "\x80\x3f\0\xc0\x40\x40\xff\xff\x01\0\x01",
      43);
  const std::string path = temporary_path("safetensors_reference", "ref.safetensors");
  write_bytes(path, safetensors_bytes(header + "   ", elements));
  const SafetensorsFile file(path);
  CHECK(names(file) == Names{"count", "b.weight", "a", "none", "i8", "é\n\"q", "flag"});
  CHECK(file.metadata() == SafetensorsMetadata{{"format", "pt"}, {"note", "ünï"}});
  CHECK(file.read("count").item<std::int64_t>() == 7);
  CHECK(file.read("b.weight").shape() == Shape{2, 3});
  CHECK(file.read("b.weight").to_vector<float>() == std::vector<float>{1.5, -2, 3, 4, 5, 6.25});
  CHECK(cast(file.read("a"), DType::kF32).to_vector<float>() == std::vector<float>{1, -2, 3});
  CHECK(file.read("none").shape() == Shape{0, 3});
  CHECK(file.read("é\n\"q").item<std::uint8_t>() == 255);
  CHECK(file.read("flag").to_vector<bool>() == std::vector<bool>{true, false, true});
  CHECK(file.info("i8").dtype_name == "I8");
  CHECK_FALSE(file.info("i8").dtype.has_value());
  CHECK_THROWS_WITH(file.read("i8"), "[SafetensorsFile] tensor \"i8\" of \"" + path +
                                         "\" has dtype I8, which Tessera has not: convert it "
                                         "where it was made");
}

TEST_CASE("safetensors: a bool is any byte but 0") {
  const std::string path = temporary_path("safetensors_bool", "a.safetensors");
  write_bytes(path, safetensors_bytes(R"({"x":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})",
                                      std::string("\2\0\xFF", 3)));
  const Tensor x = SafetensorsFile(path).read("x");
  CHECK(x.to_vector<bool>() == std::vector<bool>{true, false, true});
  CHECK(sum(x).item<std::int64_t>() == 2);
}

TEST_CASE("safetensors: reading into a tensor, and for a plan") {
  const std::string path = temporary_path("safetensors_into", "a.safetensors");
  write_safetensors(path, {{"x", arange(6).view({2, 3})}});
  SafetensorsFile opened(path);
  const SafetensorsFile file = std::move(opened);

  const Tensor base = zeros({3, 2}, {.dtype = DType::kF64});
  const std::uint64_t version = base.version();
  file.read_into("x", base.transpose(0, 1));
  CHECK(base.to_vector<double>() == std::vector<double>{0, 3, 1, 4, 2, 5});
  CHECK(base.version() > version);
  CHECK_THROWS_WITH(file.read_into("x", zeros({3, 2})),
                    "[SafetensorsFile] tensor \"x\" of \"" + path +
                        "\" has shape [2, 3] and cannot be read into [3, 2]");

  const Tensor plan = file.read("x", kNull);
  CHECK(plan.device().is_null());
  CHECK(plan.shape() == Shape{2, 3});
  file.read_into("x", zeros({2, 3}, {.device = kNull}));

  CHECK(file.contains("x"));
  CHECK_FALSE(file.contains("y"));
  CHECK_THROWS_WITH(file.read("y"),
                    "[SafetensorsFile] \"" + path + "\" has no tensor \"y\" among its 1");
}

TEST_CASE("safetensors: elements far beyond 4 GiB are found, and no others are read") {
  const std::string path = temporary_path("safetensors_big", "a.safetensors");
  constexpr std::uint64_t kLarge = 5'000'000'000;
  const std::string header =
      R"({"large":{"dtype":"U8","shape":[5000000000],"data_offsets":[0,5000000000]},)"
      R"("small":{"dtype":"I32","shape":[2],"data_offsets":[5000000000,5000000008]}})";
  write_bytes(path, safetensors_bytes(header, ""));
  const std::uint64_t base = 8 + header.size();
  REQUIRE(::truncate(path.c_str(), static_cast<off_t>(base + kLarge + 8)) == 0);  // a sparse file
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(base + kLarge + 4));
    file.write("\x2A\0\0\0", 4);
  }
  const SafetensorsFile file(path);
  CHECK(file.info("small").begin == base + kLarge);
  CHECK(file.read("small").to_vector<std::int32_t>() == std::vector<std::int32_t>{0, 42});
}

}  // namespace
}  // namespace tessera
