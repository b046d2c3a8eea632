#include "text/bpe_model.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/check.h"
#include "base/utf8.h"
#include "text/byte_level.h"

namespace tandem::text {
namespace {

constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kEnd = std::numeric_limits<uint32_t>::max();

// Up to here looking at all pairs again after each merge is faster than a heap.
constexpr size_t kShortSymbols = 48;

}  // namespace

BpeModel::BpeModel(const Vocabulary& vocabulary, const TokenBytes& bytes, BpeOptions options)
    : options_(options) {
  byte_ids_.fill(kNoToken);
  ascii_ids_.fill(kNoToken);
  for (uint32_t byte = 0; byte < 256; ++byte) {
    std::string spelling;
    if (options.byte_level) {
      append_utf8(byte_level_char(static_cast<uint8_t>(byte)), spelling);
    } else {
      spelling = fmt::format("<0x{:02X}>", byte);
    }
    byte_ids_[byte] = vocabulary.find(spelling).value_or(kNoToken);
  }
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view text = vocabulary.text(id);
    if (text.empty() || vocabulary.find(text) != id) {
      continue;
    }
    const Utf8Char first = front_char(text);
    if (!options.byte_level && static_cast<size_t>(first.bytes) == text.size()) {
      if (first.code_point < ascii_ids_.size()) {
        ascii_ids_[first.code_point] = id;
      }
      char_ids_.insert(first.code_point, {static_cast<uint32_t>(id), 0});
    }
    if (options.ignore_merges) {
      if (!options.byte_level) {
        whole_.emplace(text, id);
      } else if (byte_level_decode(text)) {
        whole_.emplace(bytes[id], id);
      }
    }
  }
  fill_bound(vocabulary);
}

// What the model is given: bytes, or characters as the vocabulary spells them.
void BpeModel::fill_bound(const Vocabulary& vocabulary) {
  constexpr size_t kLastUtf8Byte = 0xF4;
  every_byte_has_tokens_ =
      (options_.byte_level || options_.byte_fallback) &&
      std::all_of(byte_ids_.begin(), byte_ids_.begin() + kLastUtf8Byte + 1, [&](const TokenId& id) {
        const auto byte = static_cast<size_t>(&id - byte_ids_.data());
        return id != kNoToken || byte == 0xC0 || byte == 0xC1;  // in no UTF-8
      });
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view spelling = vocabulary.text(id);
    bound_.add(options_.byte_level ? byte_level_decode(spelling).value_or("") : spelling);
  }
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    bound_.add(std::string(1, static_cast<char>(byte)));
  }
}

void BpeModel::add_merge(TokenId a, TokenId b, TokenId merged, uint32_t rank) {
  CHECK(rank != kNoRank, "rank {} is reserved", rank);
  merges_.insert(IntMap::key(static_cast<uint32_t>(a), static_cast<uint32_t>(b)),
                 {rank, static_cast<uint32_t>(merged)});
}

uint32_t BpeModel::rank(TokenId a, TokenId b) const {
  const IntMap::Value* merge =
      merges_.find(IntMap::key(static_cast<uint32_t>(a), static_cast<uint32_t>(b)));
  return merge == nullptr ? kNoRank : merge->first;
}

