#include "api/batch_routes.h"

#include "base/log.h"
#include "batches/service.h"

namespace tandem::api {

bool is_batch_route(const Route& route) {
  switch (route.id) {
    case RouteId::kFiles:
    case RouteId::kFileContent:
    case RouteId::kFile:
    case RouteId::kBatches:
    case RouteId::kBatchCancel:
    case RouteId::kBatch:
      return true;
    default:
      return false;
  }
}

bool is_upload(const HttpRequest& request, const Route& route) {
  return route.id == RouteId::kFiles && request.method == "POST";
}

bool is_download(const Route& route) { return route.id == RouteId::kFileContent; }

std::optional<HttpResponse> refuse_without_folder(const ApiContext& context) {
  if (context.options.batches != nullptr) {
    return std::nullopt;
  }
  return error_response(
      {ErrorCode::kNotFound,
       "this server keeps no files and batches; start it with --data-folder DIR to have them", ""},
      context, "no_data_folder");
}

std::string_view owner_without_key() { return "all"; }

HttpResponse batch_error(const Error& error, const ApiContext& context) {
  switch (error.code) {
    case ErrorCode::kResourceExhausted:
      log::warn("{}", error.message);
      return error_response(
          {error.code, "the disk on which the server keeps files is full; try again later", ""},
          context);
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      log::error("{}", error.message);
      return error_response(
          {error.code, "the server cannot use its files now; its log says why", ""}, context);
    default:
      return error_response(error, context);
  }
}

HttpResponse batch_answer(const Result<std::string>& json, const ApiContext& context) {
  if (!json.ok()) {
    return batch_error(json.error(), context);
  }
  return {.body = *json};
}

HttpResponse answer_batch_route(const HttpRequest& request, const Route& route,
                                std::string_view owner, const ApiContext& context) {
  batches::Service& service = *context.options.batches;
  const bool posts = request.method == "POST";
  switch (route.id) {
    case RouteId::kFiles:
      return batch_answer(service.files(owner, request.query), context);
    case RouteId::kFile: {
      const std::string id = id_in_path(route, request.path);
      return batch_answer(
          request.method == "DELETE" ? service.delete_file(owner, id) : service.file(owner, id),
          context);
    }
    case RouteId::kBatches:
      return batch_answer(
          posts ? service.create_batch(owner, request.body) : service.batches(owner, request.query),
          context);
    case RouteId::kBatchCancel:
      return batch_answer(service.cancel_batch(owner, id_in_path(route, request.path)), context);
    case RouteId::kBatch:
      return batch_answer(service.batch(owner, id_in_path(route, request.path)), context);
    default:
      break;
  }
  CHECK(false, "route {} is none of files and batches", route.path);
}

}  // namespace tandem::api
