// All kernels, for the CPU.
#include "cuda/block_bitmap_kernels.hpp"
#include "cuda/ccm_kernels.hpp"
#include "cuda/clcb_kernels.hpp"
#include "cuda/hem_kernels.hpp"
#include "cuda/rows_kernels.hpp"
#include "cuda/spatial_grid_kernels.hpp"
#include "cuda/tuple_key_kernels.hpp"