void BpeModel::encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const {
  CHECK(piece.size() < kEnd, "a piece of {} bytes", piece.size());
  if (options_.ignore_merges) {
    if (const auto whole = whole_.find(piece); whole != whole_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  make_symbols(piece, symbols);
  for (size_t i = 0; i < symbols.size(); ++i) {
    const bool last = i + 1 == symbols.size();
    symbols[i].rank = last ? kNoRank : rank(symbols[i].id, symbols[i + 1].id);
  }
  if (symbols.size() <= kShortSymbols) {
    merge_short(symbols);
    for (const Symbol& symbol : symbols) {
      ids.push_back(symbol.id);
    }
    return;
  }
  merge_long(scratch);
  for (uint32_t i = 0; i != kEnd; i = symbols[i].next) {
    ids.push_back(symbols[i].id);
  }
}

void BpeModel::make_symbols(std::string_view piece, std::vector<Symbol>& symbols) const {
  symbols.reserve(piece.size());
  for (size_t i = 0; i < piece.size();) {
    const auto byte = static_cast<uint8_t>(piece[i]);
    TokenId id = kNoToken;
    size_t length = 1;
    if (options_.byte_level) {
      id = byte_ids_[byte];
    } else if (byte < ascii_ids_.size()) {
      id = ascii_ids_[byte];
    } else {
      const Utf8Char c = front_char(piece.substr(i));
      length = static_cast<size_t>(c.bytes);
      const IntMap::Value* known = char_ids_.find(c.code_point);
      id = known == nullptr ? kNoToken : static_cast<TokenId>(known->first);
    }
    if (id == kNoToken) {
      append_unknown(piece.substr(i, length), symbols);
    } else {
      symbols.push_back({.id = id});
    }
    i += length;
  }
}

void BpeModel::append_unknown(std::string_view character, std::vector<Symbol>& symbols) const {
  const auto has_token = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] != kNoToken; };
  if (options_.byte_fallback && !options_.byte_level &&
      std::all_of(character.begin(), character.end(), has_token)) {
    for (const char c : character) {
      symbols.push_back({.id = byte_ids_[static_cast<uint8_t>(c)]});
    }
  } else if (options_.unk_id) {
    const bool joins =
        options_.fuse_unk && !symbols.empty() && symbols.back().id == *options_.unk_id;
    if (!joins) {
      symbols.push_back({.id = *options_.unk_id});
    }
  }
}

void BpeModel::merge_short(std::vector<Symbol>& symbols) const {
  while (symbols.size() > 1) {
    const auto best =
        std::min_element(symbols.begin(), symbols.end(),
                         [](const Symbol& a, const Symbol& b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) {
      return;
    }
    const auto next = best + 1;
    const uint64_t pair =
        IntMap::key(static_cast<uint32_t>(best->id), static_cast<uint32_t>(next->id));
    best->id = static_cast<TokenId>(merges_.find(pair)->second);
    symbols.erase(next);
    if (best + 1 != symbols.end()) {
      best->rank = rank(best->id, (best + 1)->id);
    } else {
      best->rank = kNoRank;
    }
    if (best != symbols.begin()) {
      (best - 1)->rank = rank((best - 1)->id, best->id);
    }
  }
}

// Keeps the ranked pairs in a heap of (rank, left position); an entry whose left symbol is gone or
// has another rank by now is out of date and passed over.
void BpeModel::merge_long(Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<uint64_t>& heap = scratch.heap;
  heap.clear();
  size_t max_entries = symbols.size() + symbols.size() / 2;
  heap.reserve(max_entries);
  const auto count = static_cast<uint32_t>(symbols.size());
  for (uint32_t i = 0; i < count; ++i) {
    symbols[i].previous = i == 0 ? kEnd : i - 1;
    symbols[i].next = i + 1 == count ? kEnd : i + 1;
    if (symbols[i].rank != kNoRank) {
      heap.push_back(IntMap::key(symbols[i].rank, i));
    }
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto is_out_of_date = [&](uint64_t entry) {
    return symbols[static_cast<uint32_t>(entry)].rank != static_cast<uint32_t>(entry >> 32);
  };
  const auto update = [&](uint32_t at) {
    Symbol& symbol = symbols[at];
    symbol.rank = symbol.next == kEnd ? kNoRank : rank(symbol.id, symbols[symbol.next].id);
    if (symbol.rank != kNoRank) {
      if (heap.size() >= max_entries) {  // a third of them are out of date
        std::erase_if(heap, is_out_of_date);
        std::make_heap(heap.begin(), heap.end(), std::greater<>());
        max_entries = std::max(max_entries, heap.size() + heap.size() / 2);
      }
      heap.push_back(IntMap::key(symbol.rank, at));
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t entry = heap.back();
    heap.pop_back();
    const auto at = static_cast<uint32_t>(entry);
    Symbol& left = symbols[at];
    if (is_out_of_date(entry)) {
      continue;
    }
    Symbol& right = symbols[left.next];
    const uint64_t pair =
        IntMap::key(static_cast<uint32_t>(left.id), static_cast<uint32_t>(right.id));
    left.id = static_cast<TokenId>(merges_.find(pair)->second);
    left.next = right.next;
    right.rank = kNoRank;
    if (left.next != kEnd) {
      symbols[left.next].previous = at;
    }
    update(at);
    if (left.previous != kEnd) {
      update(left.previous);
    }
  }
}

}  // namespace tandem::text
