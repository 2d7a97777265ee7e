// The core's errors. The bindings turn each into the class of the same name in tamis.errors.
// The core never prints, aborts or reads the environment.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tamis {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class LanguageError : public Error {
 public:
  LanguageError(const std::string& reason, std::size_t offset) : Error(reason), offset_(offset) {}
  std::size_t offset() const { return offset_; }  // in bytes of the text

 private:
  std::size_t offset_;
};

class EventError : public Error {
 public:
  using Error::Error;
};

class ArgumentError : public Error {
 public:
  using Error::Error;
};

class ArgumentTypeError : public Error {
 public:
  using Error::Error;
};

class UnknownIdError : public Error {
 public:
  using Error::Error;
};

class UnavailableError : public Error {
 public:
  using Error::Error;
};

}  // namespace tamis
