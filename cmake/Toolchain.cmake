# The language, the warnings and the sanitizers: all that holds for every file of ours.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  string(APPEND CMAKE_CXX_FLAGS_RELEASE " -fvect-cost-model=dynamic")  # at -O2, vectorise as clang does
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELEASE} -g1")

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-fpch-preprocess)  # lets ccache see through precompiled headers
endif()
find_program(LLD ld.lld)
if(LLD)
  add_link_options(-fuse-ld=lld)
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wno-unknown-pragmas)
# Contraction of a*b+c may differ between loops of one file; equal bits need it to be the compiler's last word.
add_compile_options(-ffp-contract=fast -fno-math-errno)

set(DISTBELIEF_COLD -O1)  # for code in which no time is spent when training: to be built quickly
if(DISTBELIEF_SANITIZE)
  add_compile_options(-fsanitize=${DISTBELIEF_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${DISTBELIEF_SANITIZE})
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")  # instrumented code at -O2 takes half as long again to compile
  set(DISTBELIEF_COLD -O0)
  add_compile_definitions(DISTBELIEF_SANITIZED=1)
  if(DISTBELIEF_SANITIZE MATCHES "thread")
    add_compile_definitions(DISTBELIEF_STD_THREADS=1)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      add_compile_options(-Wno-tsan)  # Asio's fences, which TSan does not see; what they order is under mutexes too
    endif()
  endif()
endif()
if(DISTBELIEF_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
