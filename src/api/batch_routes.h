// The routes of files and batches, as far as they are answers to whole requests: uploads and
// downloads are connections' own (connection_files.cc). Threads: any; answers wait for the disk, so
// they are made beside the I/O threads.
#pragma once

#include <string_view>

#include "api/api_context.h"
#include "api/http_message.h"
#include "api/routes.h"
#include "base/result.h"

namespace tandem::api {

// A route of files or batches.
[[nodiscard]] bool is_batch_route(const Route& route);
// Such a request is the upload of a file; or asks for a file's content.
[[nodiscard]] bool is_upload(const HttpRequest& request, const Route& route);
[[nodiscard]] bool is_download(const Route& route);

// The answer (404) of a server that was started without --data-folder; nullopt if it has one.
[[nodiscard]] std::optional<HttpResponse> refuse_without_folder(const ApiContext& context);

// Whose objects a request with this key means. Without keys, all belong to one owner.
[[nodiscard]] std::string_view owner_without_key();

[[nodiscard]] HttpResponse answer_batch_route(const HttpRequest& request, const Route& route,
                                              std::string_view owner, const ApiContext& context);

// The answer to an error of files and batches. Trouble with the disk goes to the log with its path,
// to the client without.
[[nodiscard]] HttpResponse batch_error(const Error& error, const ApiContext& context);
[[nodiscard]] HttpResponse batch_answer(const Result<std::string>& json, const ApiContext& context);

}  // namespace tandem::api
