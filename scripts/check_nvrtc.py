"""Compiles all kernels with another CUDA than nvcc's: its NVRTC, as PyPI has it.

    pip install --target FOLDER nvidia-cuda-nvrtc-cu12
    python scripts/check_nvrtc.py FOLDER

NVRTC brings no standard library; the kernels need of it nothing but integers.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

ARCHITECTURES = (80, 90, 120)
# With bounds, whose arguments may be calls.
BOUNDS = r"__launch_bounds__\((?:[^()]|\([^()]*\))*\)"
KERNEL = re.compile(rf"__global__ void(?: {BOUNDS})?\s+(\w+)\(")
ROOT = Path(__file__).resolve().parent.parent
HEADERS = {
    "cstddef": """
        #pragma once
        namespace std { using size_t = decltype(sizeof(0)); enum class byte : unsigned char {}; }
        using std::size_t;
        #define offsetof(type, member) reinterpret_cast<size_t>(&static_cast<type*>(0)->member)
        #define __builtin_floor floor
    """,
    "cstdint": """
        #pragma once
        namespace std {
        using int8_t = signed char; using uint8_t = unsigned char;
        using int16_t = short; using uint16_t = unsigned short;
        using int32_t = int; using uint32_t = unsigned;
        using int64_t = long; using uint64_t = unsigned long;
        using uintptr_t = unsigned long;
        }
    """,
}


def compile_kernels(nvrtc: ctypes.CDLL, architecture: int) -> bytes:
    """The code for one architecture; says what is wrong and exits if there is none."""
    program = ctypes.c_void_p()
    texts = (ctypes.c_char_p * len(HEADERS))(*(text.encode() for text in HEADERS.values()))
    names = (ctypes.c_char_p * len(HEADERS))(*(name.encode() for name in HEADERS))
    source = (ROOT / "cpp/src/cuda/kernels.cu").read_bytes()
    failed = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source, b"kernels.cu", len(HEADERS), texts, names
    )
    folders = ("cpp/include", "cpp/src", "cpp/src/cuda")
    options = [f"--gpu-architecture=sm_{architecture}", "--std=c++20", "--fmad=false"]
    options += ["-default-device"]  # what starts kernels is read as code of the device, too
    options += [f"--include-path={ROOT / folder}" for folder in folders]
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = failed or nvrtc.nvrtcCompileProgram(program, len(options), given)
    if failed:
        n_bytes = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(n_bytes))
        log = ctypes.create_string_buffer(n_bytes.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        sys.exit(f"NVRTC for sm_{architecture}:\n{log.value.decode()}")
    n_bytes = ctypes.c_size_t()
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(n_bytes))
    code = ctypes.create_string_buffer(n_bytes.value)
    nvrtc.nvrtcGetCUBIN(program, code)
    return code.raw


def main() -> None:
    [library] = Path(sys.argv[1]).glob("**/libnvrtc.so.*")
    nvrtc = ctypes.CDLL(str(library))
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    declared = set()
    for path in (ROOT / "cpp/src/cuda").glob("*.hpp"):
        declared |= set(KERNEL.findall(path.read_text()))
    for architecture in ARCHITECTURES:
        code = compile_kernels(nvrtc, architecture)
        if missing := sorted(name for name in declared if name.encode() not in code):
            sys.exit(f"NVRTC for sm_{architecture} left out {', '.join(missing)}")
    kinds = ", ".join(f"sm_{each}" for each in ARCHITECTURES)
    print(f"CUDA {major.value}.{minor.value}: {len(declared)} kernels compile for {kinds}")


if __name__ == "__main__":
    main()
