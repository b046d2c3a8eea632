#include "batches/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <utility>

#include "base/check.h"

namespace tandem::batches {
namespace {

Error database_error(sqlite3* database, const std::string& path) {
  const int code = database == nullptr ? SQLITE_NOMEM : sqlite3_errcode(database);
  const char* text = database == nullptr ? "out of memory" : sqlite3_errmsg(database);
  switch (code) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {ErrorCode::kIo,
              fmt::format("the database '{}' is damaged or no database ({}); restore it from a "
                          "copy, or begin without files and batches in another --data-folder",
                          path, text),
              "data-folder"};
    case SQLITE_FULL:
      return {ErrorCode::kResourceExhausted,
              fmt::format("the disk with the database '{}' is full; free some space on it", path),
              "data-folder"};
    default:
      return {ErrorCode::kIo, fmt::format("cannot use the database '{}': {}", path, text),
              "data-folder"};
  }
}

}  // namespace

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement::Statement(Statement&& other) noexcept
    : database_(other.database_),
      statement_(std::exchange(other.statement_, nullptr)),
      path_(other.path_),
      bound_(other.bound_) {}

Statement& Statement::bind(std::string_view text) {
  const char* data = text.data() == nullptr ? "" : text.data();  // a null pointer would be NULL
  const int code =
      sqlite3_bind_text64(statement_, ++bound_, data, text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  CHECK(code == SQLITE_OK, "parameter {} of a statement: {}", bound_, code);
  return *this;
}

Statement& Statement::bind(int64_t number) {
  const int code = sqlite3_bind_int64(statement_, ++bound_, number);
  CHECK(code == SQLITE_OK, "parameter {} of a statement: {}", bound_, code);
  return *this;
}

Statement& Statement::bind(const std::optional<std::string>& text) {
  if (text) {
    return bind(std::string_view(*text));
  }
  ++bound_;  // NULL until it is bound
  return *this;
}

Statement& Statement::bind(const std::optional<int64_t>& number) {
  if (number) {
    return bind(*number);
  }
  ++bound_;
  return *this;
}

Result<bool> Statement::step() {
  switch (sqlite3_step(statement_)) {
    case SQLITE_ROW:
      return true;
    case SQLITE_DONE:
      return false;
    default:
      return database_error(database_, *path_);
  }
}

Status Statement::run() {
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, step());
    if (!row) {
      return {};
    }
  }
}

std::string Statement::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  const int bytes = sqlite3_column_bytes(statement_, column);
  return text == nullptr ? std::string() : std::string(text, static_cast<size_t>(bytes));
}

int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_, column); }

std::optional<std::string> Statement::optional_text(int column) const {
  const bool null = sqlite3_column_type(statement_, column) == SQLITE_NULL;
  return null ? std::nullopt : std::optional(text(column));
}

std::optional<int64_t> Statement::optional_integer(int column) const {
  const bool null = sqlite3_column_type(statement_, column) == SQLITE_NULL;
  return null ? std::nullopt : std::optional(integer(column));
}

Result<Database> Database::open(const std::filesystem::path& path) {
  sqlite3* opened = nullptr;
  auto name = std::make_unique<const std::string>(path.string());
  const int code =
      sqlite3_open_v2(name->c_str(), &opened,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  Database database(opened, std::move(name));
  if (code != SQLITE_OK) {
    return database_error(opened, *database.path_);
  }
  // A file that was tampered with may hold views and triggers: they are not run.
  sqlite3_db_config(opened, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  RETURN_IF_ERROR(database.run("PRAGMA cell_size_check = ON"));
  RETURN_IF_ERROR(database.run("PRAGMA journal_mode = WAL"));
  RETURN_IF_ERROR(database.run("PRAGMA synchronous = FULL"));
  return database;
}

Database::Database(Database&& other) noexcept
    : database_(std::exchange(other.database_, nullptr)), path_(std::move(other.path_)) {}

Database::~Database() { sqlite3_close_v2(database_); }

Result<Statement> Database::prepare(std::string_view sql) const {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database_, sql.data(), static_cast<int>(sql.size()), &statement,
                         nullptr) != SQLITE_OK) {
    return database_error(database_, *path_);
  }
  return Statement(database_, statement, path_.get());
}

Status Database::run(const std::string& sql) const {
  if (sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return database_error(database_, *path_);
  }
  return {};
}

int64_t Database::changes() const { return sqlite3_changes64(database_); }

Result<Transaction> Transaction::begin(const Database& database) {
  RETURN_IF_ERROR(database.run("BEGIN IMMEDIATE"));
  return Transaction(database);
}

Transaction::Transaction(Transaction&& other) noexcept
    : database_(std::exchange(other.database_, nullptr)) {}

Transaction::~Transaction() {
  if (database_ != nullptr) {
    static_cast<void>(database_->run("ROLLBACK"));  // a failed statement may have done it
  }
}

Status Transaction::commit() {
  RETURN_IF_ERROR(database_->run("COMMIT"));
  database_ = nullptr;
  return {};
}

}  // namespace tandem::batches
