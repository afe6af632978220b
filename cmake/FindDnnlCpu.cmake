# DNNL::dnnl from Debian's libdnnl-dev. Its own CMake package asks for OpenCL headers, which a CPU build never touches.
include(FindPackageHandleStandardArgs)
find_path(DNNL_INCLUDE_DIR dnnl.hpp)
find_library(DNNL_LIBRARY dnnl)
find_package_handle_standard_args(DnnlCpu REQUIRED_VARS DNNL_LIBRARY DNNL_INCLUDE_DIR)
if(DnnlCpu_FOUND AND NOT TARGET DNNL::dnnl)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
endif()
