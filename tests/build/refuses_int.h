#pragma once

#include <concepts>

template <class T>
struct Refuses {
  static_assert(std::floating_point<T>, "Refuses is made for \"floating\" numbers");
};
