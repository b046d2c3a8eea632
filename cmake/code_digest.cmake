# Writes a digest of the sources that the time of a step depends on, and of FLAGS, the way they are compiled, into OUTPUT, a C++ source,
# if it has changed. Run at every build: cmake -DSOURCE=FOLDER -DFLAGS=TEXT -DOUTPUT=FILE -P code_digest.cmake
set(text "${FLAGS}\n")
foreach(folder kernels device piggyback exec)
  file(GLOB_RECURSE files RELATIVE ${SOURCE}/src ${SOURCE}/src/${folder}/*.cc ${SOURCE}/src/${folder}/*.h ${SOURCE}/src/${folder}/*.cu*)
  list(FILTER files EXCLUDE REGEX "_test\\.cc$")
  list(SORT files)
  foreach(file IN LISTS files)
    file(SHA256 ${SOURCE}/src/${file} digest)
    string(APPEND text "${file} ${digest}\n")
  endforeach()
endforeach()
string(SHA256 digest "${text}")
string(SUBSTRING ${digest} 0 16 digest)
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT "#include \"exec/code_digest.h\"
namespace tandem {
const char* const kCodeDigest = \"${digest}\";
}
")
