// Pointers as FlashInfer takes them: constant arguments, too, are pointers to variables.
#pragma once

#include "base/element_type.h"

namespace tandem::device::cuda::flash {

template <class T>
T* mutably(const T* data) {
  return const_cast<T*>(data);
}
// Element: a library's type for bf16.
template <class Element>
Element* elements(const BFloat16* data) {
  static_assert(sizeof(BFloat16) == sizeof(Element));
  return reinterpret_cast<Element*>(mutably(data));
}

}  // namespace tandem::device::cuda::flash
