#!/usr/bin/env bash
# What a machine with an NVIDIA GPU is needed for: the core's tests on the GPU, the same kernels under
# compute-sanitizer, and the papers' measurements. Needs nvcc >= 12.8, CMake >= 3.26, Ninja; no
# network. Usage: scripts/gpu.sh [folder for logs]
set -euo pipefail
cd "$(dirname "$0")/.."
logs=${1:-build/gpu-logs}
mkdir -p "$logs"
{ date -u +%F; nvidia-smi --query-gpu=name,driver_version --format=csv,noheader; nvcc --version | tail -1
  lscpu | grep "Model name"; } | tee "$logs/machine.txt"

cmake -G Ninja -S . -B build/gpu -DTAMIS_TESTS=ON -DTAMIS_PYTHON=OFF -DTAMIS_CUDA=ON > "$logs/cmake.log"
cmake --build build/gpu --target tamis_gpu_tests tamis_gpu_bench tamis_translator_bench > "$logs/build.log" || { tail -50 "$logs/build.log"; exit 1; }

build/gpu/tamis_gpu_tests block_bitmap_cuda ccm clcb gpu_ hem ocm move spatial_grid_cuda translator tuple_key_cuda 2>&1 | tee "$logs/tests.txt"
build/gpu/tamis_gpu_bench | tee "$logs/bench.txt"
build/gpu/tamis_translator_bench | tee "$logs/translator.txt"
# Small tests that start every kernel: a sanitizer is some hundred times slower.
for tool in memcheck racecheck initcheck; do
  echo "compute-sanitizer $tool"
  timeout 100 compute-sanitizer --tool "$tool" --error-exitcode 1 build/gpu/tamis_gpu_tests \
    block_bitmap_cuda_matches block_bitmap_cuda_leaves block_bitmap_cuda_answers_for \
    ccm_counts ccm_finds ccm_answers_for clcb_cuda_answers_where clcb_cuda_counts clcb_cuda_needs hem_cuda_brings hem_cuda_answers_for \
    spatial_grid_cuda_moves_all spatial_grid_cuda_takes spatial_grid_cuda_loses \
    tuple_key_cuda_finds tuple_key_cuda_leaves tuple_key_cuda_answers_for \
    2>&1 | tee "$logs/$tool.txt" | tail -4
done
