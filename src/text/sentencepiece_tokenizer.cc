#include "text/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include "base/utf8.h"
#include "text/added_tokens.h"
#include "text/bpe_tokenizer.h"
#include "text/byte_level.h"
#include "text/json_fields.h"
#include "text/sentencepiece_normalizer.h"
#include "text/token_count_bound.h"

namespace tandem::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

// The space that many models want before a text.
enum class FirstSpace {
  kOfTheModel,  // the library puts it before every part between special tokens, or nowhere
  kOnce,        // before the text, unless it begins with one, and before no later part
  kNever,
};

// Protocol buffers say that of fields which come twice the last counts, in messages inside, too:
// this behind a model leaves it as it is but for two fields of its NormalizerSpec (3), whose
// add_dummy_prefix (3) and remove_extra_whitespaces (4) become false.
constexpr std::string_view kSpacesAsTheyAre("\x1A\x04\x18\x00\x20\x00", 6);

class SentencePieceTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> load(std::string_view content, const std::string& file,
                                                 const TokenizerConfig& config);

  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options) const override;
  std::string_view token_bytes(TokenId id) const override { return bytes_[id]; }
  bool is_special(TokenId id) const override { return bytes_.is_special(id); }
  std::optional<TokenId> id_of(std::string_view token) const override {
    return vocabulary_.find(token);
  }
  const TokenizerTraits& traits() const override { return traits_; }

 private:
  Status read_model(std::string_view content, const std::string& file,
                    const TokenizerConfig& config);
  Status read_pieces(const std::string& file, const TokenizerConfig& config);
  void fill_bound(std::string_view content);
  [[nodiscard]] bool adds_space() const;
  Status encode_part(std::string_view text, TextPlace place, std::vector<TokenId>& ids) const;

  sentencepiece::SentencePieceProcessor processor_;
  Vocabulary vocabulary_;  // added tokens included
  TokenBytes bytes_;
  AddedTokenMatcher matcher_;
  SpecialFrame frame_;
  std::optional<TokenCountBound> bound_;  // of texts that lose nothing before they are tokenized
  TokenizerTraits traits_;
  FirstSpace first_space_ = FirstSpace::kOfTheModel;
};

std::string piece_bytes(std::string_view piece) {
  std::string bytes;
  size_t done = 0;
  for (size_t at = piece.find(kSpaceMark); at != std::string_view::npos;
       at = piece.find(kSpaceMark, done)) {
    bytes.append(piece.substr(done, at - done)).push_back(' ');
    done = at + kSpaceMark.size();
  }
  return bytes.append(piece.substr(done));
}

// The model says by what it does whether it puts a space before a text.
bool SentencePieceTokenizer::adds_space() const {
  if (first_space_ != FirstSpace::kOfTheModel) {
    return first_space_ == FirstSpace::kOnce;
  }
  std::vector<std::string> pieces;
  return processor_.Encode("a", &pieces).ok() && !pieces.empty() &&
         pieces.front().starts_with(kSpaceMark);
}

Status SentencePieceTokenizer::read_model(std::string_view content, const std::string& file,
                                          const TokenizerConfig& config) {
  const auto load = [&](std::string_view bytes) -> Status {
    const sentencepiece::util::Status status =
        processor_.LoadFromSerializedProto({bytes.data(), bytes.size()});
    if (!status.ok()) {
      return bad_file(file, fmt::format("is neither a SentencePiece model nor tiktoken text ({})",
                                        status.ToString()));
    }
    return {};
  };
  RETURN_IF_ERROR(load(content));
  if (processor_.GetPieceSize() > kMostTokens) {
    return bad_file(file, fmt::format("has {} pieces, more than the {} that are possible",
                                      processor_.GetPieceSize(), kMostTokens));
  }
  if ((config.legacy && config.add_prefix_space) || !adds_space()) {
    return {};
  }
  first_space_ = config.add_prefix_space ? FirstSpace::kOnce : FirstSpace::kNever;
  return load(std::string(content).append(kSpacesAsTheyAre));
}

Status SentencePieceTokenizer::read_pieces(const std::string& file, const TokenizerConfig& config) {
  std::vector<AddedToken> added;
  const int32_t pieces = processor_.GetPieceSize();
  for (TokenId id = 0; id < pieces; ++id) {
    const std::string& piece = processor_.IdToPiece(id);
    if (find_invalid_utf8(piece)) {
      return bad_file(file, fmt::format("piece {} is not valid UTF-8", id));
    }
    RETURN_IF_ERROR(vocabulary_.add(piece, id, file));
    if ((processor_.IsControl(id) || processor_.IsUnknown(id)) && !piece.empty()) {
      added.push_back({.id = id, .content = piece, .special = true});
    }
  }
  RETURN_IF_ERROR(merge_added_tokens(config, file, vocabulary_, added));
  for (TokenId id = 0; id < vocabulary_.size(); ++id) {
    const std::optional<uint8_t> byte = id < pieces && processor_.IsByte(id)
                                            ? byte_fallback_value(vocabulary_.text(id))
                                            : std::nullopt;
    bytes_.add(byte ? std::string(1, static_cast<char>(*byte)) : piece_bytes(vocabulary_.text(id)));
  }
  for (const AddedToken& token : added) {
    matcher_.add(token, token.content);
    if (token.special) {
      bytes_.set_special(token.id);
    }
  }
  return {};
}

