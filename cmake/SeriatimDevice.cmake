# Which backends the device module is built with: SERIATIM_DEVICE_BACKEND is their list, or empty. Both find their
# libraries at run time; OpenCL needs its headers to build, CUDA needs nothing.
set(SERIATIM_DEVICE auto CACHE
  STRING "Device backends: opencl, cuda, all, off, or auto (cuda, and opencl where its headers are)")
set_property(CACHE SERIATIM_DEVICE PROPERTY STRINGS auto opencl cuda all off)
if(NOT SERIATIM_DEVICE MATCHES "^(auto|opencl|cuda|all|off)$")
  message(FATAL_ERROR "SERIATIM_DEVICE is '${SERIATIM_DEVICE}'; it is one of opencl, cuda, all, off and auto")
endif()

set(SERIATIM_DEVICE_BACKEND "")
if(NOT SERIATIM_DEVICE STREQUAL "off" AND EXISTS ${PROJECT_SOURCE_DIR}/src/device)
  if(SERIATIM_DEVICE MATCHES "^(auto|opencl|all)$")
    find_path(SERIATIM_OPENCL_HEADERS CL/cl.h)
    if(SERIATIM_OPENCL_HEADERS)
      list(APPEND SERIATIM_DEVICE_BACKEND opencl)
    elseif(NOT SERIATIM_DEVICE STREQUAL "auto")
      message(FATAL_ERROR
        "SERIATIM_DEVICE=${SERIATIM_DEVICE} needs OpenCL's headers: scripts/setup device (opencl-headers)")
    endif()
  endif()
  if(SERIATIM_DEVICE MATCHES "^(auto|cuda|all)$")
    list(APPEND SERIATIM_DEVICE_BACKEND cuda)
  endif()
endif()
