#include "base/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace octavo {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

std::string gibibytes(size_t bytes) {
  char text[48];
  std::snprintf(text, sizeof text, "%.2f GiB (%zu bytes)", static_cast<double>(bytes) / (1 << 30), bytes);
  return text;
}

constexpr size_t kPage = 4096;

[[noreturn]] void refuse(size_t bytes, const std::string& purpose, int reason) {
  throw OutOfMemory(purpose + " need " + gibibytes(bytes) + ", which the system refused (" + std::strerror(reason) + ")");
}

// Addresses for `bytes` that begin where a huge page may. mmap aligns to 4 KiB only: take one huge page more and cut off
// what lies before the first boundary, and behind the end.
uint8_t* reserve(size_t bytes, const std::string& purpose) {
  const size_t whole = bytes + kHugePage;
  void* start =
      whole < bytes ? MAP_FAILED : mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) refuse(bytes, purpose, whole < bytes ? ENOMEM : errno);
  auto* base = static_cast<uint8_t*>(start);
  const size_t lead = (kHugePage - reinterpret_cast<uintptr_t>(base) % kHugePage) % kHugePage;
  if (lead) munmap(base, lead);
  const size_t kept = (bytes + kPage - 1) / kPage * kPage;
  if (whole > lead + kept) munmap(base + lead + kept, (whole - lead - kept) / kPage * kPage);
  return base + lead;
}

// Advice: where huge pages are off, small ones work as well.
void ask_for_huge_pages(uint8_t* data, size_t bytes) {
#ifdef MADV_HUGEPAGE
  madvise(data, bytes, MADV_HUGEPAGE);
#endif
}

}  // namespace

Region::Region(size_t bytes, const std::string& purpose) : bytes_(bytes) {
  if (bytes == 0) return;
  data_ = reserve(bytes, purpose);
  ask_for_huge_pages(data_, bytes_);
}

Region Region::of_file(int file, size_t offset, size_t bytes, const std::string& purpose) {
  Region region;
  if (bytes == 0) return region;
  region.data_ = reserve(bytes, purpose);
  region.bytes_ = bytes;
  void* mapped = mmap(region.data_, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) refuse(bytes, purpose, errno);
  ask_for_huge_pages(region.data_, bytes);
  return region;
}

Region::~Region() {
  if (data_) munmap(data_, bytes_);
}

Region::Region(Region&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Region& Region::operator=(Region&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

uint8_t* Arena::take(size_t bytes) {
  const size_t size = padded(bytes);
  if (size > region_.bytes() - used_) {
    throw std::logic_error("arena of " + std::to_string(region_.bytes()) + " bytes: " + std::to_string(size) +
                           " more asked for, " + std::to_string(used_) + " used");
  }
  used_ += size;
  return region_.data() + used_ - size;
}

void fetch_file_pages(const uint8_t* begin, size_t bytes) {
  const size_t lead = reinterpret_cast<uintptr_t>(begin) % kPage;
  begin -= lead;
  bytes += lead;
#ifdef MADV_COLLAPSE
  madvise(const_cast<uint8_t*>(begin), bytes, MADV_COLLAPSE);  // files in memory; others come as they were written
#endif
#ifdef MADV_POPULATE_READ
  if (madvise(const_cast<uint8_t*>(begin), bytes, MADV_POPULATE_READ) == 0) return;
#endif
  for (size_t at = 0; at < bytes; at += kPage) static_cast<void>(*static_cast<const volatile uint8_t*>(begin + at));
}

void forget_file_pages(const uint8_t* begin, size_t bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(begin) + bytes) / page * page;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);  // advice: failing costs memory
}

}  // namespace octavo
