# The C++ library: cmake --install, then find_package(distbelief) and distbelief::distbelief.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(modules GLOBAL PROPERTY DISTBELIEF_MODULES)
add_library(distbelief_all INTERFACE)
add_library(distbelief::distbelief ALIAS distbelief_all)
set_target_properties(distbelief_all PROPERTIES EXPORT_NAME distbelief)
target_link_libraries(distbelief_all INTERFACE ${modules})

install(TARGETS distbelief_all ${modules} EXPORT distbelief ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS distbelief_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/distbelief
        FILES_MATCHING PATTERN "*.h" PATTERN "*_fuzz.h" EXCLUDE PATTERN "test_*.h" EXCLUDE PATTERN "*_contract.h" EXCLUDE)
install(EXPORT distbelief NAMESPACE distbelief:: FILE distbeliefTargets.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/distbelief)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/distbeliefConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/distbeliefConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/distbelief)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/distbeliefConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/distbeliefConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/distbeliefConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindDnnlCpu.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/distbelief)
