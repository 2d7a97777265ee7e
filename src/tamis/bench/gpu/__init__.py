"""The suite `gpu`: what the engines for GPUs do on one, and what they must.

    parts.py      which measurements there are; a cell of the run is one of them
    native.py     tamis_gpu_bench, without Python: pinned memory to pinned memory, single events
    kernels.py    the same under Nsight Compute: each kernel's share of what the device could do
    matching.py   through the Matcher: end to end from Arrow, and CPU against GPU by batch size
    adopt.py      lines of tamis_gpu_bench from another machine, as a run
    verdicts.py   the bars, and what a run says about them
    page.py       the report

All of them give figures, dicts with the keys that cpp/bench/gpu/figures.hpp explains.
"""
