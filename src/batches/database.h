// A database of SQLite in one file, as the store uses it. Every change is on the disk when the call
// that commits it returns. Rows come from a file that may have been damaged: columns are read with
// the type asked for, never trusted to have it. Threads: one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace tandem::batches {

// One statement of SQL, its parameters and the row where it stands. Borrows its database.
class Statement {
 public:
  ~Statement();
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;

  // Gives the next parameter its value, in the order of the statement.
  Statement& bind(std::string_view text);
  Statement& bind(int64_t number);
  Statement& bind(const std::optional<std::string>& text);  // nullopt: NULL
  Statement& bind(const std::optional<int64_t>& number);

  // Goes to the next row. False: there is none, and the statement has done its work.
  Result<bool> step();
  // Runs it to its end.
  Status run();

  // Columns of the row where it stands, from 0.
  [[nodiscard]] std::string text(int column) const;
  [[nodiscard]] int64_t integer(int column) const;
  [[nodiscard]] std::optional<std::string> optional_text(int column) const;
  [[nodiscard]] std::optional<int64_t> optional_integer(int column) const;

 private:
  friend class Database;
  Statement(sqlite3* database, sqlite3_stmt* statement, const std::string* path)
      : database_(database), statement_(statement), path_(path) {}

  sqlite3* database_;
  sqlite3_stmt* statement_;
  const std::string* path_;  // for errors
  int bound_ = 0;
};

class Database {
 public:
  // Opens the file, or makes it. An error names the file; kIo: it is damaged or no database.
  static Result<Database> open(const std::filesystem::path& path);
  ~Database();
  Database(Database&& other) noexcept;
  Database& operator=(Database&&) = delete;

  // Needs SQL that is part of the program: an error in it is a bug.
  Result<Statement> prepare(std::string_view sql) const;
  // Statements without parameters and rows.
  Status run(const std::string& sql) const;
  // Rows that the last statement has changed.
  [[nodiscard]] int64_t changes() const;

 private:
  Database(sqlite3* database, std::unique_ptr<const std::string> path)
      : database_(database), path_(std::move(path)) {}

  sqlite3* database_;
  std::unique_ptr<const std::string> path_;  // statements point to it
};

// Changes between its making and commit() happen all or not at all.
class Transaction {
 public:
  static Result<Transaction> begin(const Database& database);
  ~Transaction();  // without commit(): nothing has changed
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  Status commit();

 private:
  explicit Transaction(const Database& database) : database_(&database) {}
  const Database* database_;  // null: over
};

}  // namespace tandem::batches
