#include "gguf/header.h"

#include <gmock/gmock.h>

#include "gguf/test_support.h"

namespace tandem::gguf {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<Header> parse(const std::string& bytes) {
  return parse_header(std::as_bytes(std::span(bytes)), "a.gguf");
}

std::string header_error(const std::string& bytes) {
  const Result<Header> header = parse(bytes);
  return header.ok() ? "no error" : header.error().message;
}

FileBuilder small_file() {
  FileBuilder file;
  file.string("general.architecture", "llama").integer("llama.block_count", 2);
  file.floats("output_norm.weight", {4}, {1, 2, 3, 4});
  file.tensor("blk.0.attn_q.weight", {2, 32}, 8, std::string(68, '\0'));
  return file;
}

TEST(GgufHeader, GivesMetadataAndTensors) {
  const std::string bytes = small_file().bytes();
  const Result<Header> header = parse(bytes);
  ASSERT_TRUE(header.ok()) << header.error().message;
  EXPECT_EQ(*header->metadata.string("general.architecture"), "llama");
  EXPECT_EQ(*header->metadata.integer("llama.block_count"), 2);
  EXPECT_EQ(*header->metadata.integer("absent"), std::nullopt);
  ASSERT_EQ(header->tensors.size(), 2U);
  const Tensor& tensor = header->tensors[1];
  EXPECT_EQ(tensor.name, "blk.0.attn_q.weight");
  EXPECT_EQ(type_name(tensor.type), "Q8_0");
  EXPECT_THAT(tensor.shape, ElementsAre(2, 32));
  EXPECT_EQ(tensor.bytes(), 68);
  EXPECT_EQ(tensor.end, static_cast<int64_t>(bytes.size()));
}

TEST(GgufHeader, ReadsEveryKindOfValue) {
  FileBuilder file;
  file.pair("u8", ValueType::kUint8, FileBuilder::number_bytes(uint8_t{200}));
  file.pair("i8", ValueType::kInt8, FileBuilder::number_bytes(int8_t{-3}));
  file.pair("u64", ValueType::kUint64, FileBuilder::number_bytes(uint64_t{1} << 40));
  file.pair("huge", ValueType::kUint64, FileBuilder::number_bytes(~uint64_t{0}));
  file.pair("f64", ValueType::kFloat64, FileBuilder::number_bytes(0.25));
  file.boolean("yes", true);
  file.numbers("ints", ValueType::kInt32, std::vector<int32_t>{1, -2});
  file.numbers("floats", ValueType::kFloat32, std::vector<float>{0.5F, 2.0F});
  file.strings("texts", std::vector<std::string>{"a", "", "long one"});
  const std::string bytes = file.bytes();
  const Result<Header> header = parse(bytes);
  ASSERT_TRUE(header.ok()) << header.error().message;
  const Metadata& metadata = header->metadata;
  EXPECT_EQ(*metadata.integer("u8"), 200);
  EXPECT_EQ(*metadata.integer("i8"), -3);
  EXPECT_EQ(*metadata.integer("u64"), int64_t{1} << 40);
  EXPECT_EQ(*metadata.number("f64"), 0.25);
  EXPECT_EQ(*metadata.number("u8"), 200.0);
  EXPECT_EQ(*metadata.boolean("yes"), true);
  EXPECT_THAT(**metadata.integers("ints"), ElementsAre(1, -2));
  EXPECT_THAT(**metadata.integers("u8"), ElementsAre(200));
  EXPECT_THAT(**metadata.numbers("floats"), ElementsAre(0.5F, 2.0F));
  EXPECT_THAT(**metadata.strings("texts"), ElementsAre("a", "", "long one"));
  EXPECT_THAT(metadata.integer("huge").error().message,
              AllOf(HasSubstr("a.gguf: key 'huge'"), HasSubstr("must be an integer")));
  EXPECT_THAT(metadata.integer("texts").error().message, HasSubstr("an array of 3 string"));
  EXPECT_THAT(metadata.boolean("u8").error().message, HasSubstr("must be a bool"));
  EXPECT_THAT(metadata.string("u8").error().message, HasSubstr("must be a string"));
  EXPECT_THAT(metadata.strings("ints").error().message, HasSubstr("must be an array of strings"));
  EXPECT_THAT(metadata.numbers("texts").error().message, HasSubstr("must be a number or an array"));
}

TEST(GgufHeader, SaysWhereAFileEnds) {
  const std::string bytes = small_file().bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Result<Header> header = parse(bytes.substr(0, size));
    ASSERT_FALSE(header.ok()) << size;
    EXPECT_THAT(header.error().message, HasSubstr("a.gguf: ")) << size;
    EXPECT_THAT(header.error().message, HasSubstr("download it again")) << size;
  }
}

TEST(GgufHeader, RefusesOtherFilesAndVersions) {
  EXPECT_THAT(header_error("PK..........."), HasSubstr("is not a GGUF file"));
  std::string bytes = small_file().bytes();
  bytes[4] = 1;
  EXPECT_THAT(header_error(bytes), HasSubstr("version 1 of GGUF; 2 and 3 are supported"));
  bytes[4] = 0;
  bytes[7] = 3;
  EXPECT_THAT(header_error(bytes), HasSubstr("big-endian"));
}

