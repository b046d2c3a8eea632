#include "text/bpe_tokenizer.h"

#include <fmt/format.h>

#include <unordered_map>

#include "base/utf8.h"

namespace tandem::text {
namespace {

// Words come again and again within a text: a small memory of them, which forgets when two fall on
// the same place.
class PieceCache {
 public:
  static constexpr size_t kLongestPieceBytes = 32;

  struct Entry {
    std::string piece;
    std::vector<TokenId> ids;
  };

  // The entry where `piece` is or belongs.
  Entry& at(std::string_view piece) {
    return entries_[std::hash<std::string_view>{}(piece) % entries_.size()];
  }

 private:
  std::vector<Entry> entries_ = std::vector<Entry>(4096);
};

// Below this a text has few words twice, and setting up the cache costs more than it gives.
constexpr size_t kCacheFromBytes = 4096;

}  // namespace

Status check_text(std::string_view text) {
  if (text.size() > kLongestTextBytes) {
    return Error{ErrorCode::kPayloadTooLarge,
                 fmt::format("the text has {} bytes, more than the {} that can be tokenized; "
                             "shorten it",
                             text.size(), kLongestTextBytes),
                 {}};
  }
  return check_utf8(text);
}

Error too_many_tokens(int64_t max_tokens) {
  return {ErrorCode::kPayloadTooLarge,
          fmt::format("the text has more than {} tokens; shorten it", max_tokens),
          {}};
}

struct BpeTokenizer::Work {
  int64_t max_tokens = 0;
  std::vector<TokenId> ids;
  BpeModel::Scratch scratch;
  SpecialTokens special = SpecialTokens::kLeaveAsText;
  std::optional<PieceCache> cache;

  // An error if `text` alone becomes more tokens than are left.
  [[nodiscard]] Status check(const BpeModel& model, std::string_view text) const {
    const int64_t left = max_tokens - std::ssize(ids);
    const bool fits = std::ssize(text) <= left || model.min_tokens(text) <= left;
    return fits ? Status() : too_many_tokens(max_tokens);
  }

  void add(const BpeModel& model, std::string_view piece) {
    if (!cache || piece.size() > PieceCache::kLongestPieceBytes || piece.size() < 2) {
      model.encode(piece, scratch, ids);
      return;
    }
    PieceCache::Entry& entry = cache->at(piece);
    if (entry.piece == piece) {
      ids.insert(ids.end(), entry.ids.begin(), entry.ids.end());
      return;
    }
    const size_t before = ids.size();
    model.encode(piece, scratch, ids);
    entry.piece = piece;
    entry.ids.assign(ids.begin() + static_cast<ptrdiff_t>(before), ids.end());
  }
};

Result<std::unique_ptr<Tokenizer>> BpeTokenizer::create(std::unique_ptr<const BpeParts> parts) {
  std::unique_ptr<BpeTokenizer> tokenizer(new BpeTokenizer(std::move(parts)));
  const BpeParts& all = *tokenizer->parts_;
  for (const AddedToken& token : all.added) {
    if (token.normalized && !all.normalizer.changes_nothing()) {
      ASSIGN_OR_RETURN(const std::string content, all.normalizer.apply(token.content));
      tokenizer->normalized_tokens_.add(token, content);
    } else if (token.normalized) {
      tokenizer->normalized_tokens_.add(token, token.content);
    } else {
      tokenizer->raw_tokens_.add(token, token.content);
    }
  }
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

std::optional<TokenId> BpeTokenizer::id_of(std::string_view token) const {
  for (const AddedToken& added : parts_->added) {
    if (added.content == token) {
      return added.id;
    }
  }
  return parts_->vocabulary.find(token);
}

Result<std::vector<TokenId>> BpeTokenizer::encode(std::string_view text,
                                                  EncodeOptions options) const {
  RETURN_IF_ERROR(check_text(text));
  Work work;
  work.max_tokens = options.max_tokens;
  work.special = options.parse_special_tokens ? SpecialTokens::kParse : SpecialTokens::kLeaveAsText;
  if (text.size() >= kCacheFromBytes) {
    work.cache.emplace();
  }
  if (options.add_special_tokens) {
    work.ids = parts_->prefix;
  }
  for (const AddedTokenMatcher::Part& part : raw_tokens_.cut(text, work.special, work.max_tokens)) {
    if (std::ssize(work.ids) > work.max_tokens) {
      return too_many_tokens(work.max_tokens);
    }
    if (part.token) {
      work.ids.push_back(*part.token);
    } else {
      const TextPlace place = part.range.begin == 0 ? TextPlace::kBeginning : TextPlace::kLater;
      RETURN_IF_ERROR(encode_raw(text.substr(part.range.begin, part.range.end - part.range.begin),
                                 place, work));
    }
  }
  if (options.add_special_tokens) {
    work.ids.insert(work.ids.end(), parts_->suffix.begin(), parts_->suffix.end());
  }
  if (std::ssize(work.ids) > work.max_tokens) {
    return too_many_tokens(work.max_tokens);
  }
  return std::move(work.ids);
}

Status BpeTokenizer::encode_raw(std::string_view text, TextPlace place, Work& work) const {
  ASSIGN_OR_RETURN(const std::string normalized, parts_->normalizer.apply(text));
  if (normalized.size() > kLongestTextBytes) {
    return check_text(normalized);
  }
  for (const AddedTokenMatcher::Part& part :
       normalized_tokens_.cut(normalized, work.special, work.max_tokens)) {
    if (part.token) {
      work.ids.push_back(*part.token);
      continue;
    }
    const TextPlace part_place = part.range.begin == 0 ? place : TextPlace::kLater;
    std::string part_text = normalized.substr(part.range.begin, part.range.end - part.range.begin);
    if (parts_->pre_tokenizer.keeps_text()) {
      RETURN_IF_ERROR(work.check(*parts_->model, part_text));
    }
    ASSIGN_OR_RETURN(const Pieces pieces,
                     parts_->pre_tokenizer.apply(std::move(part_text), part_place));
    for (size_t i = 0; i < pieces.ranges.size(); ++i) {
      RETURN_IF_ERROR(work.check(*parts_->model, pieces[i]));
      work.add(*parts_->model, pieces[i]);
    }
  }
  return {};
}

}  // namespace tandem::text
