#include "gguf/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>

#include "base/utf8.h"

namespace tandem::gguf {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kUsualAlignment = 32;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr uint64_t kMaxNameBytes = 65535;
constexpr uint32_t kMaxDimensions = 4;
constexpr int64_t kMaxElements = int64_t{1} << 44;  // sizes in bytes stay far from overflow
constexpr size_t kMinPairBytes = 8 + 1 + 4 + 1;
constexpr size_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

// Reads from the front; what goes beyond the end is an error that says what was read.
class Reader {
 public:
  Reader(std::span<const std::byte> file, std::string_view name) : file_(file), name_(name) {}

  template <class T>
  Result<T> take(std::string_view what) {
    if (left() < sizeof(T)) {
      return truncated(what);
    }
    T value{};
    std::memcpy(&value, file_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  Result<std::string_view> take_string(std::string_view what) {
    ASSIGN_OR_RETURN(const auto length, take<uint64_t>(what));
    if (length > left()) {
      return truncated(what);
    }
    const std::string_view text(reinterpret_cast<const char*>(file_.data()) + at_, length);
    at_ += length;
    return text;
  }

  Status skip(uint64_t bytes, std::string_view what) {
    if (bytes > left()) {
      return truncated(what);
    }
    at_ += bytes;
    return {};
  }

  [[nodiscard]] Error truncated(std::string_view what) const {
    return error(fmt::format("ends inside {} (the file has {} bytes); download it again", what,
                             file_.size()));
  }
  [[nodiscard]] Error error(std::string_view message) const {
    return invalid_argument(fmt::format("{}: {}", name_, message));
  }
  [[nodiscard]] size_t at() const { return at_; }
  [[nodiscard]] size_t left() const { return file_.size() - at_; }
  [[nodiscard]] std::span<const std::byte> since(size_t begin) const {
    return file_.subspan(begin, at_ - begin);
  }
  [[nodiscard]] std::string_view name() const { return name_; }

 private:
  std::span<const std::byte> file_;
  std::string_view name_;
  size_t at_ = 0;
};

struct Counts {
  uint64_t tensors = 0;
  uint64_t pairs = 0;
};

Result<Counts> read_counts(Reader& reader) {
  const auto magic = reader.take<uint32_t>("its magic number");
  if (!magic.ok() || *magic != kMagic) {
    return reader.error("is not a GGUF file: it does not begin with 'GGUF'; download it again");
  }
  ASSIGN_OR_RETURN(const auto version, reader.take<uint32_t>("its version"));
  if (version != 2 && version != 3) {
    const bool swapped = version != 0 && (version & 0xffffU) == 0;
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: {}", reader.name(),
                             swapped ? std::string("is a GGUF file in big-endian order; only "
                                                   "little-endian files are supported, convert it")
                                     : fmt::format("has version {} of GGUF; 2 and 3 are supported, "
                                                   "convert the model again",
                                                   version)),
                 {}};
  }
  Counts counts;
  ASSIGN_OR_RETURN(counts.tensors, reader.take<uint64_t>("its number of tensors"));
  ASSIGN_OR_RETURN(counts.pairs, reader.take<uint64_t>("its number of keys"));
  if (counts.pairs > reader.left() / kMinPairBytes ||
      counts.tensors > reader.left() / kMinTensorBytes) {
    return reader.error(
        fmt::format("names {} keys and {} tensors, more than its {} bytes can hold; download it "
                    "again",
                    counts.pairs, counts.tensors, reader.at() + reader.left()));
  }
  return counts;
}

Result<std::string> take_name(Reader& reader, std::string_view what) {
  ASSIGN_OR_RETURN(const std::string_view name, reader.take_string(what));
  if (name.empty() || name.size() > kMaxNameBytes || find_invalid_utf8(name)) {
    return reader.error(
        fmt::format("{} is '{}' ({} bytes); 1 to {} bytes of UTF-8 are needed, "
                    "download the file again",
                    what, shown(name), name.size(), kMaxNameBytes));
  }
  return std::string(name);
}

// Moves `reader` past `count` values of a type.
Status skip_values(Reader& reader, ValueType type, uint64_t count, const std::string& what) {
  if (type == ValueType::kString) {
    for (uint64_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN([[maybe_unused]] const std::string_view text, reader.take_string(what));
    }
    return {};
  }
  const auto bytes = static_cast<uint64_t>(value_bytes(type));
  if (bytes == 0) {
    return reader.error(fmt::format(
        "{} has type {}, which GGUF does not define{}; convert the "
        "model again",
        what, static_cast<uint32_t>(type), type == ValueType::kArray ? " inside an array" : ""));
  }
  return count > reader.left() / bytes ? Status(reader.truncated(what))
                                       : reader.skip(count * bytes, what);
}

Status read_pair(Reader& reader, Metadata& metadata) {
  ASSIGN_OR_RETURN(std::string key, take_name(reader, "the name of a key"));
  const std::string what = fmt::format("key '{}'", shown(key));
  Value value;
  ASSIGN_OR_RETURN(const auto type, reader.take<uint32_t>(what));
  value.element = static_cast<ValueType>(type);
  value.is_array = value.element == ValueType::kArray;
  if (value.is_array) {
    ASSIGN_OR_RETURN(const auto element, reader.take<uint32_t>(what));
    value.element = static_cast<ValueType>(element);
    ASSIGN_OR_RETURN(value.count, reader.take<uint64_t>(what));
  }
  const size_t begin = reader.at();
  RETURN_IF_ERROR(skip_values(reader, value.element, value.count, what));
  value.bytes = reader.since(begin);
  if (!metadata.add(std::move(key), value)) {
    return reader.error(what + " is there twice; convert the model again");
  }
  return {};
}

// The shape, slowest first, of a tensor whose rows are whole blocks.
Result<Tensor> read_tensor(Reader& reader) {
  Tensor tensor;
  ASSIGN_OR_RETURN(tensor.name, take_name(reader, "the name of a tensor"));
  const std::string what = fmt::format("tensor '{}'", shown(tensor.name));
  ASSIGN_OR_RETURN(const auto dimensions, reader.take<uint32_t>(what));
  if (dimensions == 0 || dimensions > kMaxDimensions) {
    return reader.error(
        fmt::format("{} has {} dimensions; 1 to {} are possible, download the "
                    "file again",
                    what, dimensions, kMaxDimensions));
  }
  int64_t elements = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    ASSIGN_OR_RETURN(const auto size, reader.take<uint64_t>(what));
    if (size == 0 || size > static_cast<uint64_t>(kMaxElements / elements)) {
      return reader.error(
          fmt::format("{} has a dimension of {}, which no tensor can have; "
                      "download the file again",
                      what, size));
    }
    elements *= static_cast<int64_t>(size);
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  ASSIGN_OR_RETURN(const auto number, reader.take<uint32_t>(what));
  const std::optional<BlockType> type = block_type(number);
  if (!type) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: {} is {}; supported are {}. Take a file with one of them, for "
                             "example Q4_K_M or Q8_0",
                             reader.name(), what, type_name(number), supported_types()),
                 tensor.name};
  }
  tensor.type = *type;
  const BlockShape block = block_shape(*type);
  if (tensor.shape.back() % block.elements != 0) {
    return reader.error(
        fmt::format("{} has rows of {} values, but {} needs a multiple of {}; "
                    "convert the model again",
                    what, tensor.shape.back(), type_name(*type), block.elements));
  }
  ASSIGN_OR_RETURN(const auto offset, reader.take<uint64_t>(what));
  if (offset > static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / 2)) {
    return reader.truncated("the data of " + what);
  }
  tensor.begin = static_cast<int64_t>(offset);
  tensor.end = tensor.begin + elements / block.elements * block.bytes;
  return tensor;
}

