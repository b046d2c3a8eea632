// Whether a SentencePiece model tokenizes a text as it is given. The library does not say; the
// model's file does. Threads: any.
#pragma once

#include <string_view>

namespace tandem::text {

// `model`: the file's content. True: no characters are replaced and no spaces removed before a text
// is tokenized, so every byte of it ends in a token. False also for content that is broken.
[[nodiscard]] bool keeps_every_byte(std::string_view model);

}  // namespace tandem::text
