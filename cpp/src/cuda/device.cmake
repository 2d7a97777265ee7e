# Who answers for the GPU (device.hpp): tamis_device in the product, tamis_shim in tests. Objects,
# not archives: they and tamis_core need one another.
set(has_cuda ${TAMIS_CUDA})
if(TAMIS_CUDA STREQUAL "AUTO")
  set(has_cuda OFF)
  # Tests and sanitizers check the same code by the shim.
  if(TAMIS_PYTHON AND NOT TAMIS_SANITIZE)
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
      set(has_cuda ON)
    endif()
  endif()
endif()
message(STATUS "Tamis: GPU engines ${has_cuda}")

set(host_sources block_bitmap_cuda.cpp ccm.cpp clcb_cuda.cpp columns.cpp hem_cuda.cpp
                 number_batch.cpp ranks_on_device.cpp rows_on_device.cpp spatial_grid_cuda.cpp
                 tuple_key_cuda.cpp)
list(TRANSFORM host_sources PREPEND cpp/src/cuda/)

if(TAMIS_CUDA STREQUAL "SHIM")
  set(has_cuda OFF)
  add_library(tamis_device OBJECT EXCLUDE_FROM_ALL ${host_sources} cpp/src/cuda/shim/kernels.cpp
                                                   cpp/src/cuda/shim/runtime.cpp)
elseif(has_cuda)
  # For each generation since Ampere, and PTX for those to come.
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 120-real 120-virtual)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  enable_language(CUDA)
  find_package(CUDAToolkit 12.8 REQUIRED)
  add_library(tamis_device OBJECT EXCLUDE_FROM_ALL ${host_sources} cpp/src/cuda/runtime_cuda.cpp
                                                   cpp/src/cuda/kernels.cu)
  # As -ffp-contract=off: or machines would disagree about points on a border.
  target_compile_options(tamis_device PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false>)
  target_link_libraries(tamis_device PUBLIC CUDA::cudart_static)
else()
  add_library(tamis_device OBJECT EXCLUDE_FROM_ALL cpp/src/cuda/device_stub.cpp)
endif()

if(TAMIS_TESTS)
  add_library(tamis_shim OBJECT ${host_sources} cpp/src/cuda/shim/kernels.cpp
                                cpp/src/cuda/shim/runtime.cpp)
endif()

foreach(device tamis_device tamis_shim)
  if(TARGET ${device})
    target_include_directories(${device} PRIVATE cpp/include cpp/src)
    target_compile_options(${device} PRIVATE
                           "$<$<COMPILE_LANGUAGE:CXX>:${TAMIS_FLAGS};${TAMIS_WARNINGS}>")
  endif()
endforeach()

if(TAMIS_TESTS)
  # What measures on a GPU, by the shim: to see that it runs; its times mean nothing.
  file(GLOB bench_sources CONFIGURE_DEPENDS cpp/bench/gpu/*.cpp)
  add_executable(tamis_shim_bench EXCLUDE_FROM_ALL ${bench_sources})
  target_link_libraries(tamis_shim_bench PRIVATE tamis_core tamis_shim)
  target_compile_options(tamis_shim_bench PRIVATE ${TAMIS_WARNINGS})
endif()

if(TAMIS_TESTS AND has_cuda)
  # The same tests on a GPU, and the measurements.
  add_executable(tamis_gpu_tests EXCLUDE_FROM_ALL cpp/tests/cuda/gpu_test.cpp)
  target_link_libraries(tamis_gpu_tests PRIVATE tamis_test_objects tamis_device)
  add_executable(tamis_gpu_bench EXCLUDE_FROM_ALL ${bench_sources})
  target_link_libraries(tamis_gpu_bench PRIVATE tamis_core tamis_device)
endif()
