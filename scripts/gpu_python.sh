#!/usr/bin/env bash
# The suite gpu on a machine without network, which has a GPU, nvcc, CMake, Ninja, and a Python with
# NumPy and its headers, but neither PyArrow nor pip.
#
#   scripts/gpu_python.sh fetch 312     beforehand, elsewhere: wheels for Python 3.12, 53 MiB, to
#                                       build/gpu-wheels, which has to be carried there
#   scripts/gpu_python.sh build         there: the package in build/gpu-site, tamis_gpu_bench
#   scripts/gpu_python.sh run [option]  there: `tamis bench run --suite gpu`, resumed if it was cut
#                                       off, in bench-results/gpu
#   scripts/gpu_python.sh pack FILE     there: what it wrote, as one file, for machines that give few back
#
# TAMIS_GPU_ARCHITECTURES=90-real builds for one generation alone, which is quicker. TAMIS_COMMIT says
# what was built, where the history of the sources is not there.
set -euo pipefail
cd "$(dirname "$0")/.."
wheels=build/gpu-wheels
site=$PWD/build/gpu-site
python=${PYTHON:-python3}

case ${1:-} in
fetch)
  "$python" -m pip download --quiet --no-deps --only-binary=:all: --python-version "${2:?the version of Python there, as 312}" \
    --platform manylinux_2_28_x86_64 --dest "$wheels" pyarrow
  "$python" -m pip download --quiet --no-deps --dest "$wheels" "nanobind>=2.9"
  du -ch "$wheels"/*.whl | tail -1
  ;;
build)
  rm -rf "$site" && mkdir -p "$site"
  for wheel in "$wheels"/*.whl; do "$python" -m zipfile -e "$wheel" "$site"; done
  PYTHONPATH=$site cmake -G Ninja -S . -B build/gpu -DTAMIS_TESTS=ON -DTAMIS_PYTHON=ON -DTAMIS_CUDA=ON \
    -DPython_EXECUTABLE="$(command -v "$python")" \
    ${TAMIS_GPU_ARCHITECTURES:+-DCMAKE_CUDA_ARCHITECTURES=$TAMIS_GPU_ARCHITECTURES} > build/gpu-cmake.log
  cmake --build build/gpu --target _core tamis_gpu_bench > build/gpu-build.log || { tail -50 build/gpu-build.log; exit 1; }
  cp -r src/tamis "$site/" && rm -f "$site"/tamis/_core*.so && cp build/gpu/_core*.so "$site/tamis/"
  # What importlib.metadata asks for.
  version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml | head -1)
  mkdir -p "$site/tamis-$version.dist-info"
  printf 'Metadata-Version: 2.1\nName: tamis\nVersion: %s\n' "$version" > "$site/tamis-$version.dist-info/METADATA"
  PYTHONPATH=$site "$python" -c 'import tamis, tamis.gpu; print("tamis", tamis.__version__, tamis.gpu.unavailable() or "with a GPU")'
  ;;
run)
  PYTHONPATH=$site exec "$python" -m tamis.cli bench run --suite gpu --name gpu "${@:2}"
  ;;
pack)
  tar -cf "${2:?a file}" -C "${3:-bench-results}" gpu
  ;;
*)
  sed -n '2,16s/^# \{0,1\}//p' "$0"
  exit 2
  ;;
esac
