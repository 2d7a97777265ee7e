#!/usr/bin/env bash
# What a machine with an NVIDIA GPU is needed for: the core's tests on the GPU, the measurements, and
# the same kernels under compute-sanitizer. Needs nvcc >= 12.8, CMake >= 3.26, Ninja; no network and
# no Python. Usage: scripts/gpu.sh [folder for logs] [build | tests | bench | sanitizers]...
#
# The measurements are lines of JSON in bench.jsonl, which `tamis bench run --figures` reads; on a
# machine with Python, scripts/gpu_python.sh does more.
set -euo pipefail
cd "$(dirname "$0")/.."
logs=${1:-build/gpu-logs}
steps=${*:2}
steps=${steps:-tests bench sanitizers}
mkdir -p "$logs"
gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader --id=0 | sed 's/, /, driver /')
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
{ date -u +%F; echo "$gpu"; nvcc --version | tail -1; echo "$cpu"; } | tee "$logs/machine.txt"

cmake -G Ninja -S . -B build/gpu -DTAMIS_TESTS=ON -DTAMIS_PYTHON=OFF -DTAMIS_CUDA=ON \
  ${TAMIS_GPU_ARCHITECTURES:+-DCMAKE_CUDA_ARCHITECTURES=$TAMIS_GPU_ARCHITECTURES} > "$logs/cmake.log"
cmake --build build/gpu --target tamis_gpu_tests tamis_gpu_bench > "$logs/build.log" || { tail -50 "$logs/build.log"; exit 1; }

for step in $steps; do case $step in
build) ;;
tests)
  build/gpu/tamis_gpu_tests block_bitmap_cuda ccm clcb event_columns gpu_ hem ocm move spatial_grid_cuda translator tuple_key_cuda 2>&1 | tee "$logs/tests.txt"
  ;;
bench)
  commit=$(git rev-parse HEAD 2> /dev/null || true)
  printf '{"figure": "machine", "gpu": "%s", "cpu": "%s", "cores": %s, "date": "%s", "commit": "%s", "command": "build/gpu/tamis_gpu_bench"}\n' \
    "$gpu" "$cpu" "$(nproc)" "$(date -u +%FT%TZ)" "$commit" > "$logs/bench.jsonl"
  build/gpu/tamis_gpu_bench | tee -a "$logs/bench.jsonl"
  ;;
sanitizers)
  # Small tests that start every kernel: a sanitizer is some hundred times slower.
  for tool in memcheck racecheck initcheck; do
    echo "compute-sanitizer $tool"
    timeout 100 compute-sanitizer --tool "$tool" --error-exitcode 1 build/gpu/tamis_gpu_tests \
      block_bitmap_cuda_matches block_bitmap_cuda_leaves block_bitmap_cuda_answers_for \
      ccm_counts ccm_finds ccm_answers_for event_columns clcb_cuda_answers_where clcb_cuda_counts clcb_cuda_needs hem_cuda_brings hem_cuda_answers_for \
      spatial_grid_cuda_moves_all spatial_grid_cuda_takes spatial_grid_cuda_loses \
      tuple_key_cuda_finds tuple_key_cuda_leaves tuple_key_cuda_answers_for \
      2>&1 | tee "$logs/$tool.txt" | tail -4
  done
  ;;
*)
  echo "a step must be build, tests, bench or sanitizers, not $step" >&2
  exit 2
  ;;
esac; done
