# How a folder of src/ declares its library and its tests, and the flags that all of Tandem is compiled with.

get_filename_component(TANDEM_ROOT ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)

option(TANDEM_TESTS "Build the tests (needs GoogleTest)" ON)
# Half of a compiler's time goes to headers that the files of a folder share. OFF is better for work on the sources: what is compiled
# again after a change is one file, and a missing include is an error.
option(TANDEM_UNITY "Compile the sources of a folder several at a time: a first build takes less than half the time" ON)
set(TANDEM_UNITY_FILES 24 CACHE STRING "Sources that are compiled together, at most")
option(TANDEM_FUZZ "Build the fuzz targets (needs clang and TANDEM_SANITIZE, as the preset asan has them)" OFF)
set(TANDEM_SANITIZE "" CACHE STRING "Sanitizers to compile with, as for -fsanitize= (empty: none)")

find_program(CCACHE ccache)
if(CCACHE)
  # Paths below the checkout count as relative, so that every checkout on a machine shares one cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${TANDEM_ROOT} CCACHE_NOHASHDIR=1 ${CCACHE})
endif()

add_library(tandem_flags INTERFACE)
target_compile_options(tandem_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror
                                              -Wno-missing-field-initializers
                                              -fno-math-errno -ffp-contract=off)
target_include_directories(tandem_flags INTERFACE ${TANDEM_ROOT}/src)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC collects garbage from 128 MB on, in most units several times. From 1 GB on, a job takes up to 1.3 GB of memory instead of 1.05.
  target_compile_options(tandem_flags INTERFACE --param=ggc-min-heapsize=1000000)
