#include "text/tokenizer_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_values.h"
#include "text/bpe_tokenizer.h"
#include "text/json_fields.h"
#include "text/token_decoder.h"

namespace tandem::text {
namespace {

using nlohmann::json;

constexpr int64_t kLargestFileBytes = int64_t{512} << 20;

json field_or_null(const json& object, std::string_view key) {
  const json* field = find_field(object, key);
  return field == nullptr ? json() : *field;
}

Status read_vocabulary(const json& model, const std::string& file, Vocabulary& vocabulary) {
  const std::string where = file + ": model.vocab";
  const json* vocab = find_field(model, "vocab");
  if (vocab == nullptr || !vocab->is_object() || vocab->empty()) {
    return bad_file(where, "is not an object of tokens and their ids");
  }
  for (const auto& item : vocab->items()) {
    ASSIGN_OR_RETURN(const int64_t id, int_field(*vocab, item.key(), where));
    RETURN_IF_ERROR(vocabulary.add(item.key(), id, where));
  }
  return {};
}

Result<std::vector<AddedToken>> read_added_tokens(const json& root, const std::string& file) {
  const std::string where = file + ": added_tokens";
  std::vector<AddedToken> added;
  const json* list = find_field(root, "added_tokens");
  if (list == nullptr) {
    return added;
  }
  if (!list->is_array()) {
    return bad_file(where, "is not a list");
  }
  for (const json& item : *list) {
    ASSIGN_OR_RETURN(AddedToken token, parse_added_token(item, where));
    ASSIGN_OR_RETURN(const int64_t id, int_field(item, "id", where));
    if (id < 0 || id >= kMostTokens) {
      return bad_file(where, fmt::format("the token \"{}\" has the id {}; ids go from 0 to {}",
                                         token.content, id, kMostTokens - 1));
    }
    token.id = static_cast<TokenId>(id);
    added.push_back(std::move(token));
  }
  return added;
}

Result<BpeOptions> read_options(const json& model, const std::string& file,
                                const Vocabulary& vocabulary, bool byte_level) {
  const std::string where = file + ": model";
  ASSIGN_OR_RETURN(const std::string type, string_field(model, "type", where, "BPE"));
  if (type != "BPE") {
    return unsupported(where,
                       fmt::format("a tokenizer model of type \"{}\" (only \"BPE\" is)", type));
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    ASSIGN_OR_RETURN(const std::string text, string_field(model, key, where, ""));
    if (!text.empty()) {
      return unsupported(where, fmt::format("\"{}\": \"{}\"", key, text));
    }
  }
  const json* dropout = find_field(model, "dropout");
  if (dropout != nullptr && !(dropout->is_number() && dropout->get<double>() == 0.0)) {
    return unsupported(where, "\"dropout\", which makes the tokens of a text random,");
  }
  BpeOptions options;
  options.byte_level = byte_level;
  ASSIGN_OR_RETURN(options.byte_fallback, bool_field(model, "byte_fallback", where, false));
  ASSIGN_OR_RETURN(options.fuse_unk, bool_field(model, "fuse_unk", where, false));
  ASSIGN_OR_RETURN(options.ignore_merges, bool_field(model, "ignore_merges", where, false));
  ASSIGN_OR_RETURN(const std::string unk, string_field(model, "unk_token", where, ""));
  if (!unk.empty()) {
    options.unk_id = vocabulary.find(unk);
    if (!options.unk_id) {
      return bad_file(where, fmt::format("\"unk_token\" \"{}\" is not in the vocabulary", unk));
    }
  }
  return options;
}

// A merge is "a b" or ["a", "b"]; the second form lets tokens have spaces.
Result<std::pair<std::string_view, std::string_view>> read_merge(const json& merge,
                                                                 const std::string& where,
                                                                 size_t index) {
  if (merge.is_string()) {
    const std::string_view both = merge.get_ref<const std::string&>();
    const size_t space = both.find(' ');
    if (space != std::string_view::npos && both.find(' ', space + 1) == std::string_view::npos &&
        space > 0 && space + 1 < both.size()) {
      return std::pair(both.substr(0, space), both.substr(space + 1));
    }
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
             merge[1].is_string()) {
    return std::pair<std::string_view, std::string_view>(merge[0].get_ref<const std::string&>(),
                                                         merge[1].get_ref<const std::string&>());
  }
  return bad_file(where, fmt::format("entry {} is neither \"a b\" nor [\"a\", \"b\"]", index));
}

Status read_merges(const json& model, const std::string& file, const Vocabulary& vocabulary,
                   BpeModel& bpe) {
  const std::string where = file + ": model.merges";
  const json* merges = find_field(model, "merges");
  if (merges == nullptr || !merges->is_array()) {
    return bad_file(where, "is not a list");
  }
  bpe.reserve_merges(merges->size());
  std::string joined;
  for (size_t i = 0; i < merges->size(); ++i) {
    ASSIGN_OR_RETURN(const auto pair, read_merge((*merges)[i], where, i));
    joined.assign(pair.first).append(pair.second);
    const std::optional<TokenId> a = vocabulary.find(pair.first);
    const std::optional<TokenId> b = vocabulary.find(pair.second);
    const std::optional<TokenId> merged = vocabulary.find(joined);
    if (!a || !b || !merged) {
      const std::string_view unknown = !a ? pair.first : !b ? pair.second : joined;
      return bad_file(
          where, fmt::format("entry {} names \"{}\", which is not in model.vocab", i, unknown));
    }
    bpe.add_merge(*a, *b, *merged, static_cast<uint32_t>(i));
  }
  return {};
}

// One part of a TemplateProcessing: {"SpecialToken": {"id": "<s>"}} or {"Sequence": {"id": "A"}}.
Status read_template(const json& value, const std::string& where, const Vocabulary& vocabulary,
                     SpecialFrame& frame) {
  const json* single = find_field(value, "single");
  const json tokens = field_or_null(value, "special_tokens");
  if (single == nullptr || !single->is_array()) {
    return bad_file(where, "\"single\" is not a list");
  }
  bool after_text = false;
  for (const json& part : *single) {
    if (part.is_object() && part.contains("Sequence")) {
      after_text = true;
      continue;
    }
    const json* special = part.is_object() ? find_field(part, "SpecialToken") : nullptr;
    if (special == nullptr || !special->is_object() || !tokens.is_object()) {
      return bad_file(where, "\"single\" has a part that is neither a Sequence nor a SpecialToken");
    }
    ASSIGN_OR_RETURN(const std::string name, string_field(*special, "id", where));
    const json* token = find_field(tokens, name);
    const json ids = token != nullptr && token->is_object() ? field_or_null(*token, "ids") : json();
    if (!ids.is_array() || ids.empty()) {
      return bad_file(where, fmt::format("\"special_tokens\" has no ids for \"{}\"", name));
    }
    for (const json& id : ids) {
      const int64_t number = json_integer(id).value_or(-1);
      if (number < 0 || number >= kMostTokens || !vocabulary.has(static_cast<TokenId>(number))) {
        return bad_file(
            where, fmt::format("the id {} of \"{}\" is not in the vocabulary", id.dump(), name));
      }
      (after_text ? frame.suffix : frame.prefix).push_back(static_cast<TokenId>(number));
    }
  }
  return {};
}

Status read_post_processor(const json& value, const std::string& where,
                           const Vocabulary& vocabulary, SpecialFrame& frame) {
  if (value.is_null()) {
    return {};
  }
  if (!value.is_object()) {
    return bad_file(where, "is not an object");
  }
  ASSIGN_OR_RETURN(const std::string type, string_field(value, "type", where));
  if (type == "ByteLevel") {
    return {};  // changes offsets only
  }
  if (type == "TemplateProcessing") {
    return read_template(value, where, vocabulary, frame);
  }
  if (type != "Sequence") {
    return unsupported(where, fmt::format("the post-processor \"{}\"", type));
  }
  const json* list = find_field(value, "processors");
  if (list == nullptr || !list->is_array()) {
    return bad_file(where, "\"processors\" is not a list");
  }
  for (const json& item : *list) {
    RETURN_IF_ERROR(read_post_processor(item, where, vocabulary, frame));
  }
  return {};
}

Status read_token_bytes(const json& root, const std::string& file, BpeParts& parts) {
  ASSIGN_OR_RETURN(const TokenDecoder decoder,
                   TokenDecoder::parse(field_or_null(root, "decoder"), file + ": decoder"));
  parts.traits.stripped_leading_spaces = decoder.stripped_leading_spaces();
  parts.traits.invalid_bytes = decoder.invalid_bytes();
  parts.traits.vocab_size = parts.vocabulary.size();
  std::vector<bool> is_added(static_cast<size_t>(parts.vocabulary.size()), false);
  for (const AddedToken& token : parts.added) {
    is_added[static_cast<size_t>(token.id)] = true;
  }
  for (TokenId id = 0; id < parts.vocabulary.size(); ++id) {
    const TokenOrigin origin =
        is_added[static_cast<size_t>(id)] ? TokenOrigin::kAdded : TokenOrigin::kModel;
    ASSIGN_OR_RETURN(const std::string bytes, decoder.bytes(parts.vocabulary.text(id), origin));
    parts.bytes.add(bytes);
  }
  for (const AddedToken& token : parts.added) {
    if (token.special) {
      parts.bytes.set_special(token.id);
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_tokenizer_json(const std::filesystem::path& path,
                                                       const TokenizerConfig& config) {
  const std::string file = path.string();
  ASSIGN_OR_RETURN(const json root, read_json_object(path, kLargestFileBytes));
  const json* model = find_field(root, "model");
  if (model == nullptr || !model->is_object()) {
    return bad_file(file, "\"model\" is not an object");
  }
  auto parts = std::make_unique<BpeParts>();
  ASSIGN_OR_RETURN(parts->normalizer,
                   Normalizer::parse(field_or_null(root, "normalizer"), file + ": normalizer"));
  ASSIGN_OR_RETURN(parts->pre_tokenizer, PreTokenizer::parse(field_or_null(root, "pre_tokenizer"),
                                                             file + ": pre_tokenizer"));
  Vocabulary& vocabulary = parts->vocabulary;
  // The options first: a model of another type has a vocabulary of another shape.
  ASSIGN_OR_RETURN(const std::string type, string_field(*model, "type", file + ": model", "BPE"));
  if (type == "BPE") {
    RETURN_IF_ERROR(read_vocabulary(*model, file, vocabulary));
  }
  ASSIGN_OR_RETURN(const BpeOptions options,
                   read_options(*model, file, vocabulary, parts->pre_tokenizer.byte_level()));
  // What the model may merge or find is its own vocabulary, so it is built before tokens are added
  // to that.
  ASSIGN_OR_RETURN(parts->added, read_added_tokens(root, file));
  RETURN_IF_ERROR(merge_added_tokens(config, file + ": added_tokens", vocabulary, parts->added));
  RETURN_IF_ERROR(read_token_bytes(root, file, *parts));
  parts->model = std::make_unique<BpeModel>(vocabulary, parts->bytes, options);
  RETURN_IF_ERROR(read_merges(*model, file, vocabulary, *parts->model));

  SpecialFrame frame;
  RETURN_IF_ERROR(read_post_processor(field_or_null(root, "post_processor"),
                                      file + ": post_processor", vocabulary, frame));
  if (!config.bos_token && !frame.prefix.empty()) {
    frame.bos_id = frame.prefix.front();
  }
  RETURN_IF_ERROR(apply_config(config, vocabulary, frame));
  parts->prefix = std::move(frame.prefix);
  parts->suffix = std::move(frame.suffix);
  parts->traits.bos_id = frame.bos_id;
  parts->traits.eos_id = frame.eos_id;
  return BpeTokenizer::create(std::move(parts));
}

}  // namespace tandem::text
