// Big blocks of memory: page-aligned, zero until written, in huge pages where the system grants them (one TLB entry
// per 2 MiB of weights).
#pragma once
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace octavo {

// The system refused memory; the message says for what and how much. Python sees octavo.errors.OutOfMemoryError.
class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Memory of one purpose.
class Region {
 public:
  Region() = default;
  // Anonymous memory. Pages appear when first touched, so a large region costs nothing at start. `purpose` ("KV blocks")
  // goes into the error. Throws OutOfMemory.
  Region(size_t bytes, const std::string& purpose);
  // Memory of a file from `offset` (a multiple of the page size) on, read-only, the same for all who map it. The file may
  // be closed, and must not become shorter. Throws OutOfMemory.
  static Region of_file(int file, size_t offset, size_t bytes, const std::string& purpose);
  ~Region();
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

// Hands out pieces of one region in order, each aligned to 64 bytes.
class Arena {
 public:
  static constexpr size_t kAlign = 64;
  // Bytes that a piece takes from an arena.
  static constexpr size_t padded(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

  Arena() = default;
  Arena(size_t bytes, const std::string& purpose) : region_(bytes, purpose) {}

  // Throws std::logic_error when the pieces exceed the size given at the start.
  uint8_t* take(size_t bytes);
  template <class T>
  T* take_array(size_t count) {
    return reinterpret_cast<T*>(take(count * sizeof(T)));
  }
  size_t bytes() const { return region_.bytes(); }

 private:
  Region region_;
  size_t used_ = 0;
};

// Brings [begin, begin + bytes) of a mapped file into memory, in huge pages where the system makes them of it.
void fetch_file_pages(const uint8_t* begin, size_t bytes);

// Gives back the memory of whole pages of a mapped file within [begin, begin + bytes). They are read again when touched:
// for files alone, since memory without a file would come back as zeros.
void forget_file_pages(const uint8_t* begin, size_t bytes);

}  // namespace octavo