// Without a token for every byte, unknown characters side by side become one token.
void SentencePieceTokenizer::fill_bound(std::string_view content) {
  int32_t byte_tokens = 0;
  TokenCountBound bound;
  for (TokenId id = 0; id < processor_.GetPieceSize(); ++id) {
    const std::string& piece = processor_.IdToPiece(id);
    if (processor_.IsByte(id)) {
      bound.add(std::string(1, static_cast<char>(byte_fallback_value(piece).value_or(0))));
      ++byte_tokens;
      continue;
    }
    bound.add(piece);  // the mark stands for itself or for a space
    bound.add(piece_bytes(piece));
  }
  if (byte_tokens == 256 && keeps_every_byte(content)) {
    bound_ = bound;
  }
}

Result<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::load(std::string_view content,
                                                                const std::string& file,
                                                                const TokenizerConfig& config) {
  auto result = std::make_unique<SentencePieceTokenizer>();
  RETURN_IF_ERROR(result->read_model(content, file, config));
  RETURN_IF_ERROR(result->read_pieces(file, config));
  result->fill_bound(content);
  const auto id_or_none = [](int32_t id) {
    return id < 0 ? std::nullopt : std::optional<TokenId>(id);
  };
  SpecialFrame& frame = result->frame_;
  frame.bos_id = id_or_none(result->processor_.bos_id());
  frame.eos_id = id_or_none(result->processor_.eos_id());
  if (frame.bos_id) {
    frame.prefix = {*frame.bos_id};
  }
  RETURN_IF_ERROR(apply_config(config, result->vocabulary_, frame));

  result->traits_ = {.vocab_size = result->vocabulary_.size(),
                     .bos_id = frame.bos_id,
                     .eos_id = frame.eos_id,
                     .stripped_leading_spaces = result->adds_space() ? 1 : 0,
                     .invalid_bytes = InvalidBytes::kOnePerByte};
  return std::unique_ptr<Tokenizer>(std::move(result));
}

Result<std::vector<TokenId>> SentencePieceTokenizer::encode(std::string_view text,
                                                            EncodeOptions options) const {
  RETURN_IF_ERROR(check_text(text));
  std::vector<TokenId> ids;
  if (options.add_special_tokens) {
    ids = frame_.prefix;
  }
  const SpecialTokens special =
      options.parse_special_tokens ? SpecialTokens::kParse : SpecialTokens::kLeaveAsText;
  for (const AddedTokenMatcher::Part& part : matcher_.cut(text, special, options.max_tokens)) {
    if (part.token) {
      ids.push_back(*part.token);
    } else {
      const std::string_view rest =
          text.substr(part.range.begin, part.range.end - part.range.begin);
      if (bound_ && bound_->min_tokens(rest) > options.max_tokens - std::ssize(ids)) {
        return too_many_tokens(options.max_tokens);
      }
      RETURN_IF_ERROR(encode_part(
          rest, part.range.begin == 0 ? TextPlace::kBeginning : TextPlace::kLater, ids));
    }
    if (std::ssize(ids) > options.max_tokens) {
      return too_many_tokens(options.max_tokens);
    }
  }
  if (options.add_special_tokens) {
    ids.insert(ids.end(), frame_.suffix.begin(), frame_.suffix.end());
  }
  if (std::ssize(ids) > options.max_tokens) {
    return too_many_tokens(options.max_tokens);
  }
  return ids;
}

Status SentencePieceTokenizer::encode_part(std::string_view text, TextPlace place,
                                           std::vector<TokenId>& ids) const {
  const bool has_space = text.starts_with(' ') || text.starts_with(kSpaceMark);
  const bool spaced =
      first_space_ == FirstSpace::kOnce && place == TextPlace::kBeginning && !has_space;
  const std::string led = spaced ? " " + std::string(text) : std::string();
  const std::string_view given = spaced ? std::string_view(led) : text;
  std::vector<int> found;
  const sentencepiece::util::Status status =
      processor_.Encode({given.data(), given.size()}, &found);
  if (!status.ok()) {
    return Error{ErrorCode::kInternal,
                 fmt::format("SentencePiece cannot tokenize the text: {}", status.ToString()),
                 {}};
  }
  ids.insert(ids.end(), found.begin(), found.end());
  return {};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_sentencepiece(std::string_view content,
                                                      const std::string& file,
                                                      const TokenizerConfig& config) {
  try {
    return SentencePieceTokenizer::load(content, file, config);
  } catch (const std::exception& error) {
    return bad_file(file, fmt::format("SentencePiece cannot read it ({})", error.what()));
  }
}

}  // namespace tandem::text
