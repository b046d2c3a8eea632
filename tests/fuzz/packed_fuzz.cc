// A folder of quantised layers: the first line is a quantization_config, the rest a safetensors
// file.
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "fuzz/fuzz.h"
#include "model/json_fields.h"
#include "model/packed_layer.h"
#include "model/packed_values.h"

namespace tandem::model {
namespace {

// A folder whose model.safetensors is the file in memory; removed when the target ends.
class Folder {
 public:
  explicit Folder(const std::string& file) {
    std::string name = (std::filesystem::temp_directory_path() / "tandem-fuzz-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr, "no folder for the input");
    path_ = name;
    std::filesystem::create_symlink(file, path_ / "model.safetensors");
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void read_layer(const PackedLayer& layer, int64_t file_bytes) {
  const int64_t elements = layer.rows * layer.columns;
  CHECK(elements > 0 && elements <= 8 * file_bytes, "{} of {} bytes", elements, file_bytes);
  std::vector<std::byte> numbers(static_cast<size_t>(elements) * 4);
  packed_numbers(layer, ElementType::kF32, 0, layer.rows, numbers.data());
  fuzz::use(static_cast<size_t>(numbers.back()));
  if (const Quantization kind = layer.kind(); kind != Quantization::kNone) {
    std::vector<kernels::QuantizedGroup> groups(static_cast<size_t>(elements / kQuantizedGroup));
    packed_groups(layer, kind, 0, layer.rows, groups.data());
    packed_groups(layer, Quantization::kInt8, 0, layer.rows, groups.data());
    fuzz::use(groups.back().scale);
  }
}

}  // namespace

TANDEM_FUZZ_TARGET(input) {
  static const fuzz::MemoryFile file;
  static const Folder folder(file.path());
  const size_t end = input.find('\n');
  if (end == std::string_view::npos) {
    return;
  }
  const auto fields = JsonFields::parse("config.json", input.substr(0, end));
  if (!fields.ok()) {
    return;
  }
  std::vector<std::string> warnings;
  const auto config = parse_quantization_config(*fields, warnings);
  if (!config.ok() || !*config) {
    CHECK(config.ok() || !config.error().message.empty());
    return;
  }
  file.write(input.substr(end + 1));
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder.path());
  if (!checkpoint.ok()) {
    return;
  }
  const auto layers = find_packed_layers(*checkpoint, **config);
  if (!layers.ok()) {
    CHECK(!layers.error().message.empty());
    return;
  }
  for (const auto& [name, layer] : *layers) {
    if (check_packed_layer(*checkpoint, layer).ok()) {
      read_layer(layer, static_cast<int64_t>(input.size()));
    }
  }
}
}  // namespace tandem::model
