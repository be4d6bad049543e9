# Whether the library seriatim_mpi is built: SERIATIM_MPI_FOUND. The core never links MPI.
set(SERIATIM_MPI auto CACHE STRING "The MPI transport: on, off, or auto (where MPI is)")
set_property(CACHE SERIATIM_MPI PROPERTY STRINGS auto on off)
if(NOT SERIATIM_MPI MATCHES "^(auto|on|off|ON|OFF)$")
  message(FATAL_ERROR "SERIATIM_MPI is '${SERIATIM_MPI}'; it is one of on, off and auto")
endif()

set(SERIATIM_MPI_FOUND FALSE)
# A sanitized build is without: what MPI's own libraries leak is not ours to check.
if(NOT SERIATIM_MPI MATCHES "^(off|OFF)$" AND NOT (SERIATIM_MPI STREQUAL "auto" AND SERIATIM_SANITIZE))
  find_package(MPI QUIET COMPONENTS C)
  set(SERIATIM_MPI_FOUND ${MPI_C_FOUND})
  if(NOT MPI_C_FOUND AND NOT SERIATIM_MPI STREQUAL "auto")
    message(FATAL_ERROR "SERIATIM_MPI=${SERIATIM_MPI} needs MPI: scripts/setup mpi (libopenmpi-dev, openmpi-bin)")
  endif()
endif()

# What comes between mpiexec and a program of N ranks in tests: more ranks than cores, as root in a container.
if(SERIATIM_MPI_FOUND AND NOT DEFINED SERIATIM_MPI_LAUNCH)
  execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE version ERROR_QUIET)
  if(version MATCHES "Open MPI|OpenRTE")
    set(SERIATIM_MPI_LAUNCH --oversubscribe --allow-run-as-root CACHE STRING "mpiexec's options in tests")
  else()
    set(SERIATIM_MPI_LAUNCH "" CACHE STRING "mpiexec's options in tests")
  endif()
endif()

# seriatim_mpi_test(NAME RANKS program [arguments...]): one test of ctest under mpiexec.
function(seriatim_mpi_test name ranks)
  add_test(NAME ${name} COMMAND ${MPIEXEC_EXECUTABLE} ${SERIATIM_MPI_LAUNCH} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT 120 LABELS mpi PROCESSORS 2)
endfunction()
