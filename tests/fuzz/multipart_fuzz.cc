// Bodies of uploads: however they are cut, the same parts come out of them.
#include <algorithm>
#include <string>
#include <vector>

#include "batches/multipart.h"
#include "fuzz/fuzz.h"

namespace tandem::batches {
namespace {

class Parts final : public PartSink {
 public:
  Status begin_part(const PartHead& head) override {
    CHECK(!open_, "a part in a part");
    open_ = true;
    parts.push_back({head.name + '\n' + head.filename.value_or("\n"), {}});
    return {};
  }
  Status part_data(std::string_view bytes) override {
    CHECK(open_ && !bytes.empty(), "data outside of a part");
    parts.back().second += bytes;
    return {};
  }
  Status end_part() override {
    CHECK(open_, "the end of no part");
    open_ = false;
    return {};
  }
  std::vector<std::pair<std::string, std::string>> parts;

 private:
  bool open_ = false;
};

Status parse(std::string_view body, size_t piece_bytes, Parts& parts) {
  ASSIGN_OR_RETURN(MultipartReader reader,
                   MultipartReader::make("multipart/form-data; boundary=XY"));
  while (!body.empty()) {
    RETURN_IF_ERROR(reader.feed(body.substr(0, piece_bytes), parts));
    body.remove_prefix(std::min(piece_bytes, body.size()));
  }
  return reader.finish();
}

TANDEM_FUZZ_TARGET_IN_TIME(input) {
  Parts whole;
  Parts cut;
  const Status status = parse(input, std::max<size_t>(input.size(), 1), whole);
  const Status cut_status = parse(input, 1 + input.size() % 7, cut);
  CHECK(status.ok() == cut_status.ok(), "whole: {}", status.ok());
  if (status.ok()) {
    CHECK(whole.parts == cut.parts, "{} and {} parts", whole.parts.size(), cut.parts.size());
  }
  CHECK(whole.parts.size() <= static_cast<size_t>(MultipartReader::kMaxParts));
  fuzz::use(MultipartReader::make(input).ok() ? 1 : 0);
}

}  // namespace
}  // namespace tandem::batches
