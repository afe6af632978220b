# MPI::chosen, the library that DISTBELIEF_MPI names, and DISTBELIEF_MPI_FOUND: openmpi, mpich or off.
#
# Both may be installed side by side, and what a plain `mpicc` or `mpirun` is then depends on Debian's alternatives. So the
# wrapper is asked for by its full name, and mpi.h tells whose it is. The launcher of the same library is
# DISTBELIEF_MPI_LAUNCHER.
set(DISTBELIEF_MPI auto CACHE STRING "openmpi, mpich, off, or auto: Open MPI where it is installed")
set_property(CACHE DISTBELIEF_MPI PROPERTY STRINGS auto openmpi mpich off)

set(DISTBELIEF_MPI_FOUND off)
if(DISTBELIEF_MPI STREQUAL "mpich")
  set(wrappers mpicc.mpich mpicc)
  set(launchers mpiexec.hydra mpirun.mpich)
  set(mark MPICH_VERSION)
elseif(DISTBELIEF_MPI MATCHES "^(auto|openmpi)$")
  set(wrappers mpicc.openmpi mpicc)
  set(launchers mpirun.openmpi orterun mpirun)
  set(mark OMPI_MAJOR_VERSION)
elseif(NOT DISTBELIEF_MPI STREQUAL "off")
  message(FATAL_ERROR "DISTBELIEF_MPI is '${DISTBELIEF_MPI}'; expected openmpi, mpich, off or auto")
endif()

if(NOT DISTBELIEF_MPI STREQUAL "off")
  find_program(DISTBELIEF_MPI_WRAPPER NAMES ${wrappers})
  find_program(DISTBELIEF_MPI_LAUNCHER NAMES ${launchers})
  if(DISTBELIEF_MPI_WRAPPER)
    set(MPI_C_COMPILER ${DISTBELIEF_MPI_WRAPPER})
    set(MPI_CXX_SKIP_MPICXX ON)
    find_package(MPI QUIET COMPONENTS C)
    find_path(DISTBELIEF_MPI_HEADER mpi.h PATHS ${MPI_C_INCLUDE_DIRS} NO_DEFAULT_PATH)
    if(MPI_C_FOUND AND DISTBELIEF_MPI_HEADER)
      file(STRINGS ${DISTBELIEF_MPI_HEADER}/mpi.h lines REGEX "define +${mark}")
      if(lines AND DISTBELIEF_MPI STREQUAL "mpich")
        set(DISTBELIEF_MPI_FOUND mpich)
      elseif(lines)
        set(DISTBELIEF_MPI_FOUND openmpi)
      endif()
    endif()
  endif()
  if(DISTBELIEF_MPI_FOUND STREQUAL "off" AND NOT DISTBELIEF_MPI STREQUAL "auto")
    message(FATAL_ERROR "DISTBELIEF_MPI=${DISTBELIEF_MPI}, but its mpicc or mpi.h is not there (packages.txt names the "
                        "package); after a change of DISTBELIEF_MPI use a new build folder")
  endif()
endif()
if(NOT DISTBELIEF_MPI_FOUND STREQUAL "off")
  add_library(MPI::chosen INTERFACE IMPORTED)
  set_target_properties(MPI::chosen PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${MPI_C_INCLUDE_DIRS}"
                        INTERFACE_LINK_LIBRARIES "${MPI_C_LIBRARIES}")
endif()
message(STATUS "MPI: ${DISTBELIEF_MPI_FOUND}")
