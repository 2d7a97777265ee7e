// All kernels, for nvcc. One file: constant memory is shared by those of a file, and it compiles in
// half the time of two.
#include "block_bitmap_kernels.hpp"
#include "ccm_kernels.hpp"
#include "clcb_kernels.hpp"
#include "hem_kernels.hpp"
#include "rows_kernels.hpp"
#include "spatial_grid_kernels.hpp"
#include "tuple_key_kernels.hpp"
