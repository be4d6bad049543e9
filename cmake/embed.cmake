# cmake -DOUT=FILE.cc -DFILES="name=path;..." -P embed.cmake: a source file with one function per file, name(), that
# gives its bytes. The functions are those of cli/page_assets.hpp.
set(text "#include \"page_assets.hpp\"\n\nnamespace seriatim::cli {\n\n")
foreach(item ${FILES})
  string(REGEX MATCH "^([a-z_]+)=(.*)$" matched "${item}")
  set(name ${CMAKE_MATCH_1})
  file(READ "${CMAKE_MATCH_2}" hex HEX)
  string(LENGTH "${hex}" digits)
  math(EXPR bytes "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," list "${hex}")
  string(APPEND text "static constexpr unsigned char ${name}_bytes[] = {${list}};\n"
    "std::string_view ${name}() { return {reinterpret_cast<const char*>(${name}_bytes), ${bytes}}; }\n\n")
endforeach()
file(WRITE "${OUT}" "${text}}  // namespace seriatim::cli\n")
