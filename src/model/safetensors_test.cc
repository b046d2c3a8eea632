#include "model/safetensors.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "model/test_support.h"

namespace tandem::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<std::vector<TensorEntry>> entries_of(const std::string& file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)), "x.safetensors");
}

TEST(SafetensorsHeader, GivesTensorsByOffsetWithPlacesInTheFile) {
  const std::string header =
      R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},)"
      R"("__metadata__":{"format":"pt"},)"
      R"("a":{"data_offsets":[0,8],"shape":[2],"dtype":"F32"},)"
      R"("empty":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[20,20]},)"
      R"("scalar":{"dtype":"I64","shape":[],"data_offsets":[24,32]}}  )";
  const auto tensors = entries_of(safetensors_bytes(header, std::string(40, 'x')));
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 4U);
  const auto data_begin = static_cast<int64_t>(8 + header.size());
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].type, ElementType::kF32);
  EXPECT_EQ((*tensors)[0].begin, data_begin);
  EXPECT_EQ((*tensors)[1].name, "b");
  EXPECT_THAT((*tensors)[1].shape, ElementsAre(2, 3));
  EXPECT_EQ((*tensors)[1].bytes(), 12);
  EXPECT_EQ((*tensors)[3].name, "scalar");
  EXPECT_FALSE((*tensors)[3].type);
}

TEST(SafetensorsHeader, AllowsADtypeItDoesNotKnow) {
  const auto tensors = entries_of(
      safetensors_bytes(R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})", "xx"));
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  EXPECT_FALSE(tensors->front().type);
}

struct Hostile {
  std::string file;
  std::string says;
};

std::string one(const std::string& fields) { return "{\"a\":{" + fields + "}}"; }

TEST(SafetensorsHeader, RefusesEveryHostileHeader) {
  const std::string data(16, 'x');
  const auto file = [&](const std::string& header) { return safetensors_bytes(header, data); };
  const std::string shape = R"("dtype":"F32","shape":[4],)";
  const std::string good = shape + R"("data_offsets":[0,16])";
  const std::vector<Hostile> cases = {
      {"", "only 0 bytes"},
      {"abc", "only 3 bytes"},
      {std::string(8, '\xff'), "more than the 100000000 allowed"},
      {std::string("\xff\xff\xff\x00\x00\x00\x00\x00", 8) + "{}", "but the file has 10 in all"},
      {std::string("\x00\x00\x00\x00\x00\x00\x00\x10", 8) + "{}", "allowed"},
      {file(""), "not valid JSON"},
      {file("{"), "not valid JSON"},
      {file("{\"a\xff\":1}"), "not valid JSON"},
      {file("[]"), "where none belongs"},
      {file("null"), "where none belongs"},
      {file("3"), "where none belongs"},
      {file("\"a\""), "where none belongs"},
      {file("{\"a\":1}"), "where none belongs"},
      {file("{\"a\":[]}"), "where none belongs"},
      {file("{\"__metadata__\":{\"a\":{}}}"), "where none belongs"},
      {file("{\"__metadata__\":3}"), "where none belongs"},
      {file("{\"__metadata__\":\"x\"}"), "where none belongs"},
      {file(std::string(50000, '[')), "where none belongs"},
      {file(std::string("{\"a\":") + std::string(50000, '{')), "not valid JSON"},
      {file(one("")), "lacks dtype"},
      {file(one(shape.substr(0, shape.size() - 1))), "lacks data_offsets"},
      {file(one(R"("dtype":"F32","data_offsets":[0,16])")), "lacks shape"},
      {file(one(good + R"(,"extra":1)")), "unknown field 'extra'"},
      {file(one(good + R"(,"dtype":"F16")")), "gives dtype twice"},
      {file(one(R"("dtype":7,"shape":[4],"data_offsets":[0,16])")), "where none belongs"},
      {file(one(R"("dtype":["F32"],"shape":[4],"data_offsets":[0,16])")), "where none belongs"},
      {file(one(R"("dtype":"F32","shape":[[4]],"data_offsets":[0,16])")), "where none belongs"},
      {file(one(R"("dtype":"F32","shape":[{}],"data_offsets":[0,16])")), "where none belongs"},
      {file(one(R"("dtype":"F32","shape":"4","data_offsets":[0,16])")), "where none belongs"},
      {file(one(R"("dtype":"F32","shape":[-4],"data_offsets":[0,16])")), "negative number -4"},
      {file(one(R"("dtype":"F32","shape":[4.0],"data_offsets":[0,16])")), "where none belongs"},
      {file(one(R"("dtype":"F32","shape":[null],"data_offsets":[0,16])")), "where none belongs"},
      {file(one(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,16])")),
       "too large"},
      {file(one(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,16])")),
       "where none belongs"},
      {file(one(R"("dtype":"F32","shape":[1152921504606846976],"data_offsets":[0,16])")),
       "needs 4611686018427387904 bytes"},
      {file(one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16])")),
       "needs more than 2^63 bytes"},
      {file(one(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,16])")),
       "more than 8 dimensions"},
      {file(one(R"("dtype":"F32","shape":[5],"data_offsets":[0,16])")), "needs 20 bytes"},
      {file(one(R"("dtype":"BF16","shape":[4],"data_offsets":[0,16])")), "needs 8 bytes"},
      {file(one(shape + R"("data_offsets":[0])")), "must hold 2"},
      {file(one(shape + R"("data_offsets":[])")), "must hold 2"},
      {file(one(shape + R"("data_offsets":[0,16,32])")), "must hold 2"},
      {file(one(shape + R"("data_offsets":[16,0])")), "do not lie in the 16 bytes"},
      {file(one(shape + R"("data_offsets":[4,20])")), "cut short"},
      {file(one(shape + R"("data_offsets":[9223372036854775800,9223372036854775807])")),
       "do not lie in the 16 bytes"},
      {file("{\"a\":{" + good + "},\"a\":{" + good + "}}"), "'a' occurs twice"},
      {file("{\"a\":{" + good + R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})"),
       "'a' and 'b' overlap"},
      {file("{\"a\":{" + good + "},\"b\":{" + good + "}}"), "overlap"},
  };
  for (const Hostile& hostile : cases) {
    const auto tensors = entries_of(hostile.file);
    ASSERT_FALSE(tensors.ok()) << hostile.file.substr(0, 200);
    EXPECT_THAT(tensors.error().message,
                AllOf(HasSubstr("x.safetensors: "), HasSubstr(hostile.says)))
        << hostile.file.substr(0, 200);
    EXPECT_LT(tensors.error().message.size(), 600U);
  }
}

TEST(SafetensorsHeader, SurvivesEveryTruncationAndManyFlippedBytes) {
  const std::vector<HandTensor> tensors = {{"first", {2, 3}, {1, 2, 3, 4, 5, 6}},
                                           {"second", {4}, {1, 2, 3, 4}, ElementType::kBF16}};
  const std::string good = safetensors_of(tensors);
  ASSERT_TRUE(entries_of(good).ok());
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(entries_of(good.substr(0, length)).ok()) << length;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char flip : {'\x01', '\x10', '\x80', '\x7f'}) {
      std::string changed = good;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      const auto parsed = entries_of(changed);  // either way, and without reading out of bounds
      if (parsed.ok()) {
        for (const TensorEntry& tensor : *parsed) {
          EXPECT_LE(tensor.end, static_cast<int64_t>(changed.size()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::model
