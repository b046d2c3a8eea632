#include "batches/multipart.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::batches {
namespace {

struct Part {
  PartHead head;
  std::string data;
  bool ended = false;
};

class Parts final : public PartSink {
 public:
  Status begin_part(const PartHead& head) override {
    parts.push_back({head, {}, false});
    return {};
  }
  Status part_data(std::string_view bytes) override {
    parts.back().data += bytes;
    return refuse_data ? invalid_argument("enough") : Status();
  }
  Status end_part() override {
    parts.back().ended = true;
    return {};
  }
  std::vector<Part> parts;
  bool refuse_data = false;
};

constexpr std::string_view kType = "multipart/form-data; boundary=XY";

Status read(std::string_view body, size_t piece, Parts& parts, std::string_view type = kType) {
  ASSIGN_OR_RETURN(MultipartReader reader, MultipartReader::make(type));
  for (size_t i = 0; i < body.size(); i += piece) {
    RETURN_IF_ERROR(reader.feed(body.substr(i, piece), parts));
  }
  return reader.finish();
}

std::string body_of(std::string_view file) {
  return fmt::format(
      "preamble\r\n--XY\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
      "--XY  \r\ncontent-type: text/plain\r\ncontent-disposition:form-data; name=file; "
      "filename=\"a \\\"b\\\";.jsonl\"\r\n\r\n{}\r\n--XY--\r\nepilogue",
      file);
}

TEST(Multipart, PartsComeOutHoweverTheBodyIsCut) {
  const std::string body = body_of("one\r\n--X\r\n--\r\n-\r");
  for (size_t piece = 1; piece <= body.size(); ++piece) {
    Parts parts;
    const Status status = read(body, piece, parts);
    ASSERT_TRUE(status.ok()) << status.error().message;
    ASSERT_EQ(parts.parts.size(), 2U);
    EXPECT_EQ(parts.parts[0].head.name, "purpose");
    EXPECT_FALSE(parts.parts[0].head.filename.has_value());
    EXPECT_EQ(parts.parts[0].data, "batch");
    EXPECT_EQ(parts.parts[1].head.name, "file");
    EXPECT_EQ(parts.parts[1].head.filename, "a \"b\";.jsonl");
    EXPECT_EQ(parts.parts[1].data, "one\r\n--X\r\n--\r\n-\r");
    EXPECT_TRUE(parts.parts[0].ended && parts.parts[1].ended);
  }
}

TEST(Multipart, APartMayBeEmptyAndTheFirstDelimiterMayBeginTheBody) {
  Parts parts;
  ASSERT_TRUE(
      read("--XY\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n--XY--", 3, parts).ok());
  ASSERT_EQ(parts.parts.size(), 1U);
  EXPECT_EQ(parts.parts[0].data, "");
  EXPECT_TRUE(parts.parts[0].ended);
}

TEST(Multipart, ABodyThatIsCutOffIsAnError) {
  const std::string body = body_of("text");
  const size_t whole = body.find("--XY--") + 6;
  for (size_t length = 0; length < whole; ++length) {
    Parts parts;
    const Status status = read(std::string_view(body).substr(0, length), 16, parts);
    ASSERT_FALSE(status.ok()) << length;
    EXPECT_NE(status.error().message.find("cut off"), std::string::npos);
  }
}

TEST(Multipart, TheContentTypeMustNameABoundary) {
  for (const char* type : {"", "application/json", "multipart/form-data",
                           "multipart/form-data; boundary=", "multipart/mixed; boundary=x",
                           "multipart/form-data; boundary=\"open"}) {
    const Result<MultipartReader> reader = MultipartReader::make(type);
    ASSERT_FALSE(reader.ok()) << type;
    EXPECT_EQ(reader.error().param, "Content-Type");
  }
  EXPECT_FALSE(MultipartReader::make("multipart/form-data; boundary=" + std::string(71, 'x')).ok());
  Parts parts;
  EXPECT_TRUE(read("--a b\r\nContent-Disposition: form-data; name=x\r\n\r\n1\r\n--a b--", 5, parts,
                   "Multipart/Form-Data; charset=utf-8; Boundary=\"a b\"")
                  .ok());
}

TEST(Multipart, PartsAndTheirHeadersAreBounded) {
  Parts parts;
  EXPECT_FALSE(
      read("--XY\r\nX: " + std::string(MultipartReader::kMaxHeadBytes, 'x'), 1000, parts).ok());
  EXPECT_FALSE(read("--XY" + std::string(100'000, ' '), 1000, parts).ok());
  std::string many;
  for (int32_t i = 0; i <= MultipartReader::kMaxParts; ++i) {
    many += "--XY\r\nContent-Disposition: form-data; name=x\r\n\r\n1\r\n";
  }
  EXPECT_FALSE(read(many + "--XY--", 1000, parts).ok());
}

TEST(Multipart, PartsNeedNamesAndDelimitersTheirOwnLine) {
  for (const char* body :
       {"--XY\r\n\r\nno headers\r\n--XY--", "--XY\r\nContent-Type: a\r\n\r\n1\r\n--XY--",
        "--XY\r\nContent-Disposition: form-data\r\n\r\n1\r\n--XY--",
        "--XY\r\nContent-Disposition: attachment; name=x\r\n\r\n1\r\n--XY--", "--XYZ\r\n"}) {
    Parts parts;
    EXPECT_FALSE(read(body, 7, parts).ok()) << body;
  }
}

TEST(Multipart, NamesOfFilesAreReadAsClientsWriteThem) {
  for (const auto& [parameters, filename] : std::vector<std::pair<std::string, std::string>>{
           {R"(filename="a%22b%0D%0Ac%20d.jsonl")", "a\"b\r\nc%20d.jsonl"},
           {R"(filename="plain"; filename*=UTF-8''na%C3%AFve%20x.jsonl)", "na\xC3\xAFve x.jsonl"},
           {R"(filename*=utf-8'en'x; filename="plain")", "x"},
           {R"(filename*=iso-8859-1''x; filename="plain")", "plain"},
           {R"(odd; filename="plain")", "plain"},
           {R"(filename="plain"; odd)", "plain"}}) {
    Parts parts;
    const Status status = read(
        "--XY\r\nContent-Disposition: form-data; name=file; " + parameters + "\r\n\r\n1\r\n--XY--",
        1000, parts);
    ASSERT_TRUE(status.ok()) << status.error().message;
    ASSERT_EQ(parts.parts.size(), 1U) << parameters;
    EXPECT_EQ(parts.parts[0].head.filename, filename) << parameters;
    EXPECT_EQ(parts.parts[0].head.name, "file") << parameters;
  }
}

TEST(Multipart, AnErrorOfTheSinkIsTheReaders) {
  Parts parts;
  parts.refuse_data = true;
  const Status status = read(body_of("text"), 1000, parts);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "enough");
}

}  // namespace
}  // namespace tandem::batches
