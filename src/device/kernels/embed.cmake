# cmake -DPARTS=a;b -DOUT=file.cc -P embed.cmake: the parts' text as one C++ constant; also OUT with .cl for other
# compilers.
set(text "")
set(literals "")
foreach(part IN LISTS PARTS)
  file(READ ${part} one)
  string(APPEND text "${one}")
  string(APPEND literals "R\"kernels(${one})kernels\"\n")
endforeach()
file(WRITE ${OUT} "#include \"device/kernel_text.hpp\"\n\nnamespace seriatim::device {\n\n"
  "const char* const kKernelText =\n${literals};\n\n}  // namespace seriatim::device\n")
string(REGEX REPLACE "\\.cc$" ".cl" plain ${OUT})
file(WRITE ${plain} "${text}")
