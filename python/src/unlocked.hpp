// Work without the interpreter's lock.
#pragma once

#include <Python.h>
#include <unistd.h>

namespace seriatim::python {

// Lets go of the interpreter's lock until its end. Takes the place of nb::gil_scoped_release, which CPython before 3.14
// makes abort the process: when the interpreter ends, it ends a daemon thread that asks for the lock by unwinding it,
// and a destructor lets no unwinding pass. Here such a thread waits for the process to end instead, as it does
// from 3.14 on.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) ::pause();
    }
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace seriatim::python
