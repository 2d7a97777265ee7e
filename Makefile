# Everything runs in .venv, which `make setup` creates. Needed: git, make, a C++20 compiler and
# Python >= 3.11; CMake and Ninja come from PyPI.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
NATIVE := CMakeLists.txt pyproject.toml $(shell find cpp -name '*.cpp' -o -name '*.hpp' -o -name '*.h')
CMAKE := $(abspath $(BIN))/cmake -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DTAMIS_PYTHON=OFF
PYTEST := $(BIN)/python -m pytest -q

.PHONY: setup demo test check wheel format clean test-core test-python \
        check-style check-types check-sanitizers check-python-asan check-fuzz check-oldest check-portable

setup: $(VENV)/.installed

$(VENV)/bin/ninja: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) cmake ninja "nanobind>=2.9" "scikit-build-core>=1.0"
	touch $@

$(VENV)/.installed: $(VENV)/bin/ninja $(NATIVE)
	PATH="$(abspath $(BIN)):$$PATH" $(PIP) --no-build-isolation --editable ".[test]"
	touch $@

demo: setup
	$(BIN)/python examples/demo.py

# --- make test: what everybody runs, within 10 minutes on 2 cores (core 2, python 6) -------------
test: test-core test-python

test-core: setup
	$(CMAKE) -S . -B build/tests -DTAMIS_TESTS=ON > /dev/null
	$(BIN)/cmake --build build/tests
	build/tests/tamis_tests

test-python: setup
	$(PYTEST)

# --- make check: what is slower, within 35 minutes -----------------------------------------------
check: check-style check-types check-sanitizers check-python-asan check-fuzz check-oldest check-portable

$(VENV)/.checkers: $(VENV)/.installed
	$(PIP) "clang-format>=18" "mypy>=1.11" "ruff>=0.6"
	touch $@

check-style: $(VENV)/.checkers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files 'cpp/*.cpp' 'cpp/*.hpp' 'cpp/*.h')

check-types: $(VENV)/.checkers
	$(BIN)/mypy

# The core's own tests, which use every thread, encoder and engine, under each sanitizer.
check-sanitizers: setup
	for sanitizer in address,undefined thread; do \
	  $(CMAKE) -S . -B build/$${sanitizer%%,*} -DTAMIS_TESTS=ON -DTAMIS_SANITIZE=$$sanitizer > /dev/null \
	  && $(BIN)/cmake --build build/$${sanitizer%%,*} && build/$${sanitizer%%,*}/tamis_tests || exit 1; \
	done

# The Python module under ASan and UBSan. Leaks are the interpreter's own, so they are not counted.
check-python-asan: setup
	$(CMAKE) -S . -B build/python-asan -DTAMIS_PYTHON=ON -DTAMIS_SANITIZE=address,undefined \
	  -DPython_EXECUTABLE=$(abspath $(BIN))/python > /dev/null
	$(BIN)/cmake --build build/python-asan --target _core
	rm -rf build/asan-package && mkdir -p build/asan-package
	cp -r src/tamis build/asan-package/tamis && rm -f build/asan-package/tamis/_core*.so
	cp build/python-asan/_core*.so build/asan-package/tamis/
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=build/asan-package \
	  $(PYTEST) -p no:cacheprovider tests/test_cases.py tests/test_language.py tests/test_encoders.py \
	  tests/test_matcher.py tests/test_conformance.py

# Coverage-guided, each for FUZZ_SECONDS, under ASan and UBSan.
FUZZ_SECONDS ?= 60
CLANGXX ?= $(shell command -v clang++ || command -v clang++-14)
check-fuzz: setup
	@test -n "$(CLANGXX)" || { echo "check-fuzz needs clang++ with libFuzzer (Debian: clang libclang-rt-dev); .ci/run installs it"; exit 1; }
	$(CMAKE) -S . -B build/fuzz -DCMAKE_CXX_COMPILER=$(CLANGXX) -DTAMIS_FUZZERS=ON \
	  -DTAMIS_SANITIZE=address,undefined,fuzzer-no-link > /dev/null
	$(BIN)/cmake --build build/fuzz
	for target in parser json arrow; do \
	  mkdir -p build/fuzz/corpus-$$target; \
	  build/fuzz/$${target}_fuzz -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=10 -rss_limit_mb=4096 \
	    -print_final_stats=1 -verbosity=0 -artifact_prefix=build/fuzz/ build/fuzz/corpus-$$target cpp/fuzz/seeds/$$target || exit 1; \
	done

# The oldest dependencies that pyproject.toml allows.
check-oldest: setup
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet --disable-pip-version-check cmake ninja "nanobind>=2.9" "scikit-build-core>=1.0" \
	  numpy==1.26.0 pyarrow==15.0.0 pandas==2.1.1 matplotlib==3.8.0 hypothesis==6.100.0 pytest==8.0.0
	PATH="$(abspath .venv-oldest/bin):$$PATH" .venv-oldest/bin/pip install --quiet --disable-pip-version-check \
	  --no-build-isolation -Cbuild-dir=build/oldest ".[test]"
	cd tests && ../.venv-oldest/bin/python -m pytest -q -p no:cacheprovider

# Other machines: the baseline on a CPU of 2008, and another architecture.
check-portable: test-core
	@command -v qemu-x86_64 > /dev/null || { echo "check-portable needs qemu-user; .ci/run installs it"; exit 1; }
	qemu-x86_64 -cpu Nehalem build/tests/tamis_tests
	@command -v aarch64-linux-gnu-g++ > /dev/null || { echo "check-portable needs g++-aarch64-linux-gnu; .ci/run installs it"; exit 1; }
	$(CMAKE) -S . -B build/aarch64 -DTAMIS_TESTS=ON -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_EXE_LINKER_FLAGS=-static > /dev/null
	$(BIN)/cmake --build build/aarch64
	qemu-aarch64 build/aarch64/tamis_tests

wheel: setup
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .
	@ls dist/*.whl

format: $(VENV)/.checkers
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $$(git ls-files 'cpp/*.cpp' 'cpp/*.hpp' 'cpp/*.h')

clean:
	rm -rf build dist $(VENV) .venv-oldest