TEST(GgufHeader, RefusesCountsThatCannotBe) {
  std::string bytes = small_file().bytes();
  bytes[15] = 1;  // 2^56 tensors
  EXPECT_THAT(header_error(bytes), HasSubstr("more than its"));
  FileBuilder file;
  file.array("list", ValueType::kFloat64, uint64_t{1} << 61, "abc");
  EXPECT_THAT(header_error(file.bytes()), HasSubstr("ends inside key 'list'"));
  FileBuilder texts;
  texts.array("list", ValueType::kString, ~uint64_t{0}, FileBuilder::string_bytes("a"));
  EXPECT_THAT(header_error(texts.bytes()), HasSubstr("ends inside key 'list'"));
}

TEST(GgufHeader, RefusesTypesThatAreNone) {
  FileBuilder file;
  file.pair("odd", static_cast<ValueType>(77), std::string(40, '\0'));
  EXPECT_THAT(header_error(file.bytes()), HasSubstr("key 'odd' has type 77"));
  FileBuilder nested;
  nested.array("list", ValueType::kArray, 1, std::string(40, '\0'));
  EXPECT_THAT(header_error(nested.bytes()), HasSubstr("inside an array"));
  FileBuilder tensor;
  tensor.tensor("x.weight", {2, 256}, 16, std::string(2048, '\0'));
  EXPECT_THAT(header_error(tensor.bytes()),
              AllOf(HasSubstr("tensor 'x.weight' is IQ2_XXS"), HasSubstr("supported are F32")));
  FileBuilder unknown;
  unknown.tensor("x.weight", {2, 256}, 99, std::string(2048, '\0'));
  EXPECT_THAT(header_error(unknown.bytes()), HasSubstr("is type 99"));
}

TEST(GgufHeader, RefusesNamesTwice) {
  FileBuilder file;
  file.integer("a", 1).integer("a", 2);
  EXPECT_THAT(header_error(file.bytes()), HasSubstr("key 'a' is there twice"));
  FileBuilder tensors;
  tensors.floats("x", {1}, {1}).floats("x", {1}, {2});
  EXPECT_THAT(header_error(tensors.bytes()), HasSubstr("tensor 'x' is there twice"));
  FileBuilder nameless;
  nameless.integer("", 1).string("padding", std::string(100, 'x'));
  EXPECT_THAT(header_error(nameless.bytes()), HasSubstr("1 to 65535 bytes of UTF-8"));
}

TEST(GgufHeader, RefusesShapesThatCannotBe) {
  const auto with_shape = [](const std::vector<int64_t>& shape, uint32_t type) {
    FileBuilder file;
    file.tensor("x", shape, type, std::string(256, '\0'));
    return header_error(file.bytes());
  };
  EXPECT_THAT(with_shape({}, 0), HasSubstr("has 0 dimensions"));
  EXPECT_THAT(with_shape({1, 1, 1, 1, 1}, 0), HasSubstr("has 5 dimensions"));
  EXPECT_THAT(with_shape({2, 0}, 0), HasSubstr("a dimension of 0"));
  EXPECT_THAT(with_shape({-1, 8}, 0), HasSubstr("no tensor can have"));
  EXPECT_THAT(with_shape({int64_t{1} << 40, int64_t{1} << 40}, 0), HasSubstr("no tensor can have"));
  EXPECT_THAT(with_shape({2, 33}, 8), HasSubstr("Q8_0 needs a multiple of 32"));
  EXPECT_THAT(with_shape({2, 128}, 12), HasSubstr("Q4_K needs a multiple of 256"));
  EXPECT_THAT(with_shape({65, 1}, 0), HasSubstr("but the file has"));
}

TEST(GgufHeader, RefusesOffsetsThatCannotBe) {
  const auto at = [](uint64_t offset) {
    FileBuilder file;
    file.floats("first", {8}, std::vector<float>(8)).tensor_at("second", {8}, 0, offset);
    return header_error(file.bytes());
  };
  EXPECT_THAT(at(0), HasSubstr("the tensors 'first' and 'second' overlap"));
  EXPECT_THAT(at(8), HasSubstr("not a multiple of the alignment 32"));
  EXPECT_THAT(at(4096), HasSubstr("tensor 'second' ends at byte"));
  EXPECT_THAT(at(~uint64_t{0}), HasSubstr("ends inside the data of tensor 'second'"));
}

TEST(GgufHeader, TakesAnotherAlignment) {
  FileBuilder file;
  file.integer("general.alignment", 8).floats("x", {2}, {1, 2});
  EXPECT_EQ(header_error(file.bytes()), "no error");
  FileBuilder odd;
  odd.integer("general.alignment", 24);
  EXPECT_THAT(header_error(odd.bytes()), HasSubstr("a power of two from 8"));
}

}  // namespace
}  // namespace tandem::gguf
