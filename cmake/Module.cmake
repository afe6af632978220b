# distbelief_module(<folder> [THREADED] [COLD] [SHARDS n] [MODULES a b] [LIBRARIES X::Y] [PRIVATE_LIBRARIES X::Y])
#
# One static library for one folder of src/. MODULES are those of ours it may include: the link list is the include
# rule, and tests/include_rule_test.py compares it with the table in ARCHITECTURE.md. Sources are all *.cc below the
# folder, and what protoc makes of its *.proto; *_test.cc become the test program <folder>_test; *_fuzz.cc one libFuzzer
# target each. THREADED: its tests run threads, and so under ThreadSanitizer too. COLD: no time is
# spent in it when training, so it is compiled for quick building. SHARDS: its tests take long, and run as so many tests beside
# each other.
add_custom_target(test_programs)
add_custom_target(threaded_test_programs)
add_custom_target(fuzzers)

set(DISTBELIEF_COSTLY_HEADERS <dnnl.hpp> <fmt/format.h> <algorithm> <filesystem> <functional> <map> <memory> <optional>
    <span> <string> <unordered_map> <vector>)
if(DISTBELIEF_COLD STREQUAL "-O0")
  file(CONFIGURE OUTPUT cold_headers.cc CONTENT "\n")
  add_library(cold_headers STATIC EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/cold_headers.cc)
  target_link_libraries(cold_headers PRIVATE fmt::fmt DNNL::dnnl)
  target_compile_options(cold_headers PRIVATE ${DISTBELIEF_COLD})
  target_precompile_headers(cold_headers PRIVATE ${DISTBELIEF_COSTLY_HEADERS})
endif()

# distbelief_test_program(<target> <source>... MODULES a b [LIBRARIES X::Y]): a program of GoogleTest. Tests are compiled
# for quick building, which what they test is not; the headers that cost the most are read once for all of them.
set(DISTBELIEF_TEST_OPTIONS -O0)
if(DISTBELIEF_SANITIZE MATCHES "undefined")
  list(APPEND DISTBELIEF_TEST_OPTIONS -fno-sanitize=undefined)  # what they test has it; they compile in half the time
endif()
if(DISTBELIEF_TESTS)
  file(CONFIGURE OUTPUT test_headers.cc CONTENT "int main() {}\n")
  add_executable(test_headers EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/test_headers.cc)
  target_link_libraries(test_headers PRIVATE fmt::fmt DNNL::dnnl GTest::gtest GTest::gmock)
  target_compile_options(test_headers PRIVATE ${DISTBELIEF_TEST_OPTIONS})
  target_precompile_headers(test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h> <dnnl.hpp> <fmt/format.h> <algorithm>
                            <filesystem> <functional> <map> <memory> <optional> <span> <string> <thread>
                            <unordered_map> <vector>)
endif()

function(distbelief_test_program target)
  cmake_parse_arguments(ARG "" "" "MODULES;LIBRARIES" ${ARGN})
  add_executable(${target} ${ARG_UNPARSED_ARGUMENTS})
  foreach(module ${ARG_MODULES})
    target_link_libraries(${target} PRIVATE distbelief::${module})
  endforeach()
  target_link_libraries(${target} PRIVATE ${ARG_LIBRARIES} GTest::gtest_main GTest::gmock)
  target_compile_definitions(${target} PRIVATE TEST_DATA_DIR="${PROJECT_SOURCE_DIR}/tests/data")
  target_compile_options(${target} PRIVATE ${DISTBELIEF_TEST_OPTIONS})
  target_precompile_headers(${target} REUSE_FROM test_headers)
  if(DISTBELIEF_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
endfunction()

function(distbelief_module name)
  cmake_parse_arguments(ARG "THREADED;COLD" "SHARDS" "MODULES;LIBRARIES;PRIVATE_LIBRARIES" ${ARGN})
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cc)
  set(tests ${sources})
  set(fuzzers ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cc$")
  file(GLOB_RECURSE messages CONFIGURE_DEPENDS ${folder}/*.proto)

  add_library(distbelief_${name} STATIC ${sources})
  add_library(distbelief::${name} ALIAS distbelief_${name})
  set_target_properties(distbelief_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(distbelief_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
    $<INSTALL_INTERFACE:include> $<INSTALL_INTERFACE:include/distbelief>)
  target_link_libraries(distbelief_${name} PUBLIC ${ARG_LIBRARIES} PRIVATE ${ARG_PRIVATE_LIBRARIES})
  foreach(module ${ARG_MODULES})
    target_link_libraries(distbelief_${name} PUBLIC distbelief::${module})
  endforeach()
  if(messages)
    # The code is protoc's: our warnings are not for it. Nobody includes it but the folder itself.
    set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated)
    file(MAKE_DIRECTORY ${generated})
    protobuf_generate(TARGET distbelief_${name} LANGUAGE cpp PROTOS ${messages} OUT_VAR generated_files
                      IMPORT_DIRS ${CMAKE_CURRENT_SOURCE_DIR} PROTOC_OUT_DIR ${generated})
    set_source_files_properties(${generated_files} PROPERTIES COMPILE_OPTIONS -w SKIP_PRECOMPILE_HEADERS ON
                                SKIP_UNITY_BUILD_INCLUSION ON)
    target_include_directories(distbelief_${name} SYSTEM PUBLIC $<BUILD_INTERFACE:${generated}>)
    target_link_libraries(distbelief_${name} PUBLIC protobuf::libprotobuf)
  endif()
  # The headers that cost the most to read are read once, by tensor, for all who stand above it; once more without
  # optimization where cold code has none.
  if(name STREQUAL "tensor")
    target_precompile_headers(distbelief_tensor PRIVATE ${DISTBELIEF_COSTLY_HEADERS})
  elseif(ARG_COLD AND TARGET cold_headers)
    target_precompile_headers(distbelief_${name} REUSE_FROM cold_headers)
  elseif(TARGET distbelief_tensor)
    target_precompile_headers(distbelief_${name} REUSE_FROM distbelief_tensor)
  endif()
  if(ARG_COLD)
    target_compile_options(distbelief_${name} PRIVATE ${DISTBELIEF_COLD})
  endif()
  if(DISTBELIEF_UNITY)
    set_target_properties(distbelief_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
  set_property(GLOBAL APPEND PROPERTY DISTBELIEF_MODULES distbelief_${name})

  if(DISTBELIEF_TESTS AND tests)
    distbelief_test_program(${name}_test ${tests} MODULES ${name})
    set(parts)
    if(ARG_SHARDS)
      foreach(shard RANGE 1 ${ARG_SHARDS})
        math(EXPR index "${shard} - 1")
        list(APPEND parts ${name}_${shard})
        add_test(NAME ${name}_${shard} COMMAND ${name}_test)
        set_tests_properties(${name}_${shard} PROPERTIES
                             ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
      endforeach()
    else()
      set(parts ${name})
      add_test(NAME ${name} COMMAND ${name}_test)
    endif()
    add_dependencies(test_programs ${name}_test)
    if(ARG_THREADED)
      set_tests_properties(${parts} PROPERTIES LABELS threads)
      add_dependencies(threaded_test_programs ${name}_test)
    endif()
  endif()
  if(DISTBELIEF_FUZZ)
    foreach(fuzzer ${fuzzers})
      get_filename_component(target ${fuzzer} NAME_WE)
      add_executable(${target} ${fuzzer})
      target_link_libraries(${target} PRIVATE distbelief::${name})
      target_link_options(${target} PRIVATE -fsanitize=fuzzer)
      add_dependencies(fuzzers ${target})
    endforeach()
  endif()
endfunction()
