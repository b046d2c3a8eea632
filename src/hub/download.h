// Brings one file of a model into the cache: continues its .incomplete file, tries again, and
// renames it to its final name once size and checksum are right. Threads: as its client.
#pragma once

#include "base/result.h"
#include "hub/cache.h"
#include "hub/client.h"

namespace tandem::hub {

// Needs a file whose size and checksum are known, and the cache's folders. After an error what has
// come stays in the .incomplete file, unless it is wrong.
Status download(Client& client, const Cache& cache, const std::string& commit,
                const RemoteFile& file);

}  // namespace tandem::hub