Result<uint64_t> read_alignment(const Metadata& metadata) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> given, metadata.integer("general.alignment"));
  const auto alignment = static_cast<uint64_t>(given.value_or(kUsualAlignment));
  if (!std::has_single_bit(alignment) || alignment < 8 || alignment > kMaxAlignment) {
    return metadata.error("general.alignment",
                          fmt::format("is {}; a power of two from 8 to {} is needed, convert the "
                                      "model again",
                                      given.value_or(0), kMaxAlignment));
  }
  return alignment;
}

// Offsets count from `data_begin`; afterwards from the file's beginning.
Status place_tensors(const Reader& reader, uint64_t alignment, Header& header) {
  const auto data_begin =
      static_cast<int64_t>((reader.at() + alignment - 1) / alignment * alignment);
  const auto file_bytes = static_cast<int64_t>(reader.at() + reader.left());
  for (Tensor& tensor : header.tensors) {
    if (tensor.begin % static_cast<int64_t>(alignment) != 0) {
      return reader.error(
          fmt::format("tensor '{}' lies at {}, which is not a multiple of the "
                      "alignment {}; convert the model again",
                      shown(tensor.name), tensor.begin, alignment));
    }
    tensor.begin += data_begin;
    tensor.end += data_begin;
    if (tensor.end > file_bytes) {
      return reader.error(
          fmt::format("tensor '{}' ends at byte {}, but the file has {}; download "
                      "it again",
                      shown(tensor.name), tensor.end, file_bytes));
    }
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const Tensor& a, const Tensor& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < header.tensors.size(); ++i) {
    const Tensor& before = header.tensors[i - 1];
    if (header.tensors[i].begin < before.end) {
      return reader.error(fmt::format("the tensors '{}' and '{}' overlap; convert the model again",
                                      shown(before.name), shown(header.tensors[i].name)));
    }
  }
  return {};
}

}  // namespace

Result<Header> parse_header(std::span<const std::byte> file, std::string_view name) {
  Reader reader(file, name);
  ASSIGN_OR_RETURN(const Counts counts, read_counts(reader));
  Header header{.metadata = Metadata(std::string(name)), .tensors = {}};
  for (uint64_t i = 0; i < counts.pairs; ++i) {
    RETURN_IF_ERROR(read_pair(reader, header.metadata));
  }
  std::set<std::string> names;
  for (uint64_t i = 0; i < counts.tensors; ++i) {
    ASSIGN_OR_RETURN(Tensor tensor, read_tensor(reader));
    if (!names.insert(tensor.name).second) {
      return reader.error(
          fmt::format("tensor '{}' is there twice; convert the model again", shown(tensor.name)));
    }
    header.tensors.push_back(std::move(tensor));
  }
  ASSIGN_OR_RETURN(const uint64_t alignment, read_alignment(header.metadata));
  RETURN_IF_ERROR(place_tensors(reader, alignment, header));
  return header;
}

}  // namespace tandem::gguf
