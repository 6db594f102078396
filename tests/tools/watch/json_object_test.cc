// Tests of reading JSON objects: figures by name, rows for a page, reasons of errors.
#include "tessera/tools/watch/json_object.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/tensor/error.h"

namespace tessera::tools {
namespace {

TEST_CASE("JSON object: figures by name", "[watch]") {
  const JsonObject object(R"({"n":-9007199254740993,"x":2,"none":null,"on":true})");
  CHECK(object.integer("n") == -9007199254740993);
  CHECK(object.number("x") == 2);
  CHECK(std::isnan(object.number("none")));
  CHECK(object.boolean("on"));
  CHECK(object.contains("none"));
  CHECK_FALSE(object.contains("N"));
  const JsonObject inner =
      JsonObject(R"({"in":{"x":0.1}})").object("in");  // outlives the outer object
  CHECK(inner.number("x") == 0.1);
  CHECK_FALSE(JsonObject("[1]").contains("n"));
}

TEST_CASE("JSON object: errors are the library's reasons", "[watch]") {
  const JsonObject object(R"({"a":"b"})");
  const auto fails_with = [](const std::string& text, const auto& call) {
    CHECK_THROWS_AS(call(), DataError);
    CHECK_THROWS_WITH(call(), Catch::Contains(text));
  };
  fails_with("parse error at line 1, column 2", [] { return JsonObject("{,"); });
  fails_with("key 'c' not found", [&] { return object.number("c"); });
  fails_with("type must be number, but is string", [&] { return object.number("a"); });
  fails_with("type must be number, but is string", [&] { return object.integer("a"); });
  fails_with("type must be boolean, but is string", [&] { return object.boolean("a"); });
  fails_with("cannot use at() with string", [&] { return object.object("a").number("b"); });
  fails_with("cannot use at() with number", [] { return JsonObject("7").integer("step"); });
}

TEST_CASE("JSON object: rows in the order of the members", "[watch]") {
  const auto rows =
      json_rows(R"({"z":"a \"b\"","a":{"y":{"k":1e-3},"empty":{},"x":[1,{"q":null}]},"m":false})");
  REQUIRE(rows.has_value());
  std::vector<std::string> texts;
  for (const JsonRow& row : *rows) texts.push_back(row.name + " = " + row.value);
  CHECK(texts == std::vector<std::string>{"z = a \"b\"", "a.y.k = 0.001", "a.empty = {}",
                                          "a.x = [1,{\"q\":null}]", "m = false"});
  CHECK(json_rows("{}")->empty());
  for (const char* other : {"", "[1]", "null", "{", "{}x", "\"{}\""})
    CHECK_FALSE(json_rows(other).has_value());
}

}  // namespace
}  // namespace tessera::tools