endif()
if(TANDEM_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # It takes a source that a unity file includes for a header.
  target_compile_options(tandem_flags INTERFACE -Wno-subobject-linkage)
endif()
if(TANDEM_SANITIZE)
  target_compile_options(tandem_flags INTERFACE -fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer -g1
                                                -fno-sanitize-recover=all)
  if(TANDEM_SANITIZE MATCHES "address,undefined" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # They take a fifth of a compile, of the kernels two thirds. AddressSanitizer reports the accesses that `null` and `object-size`
    # foresee. Pointers that wrap around and wrong casts in classes with virtual functions are given up here.
    target_compile_options(tandem_flags INTERFACE -fno-sanitize=null,object-size,pointer-overflow,vptr)
  endif()
  target_link_options(tandem_flags INTERFACE -fsanitize=${TANDEM_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # -Wno-tsan: std::atomic_thread_fence inside Asio. The other one reports variants as uninitialized once they are instrumented.
    target_compile_options(tandem_flags INTERFACE -Wno-tsan -Wno-maybe-uninitialized)
  endif()
endif()

function(tandem_add_if_present folder)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt)
    add_subdirectory(${folder})
  endif()
endfunction()

# tandem_unity(list name): in place of the sources in `list`, files that include up to TANDEM_UNITY_FILES of them each: inline functions
# of their headers are then compiled once. A source with flags of its own stays (say so before the target is declared), and so does a
# generated one. Included files are named from src/ on, without the checkout's path, so that all checkouts on a machine share one
# compiler cache.
function(tandem_unity list name)
  if(NOT TANDEM_UNITY)
    return()
  endif()
  set(compiled)
  set(batch)
  foreach(source IN LISTS ${list})
    get_filename_component(path ${source} ABSOLUTE)
    string(FIND ${path} ${PROJECT_BINARY_DIR}/ generated)  # 0: in the build folder
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    get_source_file_property(flags ${source} COMPILE_OPTIONS)
    get_source_file_property(alone ${source} SKIP_UNITY_BUILD_INCLUSION)
    if(definitions OR flags OR alone OR generated EQUAL 0)
      list(APPEND compiled ${source})
    else()
      list(APPEND batch ${source})
    endif()
  endforeach()
  list(LENGTH batch left)
  set(number 0)
  math(EXPR files "(${left} + ${TANDEM_UNITY_FILES} - 1) / ${TANDEM_UNITY_FILES}")
  if(files GREATER 0)
    math(EXPR size "(${left} + ${files} - 1) / ${files}")
  endif()
  while(left GREATER 0)
    list(SUBLIST batch 0 ${size} together)
    set(text)
    foreach(source IN LISTS together)
      get_filename_component(path ${source} ABSOLUTE)
      file(RELATIVE_PATH path ${TANDEM_ROOT}/src ${path})
      string(APPEND text "#include \"${path}\"\n")
      list(REMOVE_ITEM batch ${source})
    endforeach()
    set(file ${CMAKE_CURRENT_BINARY_DIR}/unity/${name}_${number}.cc)
    file(GENERATE OUTPUT ${file} CONTENT "${text}")
    list(APPEND compiled ${file})
    math(EXPR number "${number} + 1")
    list(LENGTH batch left)
  endwhile()
  set(${list} ${compiled} PARENT_SCOPE)
endfunction()

# tandem_library(name [ALONE] [COLD] [COMPUTES] SOURCES a.cc b.cc [DEPS target...]): the static library tandem_<name> of the folder
# src/<name>. ALONE: each source is compiled by itself. COLD: nothing in it runs often, so it has few optimisations, which takes a quarter
# less time: for commands, flags and reports. COMPUTES: tests run there for long, so it is optimised for the sanitizers, too.
function(tandem_library name)
  cmake_parse_arguments(ARG "ALONE;COLD;COMPUTES" "" "SOURCES;DEPS" ${ARGN})
  set(sources ${ARG_SOURCES})
  if(NOT ARG_ALONE)
    tandem_unity(sources ${name})
  endif()
  add_library(tandem_${name} STATIC ${sources})
  target_link_libraries(tandem_${name} PUBLIC tandem_flags ${ARG_DEPS})
  tandem_optimise(tandem_${name} ${ARG_COLD} ${ARG_COMPUTES})
endfunction()

# tandem_optimise(target COLD COMPUTES), both true or false: few optimisations for a cold target. With the sanitizers, whose checks take an
# optimiser most of its time, none, and few for a target that computes.
function(tandem_optimise target cold computes)
  set(few ${cold})
  if(TANDEM_SANITIZE MATCHES "address|thread")
    set(few ${computes})
  endif()
  if(few)
    target_compile_options(${target} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)
  endif()
endfunction()

# tandem_test(name SOURCES a_test.cc [DEPS target...] [NOT_SANITIZED | ONE_THREAD | UNDER_TSAN filter] [UNDER_ASAN filter] [COMPUTES]): the program <name>_test,
# run by ctest as <name>. NOT_SANITIZED: the sanitizers see its code in other tests, and leave it out. ONE_THREAD: it starts no thread, so ThreadSanitizer would find nothing in it and leaves it out. UNDER_TSAN: the
# tests that ThreadSanitizer runs, as for --gtest_filter, because others compute for minutes without a second thread; UNDER_ASAN: likewise
# AddressSanitizer, because others compute for minutes with code that shorter tests run, too. COMPUTES: it runs for long, so it is compiled with few
# optimisations, others with none, in a quarter less time. Only the programs under tests/ compute enough for more.
function(tandem_test name)
  if(NOT TANDEM_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "NOT_SANITIZED;ONE_THREAD;COMPUTES" "UNDER_TSAN;UNDER_ASAN" "SOURCES;DEPS" ${ARGN})
  set(sources ${ARG_SOURCES})
  tandem_unity(sources ${name}_test)
  add_executable(${name}_test ${sources})
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)  # tests/support
  target_link_libraries(${name}_test PRIVATE tandem_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  string(FIND ${CMAKE_CURRENT_SOURCE_DIR}/ ${TANDEM_ROOT}/tests/ hot)  # 0: under tests/
  if(NOT hot EQUAL 0 AND ARG_COMPUTES)
    tandem_optimise(${name}_test TRUE TRUE)
  elseif(NOT hot EQUAL 0)
    target_compile_options(${name}_test PRIVATE -O0)
  elseif(TANDEM_SANITIZE)
    tandem_optimise(${name}_test FALSE TRUE)
  else()
    target_compile_options(${name}_test PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O2>)  # -O3 takes longer to compile
  endif()
  if((ARG_NOT_SANITIZED AND TANDEM_SANITIZE) OR (ARG_ONE_THREAD AND TANDEM_SANITIZE STREQUAL "thread"))
    set_target_properties(${name}_test PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  add_test(NAME ${name} COMMAND ${name}_test)
  set_tests_properties(${name} PROPERTIES TIMEOUT 1500)
  if(hot EQUAL 0 OR ARG_COMPUTES)
    set_tests_properties(${name} PROPERTIES COST 100)  # begins first, so that no processor waits for it at the end
  endif()
  set(filter "")
  if(TANDEM_SANITIZE STREQUAL "thread")
    set(filter "${ARG_UNDER_TSAN}")
  elseif(TANDEM_SANITIZE MATCHES "address")
    set(filter "${ARG_UNDER_ASAN}")
  endif()
  if(filter)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "GTEST_FILTER=${filter}" FAIL_REGULAR_EXPRESSION "Running 0 tests")
  endif()
endfunction()

# tandem_fuzz(name SOURCES a_fuzz.cc [DEPS target...]): the fuzz target <name>_fuzz, part of the target `fuzzers`. Its seeds lie in
# corpus/<name>, its words (optional) in <name>.dict. scripts/fuzz.sh finds and runs it. Its own sources and the libraries of DEPS, which
# hold the parser, are instrumented for coverage; libraries below them are not.
function(tandem_fuzz name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  if(NOT IS_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name})
    message(FATAL_ERROR "fuzz target ${name}: give it seeds in ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name}")
  endif()
  add_executable(${name}_fuzz EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_include_directories(${name}_fuzz PRIVATE ${PROJECT_SOURCE_DIR}/tests)  # tests/fuzz/fuzz.h
  target_link_libraries(${name}_fuzz PRIVATE tandem_flags ${ARG_DEPS})
  target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
  foreach(counted ${name}_fuzz ${ARG_DEPS})
    get_target_property(already ${counted} TANDEM_COUNTED)
    get_target_property(type ${counted} TYPE)
    if(counted MATCHES "^tandem_|_fuzz$" AND NOT already AND NOT type STREQUAL "INTERFACE_LIBRARY")
      target_compile_options(${counted} PRIVATE -fsanitize=fuzzer-no-link)
      set_target_properties(${counted} PROPERTIES TANDEM_COUNTED TRUE)
    endif()
  endforeach()
  set_target_properties(${name}_fuzz PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers)
  endif()
  add_dependencies(fuzzers ${name}_fuzz)
endfunction()
